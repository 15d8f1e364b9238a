#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bounds on the speed of kernels by their machine code, without a GPU.

Compiles kernels with nvcc, reads them with cuobjdump, and follows the path of a thread that has all
its steps. Each loop counts once; of two branches, the one that moves more elements is followed.
Counts instructions per element of the output, and the clocks that a warp alone takes on that path.
The control bits of an instruction give its stall and the scoreboards that it waits for; a wait for
one load waits for all loads that share its scoreboard. These and the limits of a GPU bound the
fraction of the copy baseline's speed. It is a count, not a measurement: caches and the accesses
that a multiprocessor can issue are left out. Kernels with a ring and tiles of look_back are not
counted.

    pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm   # where the toolkit lacks them
    bench/gpu/machine_code.py --markdown
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cuda"))
from resources import readable  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Gpu:
    """An H200. Figures are from data sheets and the CUDA programming guide, except those marked as
    assumed."""

    name: str = "an H200"
    multiprocessors: int = 132
    clock: float = 1.98e9  # with which 67 TFLOP/s of floats on a data sheet agree
    schedulers: int = 4
    issue: float = 0.7  # assumed: instructions per scheduler and clock that real code gets
    twin: float = 4.25e12  # assumed: bytes per second of the copy baseline
    latency: float = 0.75e-6  # assumed: of memory under load
    registers: int = 65536
    warps: int = 64


GPUS = {"h200": Gpu(), "h100": Gpu("an H100", twin=3.0e12)}


@dataclasses.dataclass(frozen=True)
class Workload:
    """A call: its kernel, its traffic and its launch shape."""

    name: str
    row: str  # of the benchmarks; "" if none
    kernel: str  # as resources.py prints it
    reads: int  # bytes per element
    writes: int
    outputs: int  # arrays that are written
    sequences: int
    sequences_of_thread: int = 1
    threads: int = 128  # of a block

    @property
    def blocks(self):
        return -(-self.sequences // (self.sequences_of_thread * self.threads))


FLOATS, SMALL = "float, float, float", "bfloat16, bfloat16, bfloat16"
FORWARD, SMALL_FORWARD = f"forward<{FLOATS}>", f"forward<{SMALL}>"
VJP = "vjp<float, float, float, float, float>"
SMALL_VJP = "vjp<bfloat16, bfloat16, bfloat16, bfloat16, bfloat16>"
POOLING = "fo_pooling<tanh, sigmoid>"
SMALL_POOLING = f"gated_forward<{POOLING}, bfloat16, bfloat16, output_field<bfloat16> >"
SMALL_POOLING_VJP = f"gated_vjp<{POOLING}, bfloat16, bfloat16, bfloat16, bfloat16>"


def in_lanes(name, row, recurrence, bytes_each, inputs, outputs, sequences):
    return Workload(
        name,
        row,
        f"walk_lanes<{recurrence}, plain>",
        bytes_each * inputs,
        bytes_each * outputs,
        outputs,
        sequences,
    )


def in_pairs(name, row, recurrence, inputs, outputs, sequences):
    return Workload(
        name,
        row,
        f"walk_pairs<{recurrence} >",
        2 * inputs,
        2 * outputs,
        outputs,
        sequences,
        sequences_of_thread=2,
    )


WORKLOADS = (
    in_lanes("f32 (32, 4096, 1024)", "channels_last/forward", FORWARD, 4, 2, 1, 32 * 1024),
    in_lanes("the same, vjp", "channels_last/vjp", VJP, 4, 3, 2, 32 * 1024),
    in_pairs("bf16 (32, 4096, 2048)", "bfloat16/forward", SMALL_FORWARD, 2, 1, 32 * 2048),
    in_pairs("the same, vjp", "bfloat16/vjp", SMALL_VJP, 3, 2, 32 * 2048),
    in_lanes("bf16 (8, 8192, 2048)", "", SMALL_FORWARD, 2, 2, 1, 8 * 2048),
    in_lanes("the same, vjp", "", SMALL_VJP, 2, 3, 2, 8 * 2048),
    in_lanes(
        "bf16 QRNN (32, 4096, 3 x 1024)",
        "qrnn_packed/forward_store",
        SMALL_POOLING,
        2,
        3,
        2,
        32 * 1024,
    ),
    in_lanes("the same, vjp", "qrnn_packed/vjp_store", SMALL_POOLING_VJP, 2, 5, 3, 32 * 1024),
)


# ---- reading ------------------------------------------------------------------------------------

INSTRUCTION = re.compile(
    r"^\s+/\*([0-9a-f]{4,5})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z0-9_.]+)\s*(.*?)\s*;"
)
ENCODED = re.compile(r"/\* 0x([0-9a-f]{16}) \*/\s*$")


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str
    opcode: str
    operands: str
    control: int = 7 << 5  # of its encoding; no scoreboard

    @property
    def name(self):
        return self.opcode.split(".")[0]

    @property
    def target(self):
        found = re.search(r"0x([0-9a-f]+)", self.operands)
        return int(found[1], 16) if self.name == "BRA" and found else None

    # The control bits since Volta, as reverse-engineered: 4 bits of stall, a hint, 3 each for the
    # scoreboard of results and of operands (7: none), and a mask of the 6 scoreboards that it waits
    # for. Source: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking
    # (2018), section 2.1.
    @property
    def stall(self):
        return max(1, self.control & 15)

    @property
    def scoreboard(self):
        board = self.control >> 5 & 7
        return board if board < 6 else None

    @property
    def waits_for(self):
        return [board for board in range(6) if self.control >> 11 >> board & 1]

    @property
    def width(self):
        """Bytes of a thread that a load or store moves."""
        for bits in ("128", "64", "U16", "S16", "U8", "S8"):
            if f".{bits}" in self.opcode:
                return int(re.sub(r"\D", "", bits)) // 8
        return 4


def functions(listing):
    """The instructions of each function in a listing of cuobjdump."""
    found = {}
    for part in listing.split("Function : ")[1:]:
        lines = part.splitlines()
        code = found[lines[0].strip()] = []
        for line, after in zip(lines, lines[1:] + [""]):
            if m := INSTRUCTION.match(line):
                # The second half of the encoding is on the next line.
                high = ENCODED.search(after)
                control = int(high[1], 16) >> 41 & 0x1FFFFF if high else 7 << 5
                code.append(Instruction(int(m[1], 16), m[2] or "", m[3], m[4], control))
    return found


def blocks_of(code):
    """Basic blocks, by their first address: (instructions, addresses of those that follow)."""
    starts = {code[0].address}
    for instruction, after in zip(code, code[1:]):
        if instruction.name in ("BRA", "EXIT", "RET"):
            starts.add(after.address)
        if instruction.target is not None:
            starts.add(instruction.target)
    blocks, current = {}, None
    for instruction in code:
        if instruction.address in starts:
            current = blocks.setdefault(instruction.address, [])
        current.append(instruction)
    order = sorted(blocks)
    follows = {}
    for at, after in zip(order, order[1:] + [None]):
        last = blocks[at][-1]
        ends = last.name in ("BRA", "EXIT", "RET") and not conditional(last)
        follows[at] = [] if ends or after is None else [after]
        if last.target in blocks:
            follows[at].append(last.target)
    return blocks, follows


def conditional(branch):
    return (
        bool(branch.predicate)
        or branch.opcode == "BRA.DIV"
        or branch.operands.startswith(("P", "!P", "UP", "!UP"))
    )


UNBOUNDED = 1 << 30


def moves(i):
    """Whether an instruction certainly moves an element; and 0."""
    return int(i.name in ("LDG", "STG", "LD", "ST") and not i.predicate), 0


def length(instructions):
    """The number of instructions; a call counts 100, because called functions handle rare
    numbers."""
    return len(instructions) + 100 * sum(i.name == "CALL" for i in instructions)


def best_path(blocks, follows, start, worth=moves, enough=(UNBOUNDED, UNBOUNDED)):
    """The instructions of the best path from a block back to itself, which visits each block at
    most once. `worth` gives two numbers per instruction. The best path has the largest sums of
    them, up to `enough`, in lexicographic order; of equal paths it is the shortest."""
    # ways[block][worth] is the shortest path from the block on with this worth: (length, next
    # block, worth from the next block on).
    ways, under_way = {}, set()

    def search(at):
        if at in ways:
            return ways[at]
        under_way.add(at)
        own = tuple(map(sum, zip((0, 0), *map(worth, blocks[at]))))
        cost, found = length(blocks[at]), {}
        for after in follows[at]:
            if after in under_way and after != start:
                continue
            rest = {(0, 0): (0, None, None)} if after == start else search(after)
            for moved, (instructions, *_) in rest.items():
                key = tuple(map(min, map(sum, zip(own, moved)), enough))
                way = (cost + instructions, after, moved)
                if key not in found or way[0] < found[key][0]:
                    found[key] = way
        under_way.discard(at)
        ways[at] = found
        return found

    if not search(start):
        return []
    path, at, moved = [], start, max(ways[start])
    while True:
        path += blocks[at]
        _, after, moved = ways[at][moved]
        if after == start:
            return path
        at = after


def loops_of(follows, start):
    """The blocks of each loop, by its first block."""
    comes_from = {}
    for at, after in follows.items():
        for then in after:
            comes_from.setdefault(then, []).append(at)
    loops, seen, under_way = {}, set(), []
    stack = [(start, iter(follows[start]))]
    under_way.append(start)
    seen.add(start)
    while stack:
        at, after = stack[-1]
        then = next(after, None)
        if then is None:
            stack.pop()
            under_way.pop()
        elif then in under_way:
            body, reached = loops.setdefault(then, {then}), [at]
            while reached:
                block = reached.pop()
                if block not in body:
                    body.add(block)
                    reached += comes_from.get(block, [])
        elif then not in seen:
            seen.add(then)
            under_way.append(then)
            stack.append((then, iter(follows[then])))
    return loops


def hot_loop(blocks, follows):
    """One iteration of the innermost loop that stores most."""
    loops = loops_of(follows, min(blocks))
    inner = [
        head for head, body in loops.items() if not any(h != head and h in body for h in loops)
    ]
    bodies = []
    for head in inner:
        within = {at: [then for then in follows[at] if then in loops[head]] for at in loops[head]}
        bodies.append(best_path(blocks, within, head))
    return max(bodies, key=lambda body: (min(stores(body), loads(body)), -length(body)), default=[])


def loads(path):
    return sum(i.name in ("LDG", "LD") for i in path)


def stores(path):
    return sum(i.name in ("STG", "ST") for i in path)


# ---- counting -----------------------------------------------------------------------------------


#: Clocks until the results of instructions that use a scoreboard, except loads from memory. It is
#: approximate, and matters little beside those loads.
SHORT_LATENCY = 25


def clocks_alone(path, gpu, rounds=1):
    """Clocks that a warp alone takes for the last of `rounds` iterations."""
    now = began = 0.0
    there = {board: 0.0 for board in range(6)}
    for _ in range(rounds):
        began = now
        for i in path:
            now = max([now, *(there[board] for board in i.waits_for)])
            if i.scoreboard is not None:
                latency = gpu.latency * gpu.clock if i.name in ("LDG", "LD") else SHORT_LATENCY
                there[i.scoreboard] = max(there[i.scoreboard], now + latency)
            now += i.stall
    return now - began


@dataclasses.dataclass
class Count:
    instructions: float  # per element of one output
    clocks: float  # per element, of a warp alone
    registers: int


def count(workload, code, registers, gpu):
    blocks, follows = blocks_of(code)
    path = hot_loop(blocks, follows)
    elements = stores(path) / workload.outputs * workload.sequences_of_thread
    if not elements:
        sys.exit(f"{workload.kernel}: no loop that stores")
    # Several iterations, because loads are issued ahead.
    return Count(len(path) / elements, clocks_alone(path, gpu, 4) / elements, registers)


def prediction(workload, counted, gpu):
    """The blocks and the KiB in flight of a multiprocessor, the bounds on the fraction of the copy
    baseline, and the fraction."""
    warps = -(-workload.threads // 32)
    of_registers = gpu.registers // (-(-counted.registers // 8) * 8 * 32) // warps
    together = max(1, min(of_registers, gpu.warps // warps))
    slots = together * gpu.multiprocessors
    # Elements that memory moves per second, and that so many blocks take at a time.
    memory = gpu.twin / (workload.reads + workload.writes)

    def bounds_of(blocks):
        by_latency = blocks * workload.threads * gpu.clock / counted.clocks
        working = min(blocks, gpu.multiprocessors)
        by_issue = working * gpu.schedulers * gpu.clock * gpu.issue * 32 / counted.instructions
        return {"latency": by_latency / memory, "issue": by_issue / memory}

    bounds = bounds_of(min(slots, workload.blocks))
    resident = min(slots, workload.blocks) / gpu.multiprocessors
    flight = resident * workload.threads * workload.reads * gpu.latency * gpu.clock / counted.clocks
    full, rest = divmod(workload.blocks, slots)
    alone = min(1, *bounds.values())
    time = full * slots / alone + (rest / min(1, *bounds_of(rest).values()) if rest else 0)
    fraction = workload.blocks / time
    bounds["waves"] = fraction / alone
    return together, flight / 1024, bounds, fraction


# ---- the table ----------------------------------------------------------------------------------


def compiled(compiler, includes, source, disassembler):
    """Registers and code of the kernels of a source, by their readable names."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/kernels.cubin"
        done = subprocess.run(
            [
                compiler,
                "-std=c++20",
                "-O3",
                "--expt-relaxed-constexpr",
                "--resource-usage",
                "-cubin",
                "-arch=sm_90",
                "-o",
                cubin,
                *(f"-I{i}" for i in includes),
                str(source),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        # cuobjdump looks for nvdisasm in PATH.
        path = f"{pathlib.Path(disassembler).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        listing = subprocess.run(
            [disassembler, "-sass", cubin],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    used = re.findall(
        r"Compiling entry function '(\w+)'.*?Used (\d+) registers", done.stdout + done.stderr, re.S
    )
    code = functions(listing)
    return {readable(name): (int(registers), code[name]) for name, registers in used}


def table(kernels, gpus):
    """A row for each workload, with the bounds of the first GPU and the fractions of all; and the
    fractions by GPU and row of the benchmarks."""
    rows, predicted = [], {gpu.name.split()[-1]: {} for gpu in gpus}
    for workload in WORKLOADS:
        registers, code = kernels[workload.kernel]
        counted = count(workload, code, registers, gpus[0])
        (together, flight, bounds, _), *_ = found = [
            prediction(workload, counted, gpu) for gpu in gpus
        ]
        limit = min(bounds, key=bounds.get)
        fractions = [f"{fraction:.2f}" for *_, fraction in found]
        rows.append(
            (
                workload.name,
                workload.kernel.split("<")[0],
                registers,
                together,
                f"{counted.instructions:.0f}",
                f"{flight:.0f}",
                *(f"{min(bounds[b], 9.99):.2f}" for b in ("latency", "issue", "waves")),
                "memory" if bounds[limit] > 0.99 else limit,
                *fractions,
            )
        )
        if workload.row:
            for gpu, fraction in zip(predicted, fractions):
                predicted[gpu][workload.row] = float(fraction)
    return rows, predicted


HEAD = (
    "workload",
    "kernel",
    "registers",
    "blocks per SM",
    "instructions per element",
    "KiB in flight per SM",
    "by latency",
    "by issue",
    "by waves",
    "limit",
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compiler", default="nvcc")
    parser.add_argument("--disassembler", default="cuobjdump")
    parser.add_argument("--include", nargs="+", default=[str(ROOT / "include")])
    parser.add_argument(
        "--source", type=pathlib.Path, default=ROOT / "tests" / "cuda" / "default_kernels.cu"
    )
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the fractions as well")
    given = parser.parse_args()
    disassembler = shutil.which(given.disassembler)
    if not disassembler:
        sys.exit(
            f"no {given.disassembler}; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, "
            "and pass --disassembler .../nvidia/cu13/bin/cuobjdump"
        )
    kernels = compiled(given.compiler, given.include, given.source, disassembler)
    rows, predicted = table(kernels, tuple(GPUS.values()))
    rows.insert(0, (*HEAD, *predicted))
    if given.json:
        given.json.write_text(json.dumps(predicted, indent=1) + "\n")
    if given.markdown:
        rows.insert(1, ("---",) * len(rows[0]))
        for row in rows:
            print("|", " | ".join(map(str, row)), "|")
        return
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)))


if __name__ == "__main__":
    main()
