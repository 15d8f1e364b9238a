#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the machine code of the kernels says about their speed, without a GPU.

Compiles kernels with nvcc, reads them with cuobjdump, and follows the path that a thread takes
where everything is there: of a loop one iteration, of two ways the one that moves more elements.
Counts instructions per element of the output and the bytes that a thread has asked for before it
waits for any of them. From these, and from the limits of a GPU, follows a bound on the fraction of
the streaming twin's speed. It is a count, not a measurement: caches, banks, clocks and waits of one
block for another are left out, and so are kernels with a ring, whose loops are nested.

    pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm   # where the toolkit lacks them
    bench/gpu/machine_code.py --markdown
"""
import argparse
import dataclasses
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
    """An H200: figures of its data sheet, but for those that are marked."""
    multiprocessors: int = 132
    clock: float = 1.755e9
    schedulers: int = 4
    issue: float = 0.7           # assumed: instructions per scheduler and clock that real code gets
    twin: float = 4.25e12        # assumed: bytes a second of the streaming twin
    latency: float = 0.75e-6     # assumed: of memory under load
    registers: int = 65536
    warps: int = 64
    shared: int = 227 * 1024     # 1 KiB more is taken by every block


@dataclasses.dataclass(frozen=True)
class Workload:
    """A call: which kernel runs it, and how many blocks of what."""
    name: str
    kernel: str       # as resources.py prints it
    reads: int        # bytes per element
    writes: int
    outputs: int      # arrays that are written
    sequences: int
    steps: int
    threads: int      # of a block
    shared: int = 0   # bytes of a block
    steps_of_thread: int = 0   # of look_back; 0: all of them
    staged: bool = False       # through shared memory, tile by tile

    @property
    def blocks(self):
        threads = self.sequences * (-(-self.steps // self.steps_of_thread)
                                    if self.steps_of_thread else 1)
        return -(-threads // self.threads)


# Shared memory of tiles as docs/cuda.md says it: that are staged or not.
MAPS, STAGED = 14 * 1024, 47 * 1024
FLOATS, SMALL = "float, float, float", "bfloat16, bfloat16, bfloat16"
WORKLOADS = (
    Workload("f32 (32, 4096, 1024)", f"walk_lanes<forward<{FLOATS}>, plain>", 8, 4, 1,
             32 * 1024, 4096, 128),
    Workload("bf16 (32, 4096, 2048)", f"walk_lanes<forward<{SMALL}>, plain>", 4, 2, 1,
             32 * 2048, 4096, 128),
    Workload("f32 (1, 2^21, 256)", f"walk_tiles<forward<{FLOATS}>, plain>", 8, 4, 1,
             256, 1 << 21, 256, MAPS, 16),
    Workload("f32 (8, 4096, 64)", f"walk_tiles<forward<{FLOATS}>, plain>", 8, 4, 1,
             512, 4096, 256, MAPS, 16),
    Workload("f32 (8, 65536, 1536) along time", f"walk_tiles<forward<{FLOATS}>, plain>", 8, 4, 1,
             8 * 1536, 65536, 256, STAGED, 16, True),
    Workload("f32 2^28, one sequence", f"walk_tiles<forward<{FLOATS}>, plain>", 8, 4, 1,
             1, 1 << 28, 256, STAGED, 16, True),
    Workload("bf16 QRNN (32, 4096, 3 x 1024)",
             "walk_lanes<gated_forward<fo_pooling<tanh, sigmoid>, bfloat16, bfloat16, "
             "output_field<bfloat16> >, plain>", 6, 4, 2, 32 * 1024, 4096, 128),
)


# ---- reading ------------------------------------------------------------------------------------

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,5})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z0-9_.]+)\s*(.*?)\s*;")
REGISTER = re.compile(r"\bR(\d+)(?:\.64)?\b")


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def name(self):
        return self.opcode.split(".")[0]

    @property
    def target(self):
        found = re.search(r"0x([0-9a-f]+)", self.operands)
        return int(found[1], 16) if self.name == "BRA" and found else None

    @property
    def width(self):
        """Bytes of a thread that a load or store moves."""
        for bits in ("128", "64", "U16", "S16", "U8", "S8"):
            if f".{bits}" in self.opcode:
                return int(re.sub(r"\D", "", bits)) // 8
        return 4


def functions(listing):
    """Of a listing of cuobjdump: instructions by the name of their function."""
    found = {}
    for part in listing.split("Function : ")[1:]:
        lines = part.splitlines()
        body = [INSTRUCTION.match(line) for line in lines]
        found[lines[0].strip()] = [Instruction(int(m[1], 16), m[2] or "", m[3], m[4])
                                   for m in body if m]
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
    return bool(branch.predicate) or branch.operands.startswith(("P", "!P", "UP", "!UP"))


#: What speaks for a way, and against it: messages apart, steps are loaded and stored by generic
#: addresses where a kernel can stage them, by global ones where it copies, or cannot.
ANY = {"LDG": 1, "LDGSTS": 1, "STG": 1, "LD": 1, "ST": 1}
STAGES = {"LDG": -1, "LDGSTS": 1, "STG": 1, "LD": 1, "ST": 1}
DOES_NOT = {"LDG": -1, "LDGSTS": -1, "STG": -1, "LD": 1, "ST": 1}


def worth(instructions, weights):
    return sum(weights.get(i.name, 0) for i in instructions if "STRONG" not in i.opcode)


def length(instructions):
    """Instructions; what is called is for numbers that are rare, and longer than it looks."""
    return len(instructions) + 100 * sum(i.name == "CALL" for i in instructions)


def best_path(blocks, follows, start, stop=None, weights=ANY):
    """From a block on to an end, or back to `stop`, each block once: the instructions on the way
    that moves most elements, and of such the shortest."""
    best, under_way = {}, set()

    def search(at):
        if at in best:
            return best[at]
        if at in under_way:
            return None
        under_way.add(at)
        rest = []
        for after in follows[at]:
            found = (0, 0, []) if after == stop else search(after)
            if found is not None:
                rest.append(found)
        under_way.discard(at)
        if not rest and (follows[at] or stop is not None):
            return None
        ahead = max(rest, key=lambda r: (r[0], -r[1]), default=(0, 0, []))
        own = blocks[at]
        best[at] = (ahead[0] + worth(own, weights), ahead[1] + length(own), [at] + ahead[2])
        return best[at]

    found = search(start)
    return [i for at in found[2] for i in blocks[at]] if found else []


def loops_of(follows, start):
    """Loops, by the block that they begin with: the blocks from which it is reached again."""
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
                    reached += comes_from[block]
        elif then not in seen:
            seen.add(then)
            under_way.append(then)
            stack.append((then, iter(follows[then])))
    return loops


def hot_loop(blocks, follows):
    """One iteration of the loop that stores most, of those that hold no other."""
    loops = loops_of(follows, min(blocks))
    inner = [head for head, body in loops.items() if not any(h != head and h in body for h in loops)]
    bodies = []
    for head in inner:
        within = {at: [then for then in follows[at] if then in loops[head]] for at in loops[head]}
        bodies.append(best_path(blocks, within, head, head))
    return max(bodies, key=lambda body: (stores(body), -length(body)), default=[])


def stores(path):
    return sum(i.name in ("STG", "ST") for i in path)


# ---- counting -----------------------------------------------------------------------------------


def most_in_flight(path, staged=False):
    """The most bytes of loads that a thread has asked for and has not waited for."""
    waiting, groups, open_group, most = {}, [], 0, 0
    for i in path:
        registers = [int(r) for r in REGISTER.findall(i.operands)]
        loads = i.name == "LDG" or (i.name == "LD" and not staged)
        for register in registers[1:] if loads else registers:
            waiting.pop(register, None)
        if loads:
            waiting[registers[0]] = i.width
        elif i.name == "LDGSTS":
            open_group += i.width
        elif i.name == "LDGDEPBAR":
            groups.append(open_group)
            open_group = 0
        elif i.name == "DEPBAR":
            left = int(i.operands.split(",")[1], 16)
            groups = groups[len(groups) - left:] if left < len(groups) else groups
        most = max(most, sum(waiting.values()) + sum(groups) + open_group)
    return most


@dataclasses.dataclass
class Count:
    instructions: float   # per element of one output
    in_flight: int        # bytes of a thread
    registers: int


def count(workload, code, registers):
    blocks, follows = blocks_of(code)
    if workload.steps_of_thread:
        path = best_path(blocks, follows, code[0].address,
                         weights=STAGES if workload.staged else DOES_NOT)
        steps = workload.steps_of_thread
    else:
        path = hot_loop(blocks, follows)
        steps = stores(path) / workload.outputs
    if not steps:
        sys.exit(f"{workload.kernel}: no loop that stores")
    # A loop asks in one iteration for what the next takes.
    again = path if workload.steps_of_thread else path + path
    return Count(len(path) / steps, most_in_flight(again, workload.staged), registers)


def prediction(workload, counted, gpu):
    """Blocks at a time, KiB in flight of a multiprocessor, and the bounds on the fraction."""
    warps = -(-workload.threads // 32)
    of_registers = gpu.registers // (-(-counted.registers // 8) * 8 * 32) // warps
    of_shared = gpu.shared // (workload.shared + 1024)
    together = max(1, min(of_registers, of_shared, gpu.warps // warps))
    resident = min(together, workload.blocks / gpu.multiprocessors)
    flight = resident * workload.threads * counted.in_flight
    moved = workload.reads + workload.writes
    wanted = gpu.latency * gpu.twin / gpu.multiprocessors * workload.reads / moved
    elements = workload.sequences * workload.steps
    memory = elements * moved / gpu.twin
    issue = (elements / 32 * counted.instructions /
             (gpu.multiprocessors * gpu.schedulers * gpu.clock * gpu.issue))
    waves = workload.blocks / (together * gpu.multiprocessors)
    by_waves = waves / -(-waves // 1) if waves > 1 else 1.0
    bounds = {"latency": flight / wanted, "issue": memory / issue, "waves": by_waves}
    return together, flight / 1024, bounds


# ---- the table ----------------------------------------------------------------------------------


def compiled(compiler, includes, architecture, source, disassembler):
    """Registers and code of the kernels of a source, by their readable names."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/kernels.cubin"
        done = subprocess.run(
            [compiler, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "--resource-usage", "-cubin",
             f"-arch={architecture}", "-o", cubin, *(f"-I{i}" for i in includes), str(source)],
            capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        # cuobjdump looks for nvdisasm in PATH.
        path = f"{pathlib.Path(disassembler).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        listing = subprocess.run([disassembler, "-sass", cubin], env={**os.environ, "PATH": path},
                                 capture_output=True, text=True, check=True).stdout
    used = re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers",
                      done.stdout + done.stderr, re.S)
    code = functions(listing)
    return {readable(name): (int(registers), code[name]) for name, registers in used}


def table(kernels, gpu):
    rows = []
    for workload in WORKLOADS:
        registers, code = kernels[workload.kernel]
        counted = count(workload, code, registers)
        together, flight, bounds = prediction(workload, counted, gpu)
        limit = min(bounds, key=bounds.get)
        rows.append((workload.name, workload.kernel.split("<")[0], registers, together,
                     f"{counted.instructions:.0f}", f"{flight:.0f}",
                     *(f"{min(bounds[b], 9.99):.2f}" for b in ("latency", "issue", "waves")),
                     "memory" if bounds[limit] > 0.99 else limit))
    return rows


HEAD = ("workload", "kernel", "registers", "blocks of an SM", "instructions per element",
        "KiB in flight of an SM", "by latency", "by issue", "by waves", "limit")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="nvcc")
    parser.add_argument("--disassembler", default="cuobjdump")
    parser.add_argument("--include", nargs="+", default=[str(ROOT / "include")])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--source", type=pathlib.Path,
                        default=ROOT / "tests" / "cuda" / "default_kernels.cu")
    parser.add_argument("--markdown", action="store_true", help="a table for a document")
    given = parser.parse_args()
    disassembler = shutil.which(given.disassembler)
    if not disassembler:
        sys.exit(f"no {given.disassembler}; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, "
                 "and say --disassembler .../nvidia/cu13/bin/cuobjdump")
    kernels = compiled(given.compiler, given.include, given.architecture, given.source, disassembler)
    rows = [HEAD, *table(kernels, Gpu())]
    if given.markdown:
        rows.insert(1, ("---",) * len(HEAD))
        for row in rows:
            print("|", " | ".join(map(str, row)), "|")
        return
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(HEAD))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)))


if __name__ == "__main__":
    main()
