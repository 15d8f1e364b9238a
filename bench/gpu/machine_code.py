#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bounds on the speed of kernels by their machine code, without a GPU.

Compiles kernels with nvcc, reads them with cuobjdump, and follows the path of a thread that has all
its steps. Each loop counts once; of two branches, the one that moves more elements is followed.
Counts instructions per element of the output, and the clocks that a warp alone takes on that path.
The control bits of an instruction give its stall and the scoreboards that it waits for; a wait for
one load waits for all loads that share its scoreboard. These and the limits of a GPU bound the
fraction of the copy baseline's speed. Blocks of look_back wait for each other; look_back_model.py
simulates them with the counted phases. It is a count, not a measurement: caches and bank conflicts
are left out, and so are kernels with a ring, whose loops are nested.

    pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm   # where the toolkit lacks them
    bench/gpu/machine_code.py --markdown
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cuda"))
from look_back_model import Phase, Simulation, Tile  # noqa: E402
from resources import readable  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Gpu:
    """An H200. Figures are from data sheets and the CUDA programming guide, except those marked as
    assumed."""

    name: str = "an H200"
    architecture: str = "sm_90"
    multiprocessors: int = 132
    clock: float = 1.98e9  # with which 67 TFLOP/s of floats on a data sheet agree
    schedulers: int = 4
    issue: float = 0.7  # assumed: instructions per scheduler and clock that real code gets
    twin: float = 4.25e12  # assumed: bytes per second of the copy baseline
    latency: float = 0.75e-6  # assumed: of memory under load; of messages and tickets, too
    launch: float = 0.3e-6  # assumed: from the end of a block to the next one's start
    registers: int = 65536
    warps: int = 64
    shared: int = 227 * 1024  # 1 KiB more is taken by every block
    doubles: int = 64  # operations on doubles per clock and multiprocessor
    conversions: int = 16  # conversions to and from doubles, likewise


def without_doubles(name, architecture, multiprocessors, clock, bandwidth):
    """A GPU with doubles at 1/64 of the speed of floats; a copy reaches 0.9 of its bandwidth."""
    return Gpu(
        name,
        architecture,
        multiprocessors,
        clock,
        twin=0.9 * bandwidth,
        warps=48,
        shared=99 * 1024,
        doubles=2,
        conversions=2,
    )


GPUS = {
    "h200": Gpu(),
    "h100": Gpu("an H100", twin=3.0e12),
    "rtx3090": without_doubles("an RTX 3090", "sm_86", 82, 1.695e9, 936e9),
    "rtx4090": without_doubles("an RTX 4090", "sm_89", 128, 2.52e9, 1008e9),
    "rtx5090": without_doubles("an RTX 5090", "sm_120", 170, 2.407e9, 1792e9),
}


@dataclasses.dataclass(frozen=True)
class Workload:
    """A call: its kernel, its traffic and its launch shape."""

    name: str
    row: str  # of the benchmarks; "" if none
    kernel: str  # as resources.py prints it
    reads: int  # bytes per element
    writes: int
    inputs: int  # arrays that are read
    outputs: int  # and written
    sequences: int
    steps: int
    threads: int  # of a block
    shared: int = 0  # bytes of a block
    steps_of_thread: int = 0  # of look_back; 0: whole sequences
    columns: int = 1  # sequences of a tile
    staged: bool = False  # through shared memory, tile by tile

    @property
    def arrays(self):
        return self.inputs + self.outputs

    @property
    def blocks(self):
        threads = self.sequences * (
            -(-self.steps // self.steps_of_thread) if self.steps_of_thread else 1
        )
        return -(-threads // self.threads)


THREADS = 128  # of a block of look_back
# Shared memory of its tiles (docs/cuda.md), without and with staging.
MAPS, STAGED = 9 * 1024, 43 * 1024
# Clocks and instructions per iteration of those loops of walk_tiles that run several times, while
# the counted path visits them once: a level of composition in a warp, and a step over warps; both
# for the segments of a tile and for the tiles of a span. FOLD: clocks to fold a span.
LEVEL, WARPS = Phase(68, 16), Phase(60, 9)
SPAN_LEVEL, SPAN_WARPS, FOLD = Phase(90, 20), Phase(110, 20), 103
# Message words that a thread of look_back loads, for floats: a state and two maps.
MESSAGE = 5
FLOATS, SMALL = "float, float, float", "bfloat16, bfloat16, bfloat16"
FORWARD, SMALL_FORWARD = f"forward<{FLOATS}>, plain>", f"forward<{SMALL}>, plain>"
VJP = "vjp<float, float, float, float, float>, plain>"
SMALL_VJP = "vjp<bfloat16, bfloat16, bfloat16, bfloat16, bfloat16>, plain>"
POOLING = "fo_pooling<tanh, sigmoid>"
SMALL_POOLING = f"gated_forward<{POOLING}, bfloat16, bfloat16, output_field<bfloat16> >, plain>"
SMALL_POOLING_VJP = f"gated_vjp<{POOLING}, bfloat16, bfloat16, bfloat16, bfloat16>, plain>"


def in_lanes(name, row, kernel, bytes_each, inputs, outputs, sequences, steps):
    return Workload(
        name,
        row,
        f"walk_lanes<{kernel}",
        bytes_each * inputs,
        bytes_each * outputs,
        inputs,
        outputs,
        sequences,
        steps,
        128,
    )


def in_tiles(name, row, kernel, inputs, outputs, sequences, steps, each, columns, staged=False):
    return Workload(
        name,
        row,
        f"walk_tiles<{kernel}",
        4 * inputs,
        4 * outputs,
        inputs,
        outputs,
        sequences,
        steps,
        THREADS,
        STAGED if staged else MAPS,
        each,
        columns,
        staged,
    )


WORKLOADS = (
    in_lanes("f32 (32, 4096, 1024)", "channels_last/forward", FORWARD, 4, 2, 1, 32 * 1024, 4096),
    in_lanes("the same, vjp", "channels_last/vjp", VJP, 4, 3, 2, 32 * 1024, 4096),
    in_lanes("bf16 (32, 4096, 2048)", "bfloat16/forward", SMALL_FORWARD, 2, 2, 1, 32 * 2048, 4096),
    in_lanes("the same, vjp", "bfloat16/vjp", SMALL_VJP, 2, 3, 2, 32 * 2048, 4096),
    in_lanes("f32 (8, 8192, 2048)", "", FORWARD, 4, 2, 1, 8 * 2048, 8192),
    in_lanes("the same, vjp", "", VJP, 4, 3, 2, 8 * 2048, 8192),
    in_lanes("f32 (64, 2048, 256)", "", FORWARD, 4, 2, 1, 64 * 256, 2048),
    in_lanes("bf16 (8, 8192, 2048)", "", SMALL_FORWARD, 2, 2, 1, 8 * 2048, 8192),
    in_lanes("the same, vjp", "", SMALL_VJP, 2, 3, 2, 8 * 2048, 8192),
    in_tiles("f32 (1, 2^21, 256)", "two_million_steps/forward", FORWARD, 2, 1, 256, 1 << 21, 32, 8),
    in_tiles("the same, vjp", "two_million_steps/vjp", VJP, 3, 2, 256, 1 << 21, 16, 8),
    in_tiles(
        "f32 (8, 65536, 1536) along time",
        "time_contiguous/forward",
        FORWARD,
        2,
        1,
        8 * 1536,
        65536,
        32,
        1,
        True,
    ),
    in_tiles("the same, vjp", "time_contiguous/vjp", VJP, 3, 2, 8 * 1536, 65536, 16, 1, True),
    in_tiles(
        "f32 2^28, one sequence", "one_sequence/forward", FORWARD, 2, 1, 1, 1 << 28, 32, 1, True
    ),
    in_tiles("the same, vjp", "one_sequence/vjp", VJP, 3, 2, 1, 1 << 28, 16, 1, True),
    in_lanes(
        "bf16 QRNN (32, 4096, 3 x 1024)",
        "qrnn_packed/forward_store",
        SMALL_POOLING,
        2,
        3,
        2,
        32 * 1024,
        4096,
    ),
    in_lanes("the same, vjp", "qrnn_packed/vjp_store", SMALL_POOLING_VJP, 2, 5, 3, 32 * 1024, 4096),
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


#: Weights of instructions, by which a path is chosen. Kernels that can stage load and store steps
#: by generic addresses, and copy tiles by global ones. Other kernels load and store by global
#: addresses.
ANY = {"LDG": 1, "LDGSTS": 1, "STG": 1, "LD": 1, "ST": 1}
STAGES = {"LDG": -1, "LDGSTS": 1, "STG": 1, "LD": 1, "ST": 1}
DOES_NOT = {"LDG": -1, "LDGSTS": -1, "STG": -1, "LD": 1, "ST": 1}
UNBOUNDED = 1 << 30


def worth(instructions, weights):
    """The words of messages that are loaded, and the elements that are moved without a predicate.
    If `weights` is a function, the sums of its two results."""
    if callable(weights):
        return tuple(map(sum, zip((0, 0), *map(weights, instructions))))
    messages = sum(i.name == "LDG" and "STRONG" in i.opcode for i in instructions)
    return messages, sum(
        weights.get(i.name, 0) for i in instructions if "STRONG" not in i.opcode and not i.predicate
    )


def length(instructions):
    """The number of instructions; a call counts 100, because called functions handle rare
    numbers."""
    return len(instructions) + 100 * sum(i.name == "CALL" for i in instructions)


def best_path(blocks, follows, start, stop=None, weights=ANY, enough=(0, UNBOUNDED)):
    """The instructions of the best path from a block to an end, or back to `stop`, which visits
    each block at most once. The best path loads most messages and moves most elements, up to
    `enough`; of equal paths it is the shortest."""
    # ways[block][worth] is the shortest path from the block on with this worth: (length, next
    # block, worth from the next block on).
    ways, under_way = {}, set()

    def search(at):
        if at in ways:
            return ways[at]
        under_way.add(at)
        own, cost, found = worth(blocks[at], weights), length(blocks[at]), {}
        for after in follows[at] or ([None] if stop is None else []):
            if after in under_way and after != stop:
                continue
            rest = {(0, 0): (0, None, None)} if after in (stop, None) else search(after)
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
        if after in (stop, None):
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
        bodies.append(best_path(blocks, within, head, head))
    return max(bodies, key=lambda body: (min(stores(body), loads(body)), -length(body)), default=[])


def loads(path):
    return sum(i.name in ("LDG", "LD") for i in path)


def stores(path):
    return sum(i.name in ("STG", "ST") for i in path)


# ---- counting -----------------------------------------------------------------------------------


#: Clocks until the results of instructions that use a scoreboard, except loads from global memory.
#: They are approximate, and matter little beside those loads.
LATENCY = {"LDS": 30, "LDC": 40, "MUFU": 25, "SHFL": 25, "ATOMS": 60}
GLOBAL = ("LDG", "LD", "LDGSTS", "ATOMG", "ATOM")


def timeline(path, gpu, rounds=1, staged=False):
    """(clock, clocks waited) of each instruction that a warp alone issues on a path, in the last of
    `rounds` iterations and counted from its start; and one more pair for its end. If `staged`,
    steps are read from shared memory."""
    memory = gpu.latency * gpu.clock
    now, times = 0.0, []
    there = {board: 0.0 for board in range(6)}
    copied, groups = 0.0, []  # asynchronous copies, which use no scoreboard
    for _ in range(rounds):
        began, times = now, []
        for i in path:
            before = now
            for board in i.waits_for:
                now = max(now, there[board])
            if i.name == "DEPBAR":
                left = int(i.operands.split(",")[1], 16)
                now = max([now, *groups[: len(groups) - left]])
                groups = groups[len(groups) - left :]
            times.append((now - began, now - before))
            far = i.name in GLOBAL and not (staged and i.name == "LD")
            latency = memory if far else LATENCY.get(i.name, 25)
            if i.scoreboard is not None:
                there[i.scoreboard] = max(there[i.scoreboard], now + latency)
            if i.name == "LDGSTS":
                copied = now + memory
            elif i.name == "LDGDEPBAR":
                groups.append(copied)
            now += i.stall
        times.append((now - began, 0.0))
    return times


def clocks_alone(path, gpu, rounds=1, staged=False):
    """Clocks that a warp alone takes for the last of `rounds` iterations."""
    return timeline(path, gpu, rounds, staged)[-1][0]


def tile_of(workload, path, gpu, together):
    """The simulated tile that follows from the path of a thread. Its phases lie between the waits
    for data and for messages of other tiles."""
    times = timeline(path, gpu, staged=workload.staged)
    far = [k for k, (_, waited) in enumerate(times) if waited > gpu.latency * gpu.clock / 2]
    asked = next(k for k, i in enumerate(path) if i.name == "LDG" and "STRONG" in i.opcode)
    loaded, heard = next(k for k in far if k < asked), next(k for k in far if k > asked)

    def sum_of(clocks, instructions, *loops):
        return Phase(
            clocks + sum(rounds * loop.clocks for rounds, loop in loops),
            instructions + sum(rounds * loop.instructions for rounds, loop in loops),
        )

    def phase(first, last, *loops):
        return sum_of(times[last][0] - times[last][1] - times[first][0], last - first, *loops)

    warps = -(-workload.threads // 32)
    levels = int(math.log2(32 // workload.columns))
    steps = workload.threads // workload.columns * workload.steps_of_thread
    elements = steps * workload.columns
    # On average half of the warps, and at least one, read maps of earlier tiles of the span.
    span = min(32, workload.threads // workload.columns)
    span_warps = span * workload.columns // 32
    composed = sum_of(0, 0, (levels, SPAN_LEVEL), (span_warps - 1, SPAN_WARPS))
    share = max(1, span_warps / 2) / warps
    return Tile(
        begin=phase(0, loaded),
        compose=phase(loaded, asked, (levels, LEVEL), (warps - 1, WARPS)),
        compose_span=Phase(composed.clocks, composed.instructions * share),
        fold=FOLD,
        rest=phase(heard, len(path)),
        bytes_read=elements * workload.reads,
        bytes_written=elements * workload.writes,
        warps=warps,
        span=span,
        blocks=together,
        sequences=workload.sequences // workload.columns,
        tiles=-(-workload.steps // steps),
    )


@dataclasses.dataclass
class Count:
    instructions: float  # per element of one output
    clocks: float  # per element, of a warp alone
    registers: int
    doubles: float = 0.0  # instructions on doubles, per element
    conversions: float = 0.0  # conversions to and from doubles, per element
    path: tuple = ()


def count(workload, code, registers, gpu):
    blocks, follows = blocks_of(code)
    if workload.steps_of_thread:
        steps = workload.steps_of_thread
        path = best_path(
            blocks,
            follows,
            code[0].address,
            weights=STAGES if workload.staged else DOES_NOT,
            enough=(MESSAGE, steps * workload.arrays * (2 if workload.staged else 1)),
        )
    else:
        path = hot_loop(blocks, follows)
        steps = stores(path) / workload.outputs
    if not steps:
        sys.exit(f"{workload.kernel}: no loop that stores")
    # Several iterations, because loads are issued ahead.
    clocks = clocks_alone(path, gpu, 1 if workload.steps_of_thread else 4, workload.staged)
    doubles = sum(i.name in ("DADD", "DMUL", "DFMA", "DSETP") for i in path)
    conversions = sum(i.name == "F2F" and "F64" in i.opcode for i in path)
    return Count(
        len(path) / steps,
        clocks / steps,
        registers,
        doubles / steps,
        conversions / steps,
        tuple(path),
    )


def prediction(workload, counted, gpu):
    """The blocks and the KiB in flight of a multiprocessor, the bounds on the fraction of the copy
    baseline, and the fraction."""
    warps = -(-workload.threads // 32)
    of_registers = gpu.registers // (-(-counted.registers // 8) * 8 * 32) // warps
    of_shared = gpu.shared // (workload.shared + 1024)
    together = max(1, min(of_registers, of_shared, gpu.warps // warps))
    slots = together * gpu.multiprocessors
    # Elements that memory moves per second, and that so many blocks take at a time.
    memory = gpu.twin / (workload.reads + workload.writes)

    def bounds_of(blocks):
        by_latency = blocks * workload.threads * gpu.clock / counted.clocks
        working = min(blocks, gpu.multiprocessors)
        by_issue = working * gpu.schedulers * gpu.clock * gpu.issue * 32 / counted.instructions
        clocks = counted.doubles / gpu.doubles + counted.conversions / gpu.conversions
        by_doubles = working * gpu.clock / clocks if clocks else math.inf
        return {
            "latency": by_latency / memory,
            "issue": by_issue / memory,
            "doubles": by_doubles / memory,
        }

    bounds = bounds_of(min(slots, workload.blocks))
    resident = min(slots, workload.blocks) / gpu.multiprocessors
    flight = resident * workload.threads * workload.reads * gpu.latency * gpu.clock / counted.clocks
    if workload.steps_of_thread:
        tile = tile_of(workload, counted.path, gpu, together)
        enough = min(tile.tiles * tile.sequences, 24 * slots)
        bounds["latency"] = Simulation(tile, gpu, enough).run()
        bounds["waves"] = 1.0
        return together, flight / 1024, bounds, min(1.0, *bounds.values())
    full, rest = divmod(workload.blocks, slots)
    alone = min(1, *bounds.values())
    time = full * slots / alone + (rest / min(1, *bounds_of(rest).values()) if rest else 0)
    fraction = workload.blocks / time
    bounds["waves"] = fraction / alone
    return together, flight / 1024, bounds, fraction


# ---- the table ----------------------------------------------------------------------------------


def compiled(compiler, includes, architecture, source, disassembler):
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
                f"-arch={architecture}",
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
                *(f"{min(bounds[b], 9.99):.2f}" for b in ("latency", "issue", "doubles", "waves")),
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
    "by doubles",
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
        "--gpu",
        choices=GPUS,
        nargs="+",
        default=["h200", "h100"],
        help="GPUs of one architecture; bounds are shown for the first",
    )
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
    gpus = [GPUS[name] for name in given.gpu]
    kernels = compiled(
        given.compiler, given.include, gpus[0].architecture, given.source, disassembler
    )
    rows, predicted = table(kernels, gpus)
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
