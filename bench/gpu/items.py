# SPDX-License-Identifier: BSD-3-Clause
"""What is run on a machine with a GPU, item by item, in the order in which it is worth knowing."""
from dataclasses import dataclass

# Stages of a run without the sources, each for less than ten minutes.
STAGES = {"first": "the GPU, uint32 and float on it, memcheck, racecheck",
          "more": "the other types, gated scans, graphs, synccheck, rows of lanes",
          "look_back": "rows of look_back and of the default; a profile of every kernel",
          "others": "rows of backends for comparison and of peers; the Python package; the CPU"}
# Parts, by which a run in the sources names the same items.
PARTS = ("facts", "tests", "sanitizers", "bench", "profiles", "peers", "python", "cpu")

SEPARATELY = ("linear_scan_battery", "gated_scan_battery_gpu", "numerics_test", "device_test_gpu")
# What the summary of a stage quotes of an item of that part.
QUOTED = {"facts": r"Product Name|Driver Version|CUDA Version|release|[Vv]ersion|Model name|^CPU\(s\)|"
                   r"ldd|^(Graphics|SM|Memory|Total) :|Current",
          "tests": r"assertions? in|^[a-z_]+/\S+ ", "sanitizers": r"SUMMARY|^[a-z_]+/\S+ ",
          "bench": r"^[a-z_]+/\S+ ", "peers": r"^[a-z_]+/\S+ ", "cpu": r"^[a-z_]+/\S+ ",
          "python": r" (passed|failed|skipped)|on_a_gpu",
          "profiles": r"gpu__time_duration\.sum|smsp__issue_active\.avg\.per_cycle_active|"
                      r"stalled_(long_scoreboard|barrier|wait)_per_issue_active\.ratio|"
                      r"dram_?_throughput\.avg\.pct|warps_active\.avg\.pct|registers_per_thread"}
SOUND = r"SUMMARY: 0 (errors|hazards)"  # of compute-sanitizer
WORKLOADS = ("small", "channels_last", "time_contiguous", "two_million_steps", "one_sequence",
             "bfloat16", "complex_lambda", "qrnn_packed")


@dataclass(frozen=True)
class Item:
    """A program of ours with the tests or the rows that `chosen` selects; or `words`, a command."""
    stage: str
    part: str
    name: str
    limit: int            # seconds after which it is killed
    likely: int           # seconds that it takes; with less time left it is not begun
    program: str = ""     # tests take a filter of Catch2, benchmarks a regular expression
    chosen: str = ""
    under: str = ""       # a tool that the program runs under: a tool of compute-sanitizer, or ncu
    more: tuple = ()      # arguments of the program, or of ncu
    words: tuple = ()     # {scripts}, {package} and {out} are folders, {python} a command
    threads: int = 0      # of OpenMP; 0: as many as it takes
    says: str = ""        # what its output must match, or it has failed
    modules: str = ""     # of Python, without which it is left out
    wants: str = ""       # element types, or a pair of the batteries: left out where not built

    @property
    def benchmark(self):
        return self.program.startswith("bench_")

    @property
    def alone(self):
        """Whether others at the same time would change what it finds."""
        if self.part == "tests":
            return self.benchmark  # the smallest kernels: if they hang, nothing else will run
        return self.part != "sanitizers"

    @property
    def separately(self):
        """Whether every test has a process of its own: where one hangs, or leaves the GPU in an
        error, the others still say something."""
        return self.program in SEPARATELY and not self.under


def facts():
    for name, words in (("gpu", ("nvidia-smi", "-q", "-d", "CLOCK,MEMORY,ECC,POWER,PERFORMANCE")),
                        ("driver", ("nvidia-smi",)), ("nvcc", ("nvcc", "--version")),
                        ("sanitizer", ("compute-sanitizer", "--version")),
                        ("profiler", ("ncu", "--version")), ("cpu", ("lscpu",)),
                        ("libc", ("ldd", "--version"))):
        yield Item("first", "facts", f"facts {name}", 20, 2, words=words)


def smallest():
    yield Item("first", "tests", "smallest kernels", 60, 10, program="bench_gpu_linear_scan",
               chosen="^small/(device_copy|streaming_twin|lanes|look_back|automatic)/",
               more=("--quick", "--check"))


def battery(stage, kind):
    return Item(stage, "tests", f"battery {kind}", 100, 12, program="linear_scan_battery",
                chosen=f"[{kind}][backends],[{kind}][cuda_lanes]", wants=kind)


def gated(kind):
    return Item("more", "tests", f"battery {kind}", 100, 12, program="gated_scan_battery_gpu",
                chosen=f"[{kind}][backends]", wants=kind)


def sanitized(stage, tool):
    yield Item(stage, "sanitizers", f"{tool} smallest workload", 200, 60,
               program="bench_gpu_linear_scan", chosen="^small/", under=tool,
               more=("--quick", "--check"), says=SOUND)
    # Every backend, every layout, few shapes.
    for test in ("in place", "none stands for what is absent"):
        yield Item(stage, "sanitizers", f"{tool} {test}", 240, 90, program="linear_scan_battery",
                   chosen=f"float: {test}", under=tool, wants="float",
                   says=SOUND)


def rows(stage, name, variants, workloads=WORKLOADS):
    """The rows of some variants, a process per workload; the references are computed in each."""
    for workload in workloads:
        program = f"bench_gpu_{'gated' if workload == 'qrnn_packed' else 'linear'}_scan"
        yield Item(stage, "bench", f"{name} {workload}", 120, 15, program=program,
                   chosen=f"^{workload}/({variants})/")


def profiled(kernel, row, program="bench_gpu_linear_scan", skipped=6):
    """One launch of those whose body has that name, behind as many as warm up."""
    yield Item("look_back", "profiles", f"profile {row} {kernel}", 90, 20, program=program,
               chosen=f"^{row}/", under="ncu",
               more=("--kernel-name", f"regex:.*{kernel}<.*", "--launch-skip", str(skipped),
                     "--launch-count", "1"), says=r"gpu__time_duration\.sum")


def first():
    yield from facts()
    yield from smallest()
    for kind in ("uint32", "float"):
        yield battery("first", kind)
    for tool in ("memcheck", "racecheck"):
        yield from sanitized("first", tool)


def more():
    yield Item("more", "tests", "graphs and state spaces", 90, 15, program="device_test_gpu")
    for kind in ("gated_exact", "gated_float", "gated_bfloat16"):
        yield gated(kind)
    for kind in ("bfloat16", "complex_float", "double", "float16", "complex_double"):
        yield battery("more", kind)
    yield Item("more", "tests", "numerics", 100, 12, program="numerics_test",
               chosen="[numerics][backends],[numerics][cuda_lanes],[numerics][nan]",
               wants="float double complex_double uint32")
    yield from sanitized("more", "synccheck")
    yield from rows("more", "lanes",
                    "device_copy|streaming_twin|lanes|lanes_registers|lanes_ring|plain_loop")


def selective():
    for name in ("few", "few_bfloat16", "many", "many_bfloat16"):
        yield Item("look_back", "bench", f"selective scans, {name}", 120, 15,
                   program="bench_gpu_selective_scan", chosen=f"^selective_{name}/")


def look_back():
    yield from selective()
    yield from rows("look_back", "default", "automatic|look_back")
    for workload in ("channels_last", "time_contiguous"):
        for kernel, variant in (("walk_lanes", "lanes_registers"), ("walk_ring", "lanes_ring"),
                                ("walk_tiles", "look_back")):
            for call in ("forward", "vjp"):
                if workload == "channels_last" or variant == "look_back":
                    yield from profiled(kernel, f"{workload}/{variant}/{call}")
    for call in ("forward", "vjp"):
        yield from profiled("walk_tiles", f"one_sequence/look_back/{call}")
        yield from profiled("walk_tiles", f"bfloat16/look_back/{call}")
    for kernel, variant in (("walk_lanes", "lanes_registers"), ("walk_tiles", "look_back")):
        for call in ("forward_store", "vjp_store"):
            yield from profiled(kernel, f"qrnn_packed/{variant}/{call}", "bench_gpu_gated_scan")


def others():
    yield from rows("others", "comparison", "hillis_steele|blelloch|triangular_matmul|cub")
    yield from rows("others", "CUB", "cub_pairs|cub_pairs_packed|block_per_sequence",
                    workloads=("time_contiguous", "one_sequence"))
    yield Item("others", "python", "Python package", 180, 60,
               words=("{python}", "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider",
                      "{package}/tests/test_cuda.py", "{package}/tests/test_cuda_selective.py"),
               says=r"test_(pytorch|jax)_on_a_gpu PASSED", modules="numpy pytest scanrec")
    yield Item("others", "peers", "peers in Python", 300, 150,
               words=("{python}", "{scripts}/peers.py", "--limit", "45", "--out",
                      "{out}/rows/peers.json"))
    for threads in (0, 1, 4):
        yield Item("others", "cpu", f"CPU, threads: {threads or 'all'}", 90, 25,
                   program="bench_linear_scan", threads=threads, more=("--quick",),
                   chosen="^(channels_last|time_contiguous|few_channels|one_sequence)/")


ITEMS = [*first(), *more(), *look_back(), *others()]
