#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of machine_code.py on a listing made for them: one loop that loads ahead, with a detour
that is rarely taken, behind a loop that does nothing but compute."""
import machine_code

LISTING = """
        Function : kernel
        /*0000*/                   MOV R1, c[0x0][0x28] ;   /* 0x0 */
        /*0010*/                   FADD R2, R2, R1 ;        /* 0x0 */
        /*0020*/              @P0 BRA 0x10 ;                /* 0x0 */
        /*0030*/                   LDG.E R4, desc[UR4][R8.64] ;       /* 0x0 */
        /*0040*/                   LDG.E.128 R16, desc[UR4][R8.64+0x4] ;  /* 0x0 */
        /*0050*/                   FFMA R6, R4, R2, R1 ;    /* 0x0 */
        /*0060*/              @!P1 BRA 0xb0 ;               /* 0x0 */
        /*0070*/                   STG.E desc[UR4][R10.64], R6 ;      /* 0x0 */
        /*0080*/                   STG.E desc[UR4][R10.64+0x4], R16 ; /* 0x0 */
        /*0090*/              @P2 BRA 0x30 ;                /* 0x0 */
        /*00a0*/                   EXIT ;                   /* 0x0 */
        /*00b0*/                   CALL.REL.NOINC 0xd0 ;    /* 0x0 */
        /*00c0*/                   BRA 0x70 ;               /* 0x0 */
        /*00d0*/                   RET.REL.NODEC R20 0x0 ;  /* 0x0 */
"""


def main():
    code = machine_code.functions(LISTING)["kernel"]
    assert [i.address for i in code] == list(range(0, 0xe0, 0x10))
    assert code[4].width == 16 and code[3].width == 4
    blocks, follows = machine_code.blocks_of(code)
    assert sorted(blocks) == [0x00, 0x10, 0x30, 0x70, 0xa0, 0xb0, 0xd0]
    assert sorted(follows[0x30]) == [0x70, 0xb0] and follows[0xa0] == [] and follows[0xb0] == [0x70]
    loops = machine_code.loops_of(follows, 0)
    assert loops == {0x10: {0x10}, 0x30: {0x30, 0x70, 0xb0}}
    body = machine_code.hot_loop(blocks, follows)
    assert [i.address for i in body] == list(range(0x30, 0xa0, 0x10)), body  # not the call
    assert machine_code.stores(body) == 2
    # Four bytes and sixteen are asked for; the first are waited for, before the others are.
    assert machine_code.most_in_flight(body) == 20
    assert machine_code.most_in_flight(body[2:]) == 0
    workload = machine_code.Workload("test", "kernel", 8, 4, 1, 1 << 20, 1000, 128)
    counted = machine_code.count(workload, code, 64)
    assert counted.instructions == 3.5 and counted.registers == 64
    together, flight, bounds = machine_code.prediction(workload, counted, machine_code.Gpu())
    assert together == 8 and flight == 8 * 128 * 20 / 1024, (together, flight)
    assert 0 < bounds["waves"] <= 1 < bounds["issue"], bounds
    print("machine_code.py: right")


if __name__ == "__main__":
    main()
