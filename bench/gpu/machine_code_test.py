#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of machine_code.py on a listing made for them: one loop that loads ahead, with a detour
that is rarely taken, behind a loop that does nothing but compute."""

import dataclasses

import machine_code

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


def is_call(instruction):
    return int(instruction.name == "CALL"), 0


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
    # The detour is taken for what it is worth, unless that is more than enough.
    for enough, detours in ((1, True), (0, False)):
        path = machine_code.best_path(blocks, follows, 0x30, is_call, (enough, 0))
        assert (0xB0 in [i.address for i in path]) == detours, path
        assert path[0].address == 0x30 and path[-1].address == 0x90, path
    workload = machine_code.Workload("test", "", "kernel", 8, 4, 1, 1 << 20)
    counted = machine_code.count(workload, code, 64, machine_code.Gpu())
    assert counted.instructions == 3.5 and counted.registers == 64
    of_pairs = dataclasses.replace(workload, sequences_of_thread=2)
    assert of_pairs.blocks == workload.blocks / 2 == 1 << 12
    halved = machine_code.count(of_pairs, code, 64, machine_code.Gpu())
    assert (halved.instructions, halved.clocks) == (1.75, counted.clocks / 2)
    together, flight, bounds, fraction = machine_code.prediction(
        workload, counted, machine_code.Gpu()
    )
    gpu = machine_code.Gpu()
    assert together == 8 and flight > 0
    # Fewer loads are on their way than memory would take, and that is all there is to it.
    alone = 8 * 128 * gpu.clock / counted.clocks * 132 / (gpu.twin / 12)
    assert abs(bounds["latency"] / alone - 1) < 0.01 and 0 < fraction <= 1 < bounds["issue"]
    print("machine_code.py: right")


if __name__ == "__main__":
    main()
