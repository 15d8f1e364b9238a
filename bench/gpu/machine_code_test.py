#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of machine_code.py on a listing made for them: one loop that loads ahead, with a detour
that is rarely taken, behind a loop that does nothing but compute; and of look_back_model.py on
tiles of which the speed can be worked out."""

import dataclasses

import machine_code
from look_back_model import Phase, Simulation, Tile

#: Address, instruction, its stall, the scoreboard of its result, and a bit for each it waits for.
INSTRUCTIONS = (
    (0x00, "     MOV R1, c[0x0][0x28]", 4, 7, 0),
    (0x10, "     FADD R2, R2, R1", 4, 7, 0),
    (0x20, "@P0 BRA 0x10", 5, 7, 0),
    (0x30, "     LDG.E R4, desc[UR4][R8.64]", 1, 0, 0),
    (0x40, "     LDG.E.128 R16, desc[UR4][R8.64+0x4]", 2, 1, 0),
    (0x50, "     FFMA R6, R4, R2, R1", 5, 7, 0b01),
    (0x60, "@!P1 BRA 0xb0", 5, 7, 0),
    (0x70, "     STG.E desc[UR4][R10.64], R6", 1, 7, 0),
    (0x80, "     STG.E desc[UR4][R10.64+0x4], R16", 1, 7, 0b10),
    (0x90, "@P2 BRA 0x30", 5, 7, 0),
    (0xA0, "     EXIT", 5, 7, 0),
    (0xB0, "     CALL.REL.NOINC 0xd0", 5, 7, 0),
    (0xC0, "     BRA 0x70", 5, 7, 0),
    (0xD0, "     RET.REL.NODEC R20 0x0", 5, 7, 0),
)


def listing():
    """As cuobjdump prints it: the encoding behind each instruction, its second half below."""
    lines = ["\t\tFunction : kernel"]
    for address, text, stall, board, waits in INSTRUCTIONS:
        control = stall | board << 5 | 7 << 8 | waits << 11
        lines.append(f"        /*{address:04x}*/              {text} ;   /* 0x{0:016x} */")
        lines.append(f"                              /* 0x{control << 41:016x} */")
    return "\n".join(lines)


def main():
    code = machine_code.functions(listing())["kernel"]
    assert [i.address for i in code] == list(range(0, 0xE0, 0x10))
    assert code[4].scoreboard == 1 and code[4].stall == 2 and code[0].scoreboard is None
    assert code[5].waits_for == [0] and code[8].waits_for == [1] and code[3].waits_for == []
    blocks, follows = machine_code.blocks_of(code)
    assert sorted(blocks) == [0x00, 0x10, 0x30, 0x70, 0xA0, 0xB0, 0xD0]
    assert sorted(follows[0x30]) == [0x70, 0xB0] and follows[0xA0] == [] and follows[0xB0] == [0x70]
    loops = machine_code.loops_of(follows, 0)
    assert loops == {0x10: {0x10}, 0x30: {0x30, 0x70, 0xB0}}
    body = machine_code.hot_loop(blocks, follows)
    assert [i.address for i in body] == list(range(0x30, 0xA0, 0x10)), body  # not the call
    assert machine_code.stores(body) == 2
    # The first load is waited for, the second is there by then, but for its later start.
    gpu = machine_code.Gpu(latency=1000 / 1e9, clock=1e9)
    assert machine_code.clocks_alone(body, gpu) == 1000 + 5 + 5 + 1 + 1 + 5
    # Where the second was asked for in the round before, nobody waits.
    assert machine_code.clocks_alone(body[5:], gpu, rounds=2) == 1 + 5
    # No more than enough: the loop is left as soon as two elements have moved.
    path = machine_code.best_path(blocks, follows, 0, enough=(0, 2))
    assert [i.address for i in path][:4] == [0x00, 0x10, 0x20, 0x30], path
    workload = machine_code.Workload("test", "", "kernel", 8, 4, 2, 1, 1 << 20, 1000, 128)
    counted = machine_code.count(workload, code, 64, machine_code.Gpu())
    assert counted.instructions == 3.5 and counted.registers == 64
    together, flight, bounds, fraction = machine_code.prediction(
        workload, counted, machine_code.Gpu()
    )
    gpu = machine_code.Gpu()
    assert together == 8 and flight > 0
    # Fewer loads are on their way than memory would take, and that is all there is to it.
    alone = 8 * 128 * gpu.clock / counted.clocks * 132 / (gpu.twin / 12)
    assert abs(bounds["latency"] / alone - 1) < 0.01 and 0 < fraction <= 1 < bounds["issue"]
    check_simulation()
    print("machine_code.py: right")


def check_simulation():
    nothing = Phase(1e-3, 0)
    gpu = machine_code.Gpu(clock=1e9, latency=1e-6, launch=0.5e-6, multiprocessors=4, twin=1e12)
    tile = Tile(
        begin=nothing,
        compose=nothing,
        compose_span=nothing,
        fold=0,
        rest=nothing,
        bytes_read=2000,
        bytes_written=1000,
        warps=4,
        span=32,
        blocks=2,
        sequences=100,
        tiles=100,
    )

    def fraction(**changes):
        return Simulation(dataclasses.replace(tile, **changes), gpu, 4000).run()

    # 8 tiles at a time, each for its launch and the latency of ticket, data and messages: 3500
    # clocks, in which memory would move 3.5e6 bytes.
    alone = 8 * 3000 / 3.5e6
    assert abs(fraction() / alone - 1) < 0.02, fraction()
    # 4 warps of 1000 instructions share 2.8 of them per clock with those of 19 other blocks, and
    # all of them end together.
    busy = fraction(rest=Phase(1000, 1000), blocks=20, sequences=4000)
    clocks = 20 * 4 * 1000 / 2.8 + 2500
    assert abs(busy / (4 * 20 * 3 / clocks) - 1) < 0.02, busy
    # Memory is the limit where tiles are large.
    assert abs(fraction(bytes_read=2000000, bytes_written=1000000) - 1) < 0.02
    # Of one sequence all tiles wait for the state before them; a fold of many spans delays them
    # all.
    assert fraction(sequences=1) < alone
    assert fraction(sequences=1, span=1, fold=2000) < 0.5 * fraction(sequences=1, span=1)


if __name__ == "__main__":
    main()
