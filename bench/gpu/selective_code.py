#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Estimates the speed of the kernels of selective scans from their machine code, without a GPU.

Follows the path of a thread through a chunk of steps (of the adjoint: a checkpoint interval) with
all arrays: u, delta, z, and B and C of every step. A loop within another counts as often as it
runs. Counts, per element, the instructions of all lanes that share it, and those of the
special-function unit. Compares the clocks of a multiprocessor with those that memory takes, and
with those of the exponentials and divisions in the formulas. It is a count, not a measurement:
caches, bank conflicts, barriers and the latency of memory are left out. The count is rather too
high: of two paths that move as many elements the longer one may be counted, and the adjoint's adds
to existing gradients.

    bench/gpu/selective_code.py --markdown
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import machine_code as code  # noqa: E402

STATES = 16
#: Lanes that share a channel, by the shape of a block; elements of a thread in a chunk of 32 steps.
SHAPES = {"4, 4": 4, "1, 16": 16}
CHUNK, STRETCH = 32, 128
#: Steps between sums of the gradients of B and C over the warps of a block.
SUMMED = 16
#: Steps per iteration of the forward loop.
TOGETHER = 8
UNBOUNDED = code.UNBOUNDED, code.UNBOUNDED


def done(i):
    """Words that an instruction moves; whether it is a special function or an exchange."""
    moves = i.name in ("LDG", "STG", "STS")
    return i.width // 4 if moves else 0, int(i.name in ("SHFL", "MUFU"))


#: Arrays that are read and written.
ARRAYS = {"walk": (3, 1), "pull": (4, 3)}
#: The least that the special-function unit must do: a power of two per state and pass, and two
#: operations each for the step and for the gate of z.
LEAST_SPECIAL = {"walk": STATES + 4, "pull": 2 * STATES + 4}


def kind_of(members, blocks):
    """Classify a loop by its instructions."""
    has = {i.name for at in members for i in blocks[at]}
    stored = sum(i.name == "STS" for at in members for i in blocks[at])
    if "SHFL" in has:
        if "BAR" not in has:
            return "steps"
        return "chunks back" if "LDG" in has else "sums back"
    if "BAR" in has:
        return "chunks forward"
    if "MUFU" in has and "LDG" in has:
        return "all elements" if stored > 10 else "elements"
    if "MUFU" in has:
        return "saved steps" if "STS" in has else "bare steps"
    if "STG" in has:
        return "gradients" if "FFMA" in has else "sums of B or C"
    if "LDS" in has:
        return "sums of D"
    return "other"


class Walk:
    """How often the loops of a kernel run, and what one iteration does."""

    def __init__(self, shape, adjoint):
        states, lanes = map(int, shape.split(","))
        elements = CHUNK // lanes
        batch = min(elements, 4)
        sums = 3 + max(0, (lanes // 4).bit_length() - 1)  # exchanges of a sum over lanes
        self.rounds = {
            "chunks back": STRETCH // CHUNK,
            "chunks forward": STRETCH // CHUNK - 1,
            "sums back": CHUNK // SUMMED,
            "steps": SUMMED // 4 if adjoint else CHUNK // TOGETHER,
            "bare steps": CHUNK // TOGETHER,
            "saved steps": CHUNK // 4 - 1,
            "all elements": elements // batch,
            "elements": elements // batch,
            "gradients": elements // batch,
            "sums of D": CHUNK // lanes,
            "sums of B or C": 16 * STATES / 128 / 4,
            "other": 1,
        }
        # Upper limits per element, which exclude the paths that add to gradients or store states:
        # arrays read or written and words to shared memory; special functions.
        self.most = {
            "elements": ((2 + 2) * batch, 2 * batch),
            "all elements": ((4 + 7) * batch, 5 * batch),
            "gradients": ((3 + 2) * batch, 0),
        }
        mixed = 2 * STATES * CHUNK // 128  # of B and C
        self.outer = (
            (4 + 4) * elements + 2 * mixed + TOGETHER // 4,
            4 * elements + TOGETHER // 4 * (sums + 4 * states),
        )
        if adjoint:
            self.outer = UNBOUNDED

    def path(self, blocks, follows, loops, head, most):
        """Instructions of one iteration of a loop, each with how often it runs in it."""
        body = loops[head]
        within = {at: [then for then in follows[at] if then in body] for at in body}
        path = code.best_path(blocks, within, head, done, most)
        weights = {i.address: (i, 1) for i in path}
        for inner, members in loops.items():
            around = [h for h in loops if h != inner and inner in loops[h]]
            if not around or min(around, key=lambda h: len(loops[h])) != head:
                continue
            places = {i.address for at in members for i in blocks[at]}
            if not places & weights.keys():
                continue
            kind = kind_of(members, blocks)
            below = self.path(blocks, follows, loops, inner, self.most.get(kind, UNBOUNDED))
            for address in places & weights.keys():
                del weights[address]
            for address, (i, times) in below.items():
                weights[address] = i, times * self.rounds[kind]
        return weights


def count(name, shape, instructions):
    adjoint = name == "pull"
    blocks, follows = code.blocks_of(instructions)
    loops = code.loops_of(follows, min(blocks))
    walk = Walk(shape, adjoint)
    head = max(loops, key=lambda h: len(loops[h]))
    per_element = {}
    each = SHAPES[shape] / (STRETCH if adjoint else CHUNK)
    for i, times in walk.path(blocks, follows, loops, head, walk.outer).values():
        per_element[i.name] = per_element.get(i.name, 0) + times * each
    return per_element


def kernels_of(given):
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/kernels.cubin"
        done = subprocess.run(
            [
                given.compiler,
                "-std=c++20",
                "-O3",
                "--expt-relaxed-constexpr",
                "--resource-usage",
                "-DSCANREC_FLOATS_ALONE",
                "-cubin",
                "-arch=sm_90",
                "-o",
                cubin,
                *(f"-I{i}" for i in given.include),
                str(code.ROOT / "tests/cuda/selective_kernels.cu"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        path = f"{pathlib.Path(given.disassembler).parent}:/usr/bin:/bin"
        listing = subprocess.run(
            [given.disassembler, "-sass", cubin],
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    said = done.stdout + done.stderr
    used = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes "
        r"spill loads.*?Used (\d+) registers",
        said,
        re.S,
    )
    functions = code.functions(listing)
    found = {}
    for symbol, stores, loads, registers in used:
        readable = code.readable(symbol)
        kernel = re.match(
            r"(walk|pull)_selective<selective_shape<float, (\d+, \d+)>, "
            r"\(selective_kind\)(\d)>",
            readable,
        )
        if kernel and kernel[3] == "0" and kernel[2] in SHAPES:
            found[kernel[1], kernel[2]] = (
                int(registers),
                int(stores) + int(loads),
                functions[symbol],
            )
    return found


HEAD = (
    "kernel",
    "S, L",
    "registers",
    "spilled bytes",
    "instructions",
    "special functions",
    "clocks by issue",
    "by special functions",
    "by memory, f32",
    "by memory, bf16",
    "asked for",
    "fraction, f32",
    "fraction, bf16",
)
CALLS = {"walk": "forward", "pull": "vjp"}  # by the names of kernels


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compiler", default="nvcc")
    parser.add_argument("--disassembler", default="cuobjdump")
    parser.add_argument("--include", nargs="+", default=[str(code.ROOT / "include")])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--mix", action="store_true", help="every kind of instruction")
    given = parser.parse_args()
    given.disassembler = shutil.which(given.disassembler) or sys.exit("no cuobjdump")
    gpu = code.GPUS["h200"]
    rows = [HEAD] + ([("---",) * len(HEAD)] if given.markdown else [])
    for (name, shape), (registers, spilled, instructions) in sorted(
        kernels_of(given).items(), reverse=True
    ):
        mix = count(name, shape, instructions)
        total, special = sum(mix.values()), mix.get("MUFU", 0)
        issue = total / (32 * gpu.schedulers * gpu.issue)
        unit = special / 16
        asked = LEAST_SPECIAL[name] / 16
        memory = [
            bytes_each * sum(ARRAYS[name]) * gpu.multiprocessors * gpu.clock / gpu.twin
            for bytes_each in (4, 2)
        ]
        best = [max(m, asked) for m in memory]
        taken = [max(m, issue, unit) for m in memory]
        rows.append(
            (
                CALLS[name],
                shape,
                registers,
                spilled,
                f"{total:.0f}",
                f"{special:.1f}",
                f"{issue:.2f}",
                f"{unit:.2f}",
                *(f"{m:.2f}" for m in memory),
                f"{asked:.2f}",
                *(f"{b / t:.2f}" for b, t in zip(best, taken)),
            )
        )
        if given.mix:
            print(
                name, shape, {k: round(v, 1) for k, v in sorted(mix.items(), key=lambda x: -x[1])}
            )
    for row in rows:
        print(
            "| " + " | ".join(map(str, row)) + " |" if given.markdown else "  ".join(map(str, row))
        )


if __name__ == "__main__":
    main()
