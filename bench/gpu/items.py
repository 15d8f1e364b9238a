# SPDX-License-Identifier: BSD-3-Clause
"""The tests and benchmarks (items) of each stage, in order of importance."""

from dataclasses import dataclass

# Time limits of the stages, in seconds.
STAGES = {"first": 265, "second": 330}
# Kinds of items, which bench/gpu/run.sh selects by name.
PARTS = ("facts", "tests", "sanitizers", "bench", "profiles", "peers", "python")

# Programs whose tests each run in their own process.
SEPARATELY = (
    "linear_scan_test",
    "gated_scan_typed_gpu",
    "look_back_stress_gpu",
    "device_test_gpu",
)
WORKLOADS = (
    "small",
    "channels_last",
    "time_contiguous",
    "two_million_steps",
    "one_sequence",
    "bfloat16",
    "complex_lambda",
    "qrnn_packed",
)
ROOFS = "device_copy|copy_baseline"
NO_PREALLOCATION = ("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@dataclass(frozen=True)
class Item:
    """A program and the tests or rows that it runs, or any command."""

    stage: str
    part: str
    name: str
    limit: int  # seconds after which it is killed
    likely: int  # expected seconds; the item does not start with less time left
    until: int = 0  # latest end, in seconds after the stage began; 0: no limit
    program: str = ""
    chosen: str = ""  # a Catch2 filter for tests, a regular expression for benchmark rows
    tests: tuple = ()  # names of tests: run only these
    under: str = ""  # tool: memcheck, racecheck or ncu
    more: tuple = ()  # arguments of the program, or of ncu
    words: tuple = ()  # the command; {scripts}, {package}, {out} are folders
    says: tuple = ()  # regular expressions; the item fails unless its output matches all
    modules: str = ""  # Python modules that it needs
    wants: str = ""  # element types whose tests the program must contain
    environment: tuple = ()  # (name, value) of variables; if a name ends with PATH, the value is prepended

    @property
    def benchmark(self):
        return self.program.startswith("bench_")

    @property
    def alone(self):
        """Whether no other item may run at the same time."""
        if self.part == "tests":
            return self.benchmark or self.program == "look_back_stress_gpu"
        return self.part not in ("sanitizers", "python")

    @property
    def separately(self):
        """Whether each test has its own process, so that a test that hangs or leaves the GPU in an
        error state does not end the others."""
        return self.program in SEPARATELY and not self.under


def facts():
    query = (
        "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current,power.limit"
    )
    versions = (
        "import importlib.metadata as m\n"
        "for name in 'torch jax jaxlib triton cupy-cuda13x numpy pytest'.split():\n"
        "    try: print('version:', name, m.version(name))\n"
        "    except m.PackageNotFoundError: print('version:', name, 'absent')"
    )
    for name, words in (
        ("gpu", ("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")),
        ("gpu in full", ("nvidia-smi", "-q")),
        ("nvcc", ("nvcc", "--version")),
        ("ncu", ("ncu", "--version")),
        ("cpu", ("lscpu",)),
        ("libc", ("ldd", "--version")),
        ("python", ("{python}", "-c", versions)),
    ):
        yield Item("first", "facts", f"facts {name}", 15, 1, words=words)


def battery(stage, kind, until):
    gated = kind.startswith("gated")
    return Item(
        stage,
        "tests",
        f"battery {kind}",
        100,
        12,
        until,
        wants=kind,
        program="gated_scan_typed_gpu" if gated else "linear_scan_test",
        chosen=f"[{kind}][backends]" + ("" if gated else f",[{kind}][cuda_lanes]"),
        environment=(("SCANREC_TEST_BACKENDS", "cuda"),),
    )


def rows(stage, name, variants, workloads, until, calls="forward|vjp"):
    """Make an item per workload. Each item also times the device copy and the copy baseline."""
    for workload in workloads:
        qrnn = workload == "qrnn_packed"
        names = "forward_store|vjp_store" if qrnn else calls
        yield Item(
            stage,
            "bench",
            f"{name} {workload}",
            40,
            8,
            until,
            program=f"bench_gpu_{'gated' if qrnn else 'linear'}_scan",
            chosen=f"^{workload}/({ROOFS}|{variants})/(copy|{names})/",
        )


def python_tests(file):
    return Item(
        "first",
        "python",
        f"python {file}",
        90,
        30,
        words=(
            "{python}",
            "-m",
            "pytest",
            "-v",
            "-rsfE",
            "-p",
            "no:cacheprovider",
            f"{{package}}/tests/{file}.py",
        ),
        says=(
            "test_pytorch_on_a_gpu_equals_the_cpu PASSED",
            "test_jax_on_a_gpu_equals_the_cpu PASSED",
        ),
        modules="numpy pytest scanrec",
        environment=(NO_PREALLOCATION,),
    )


def peer(name, modules):
    return Item(
        "second",
        "peers",
        f"peer {name}",
        50,
        25,
        290,
        words=(
            "{python}",
            "{scripts}/peers.py",
            "--only",
            f"^{name}$",
            "--limit",
            "45",
            "--out",
            f"{{out}}/rows/peer_{name}.json",
        ),
        says=(r"\d ms ",),
        modules=modules,
        environment=(NO_PREALLOCATION, ("PYTHONPATH", "{site}")),
    )


def profiled(workload):
    """Profile one look_back launch after warm-up."""
    return Item(
        "second",
        "profiles",
        f"profile {workload}",
        40,
        15,
        program="bench_gpu_linear_scan",
        chosen=f"^{workload}/look_back/forward/",
        under="ncu",
        more=(
            "--kernel-name",
            "regex:.*run_tiles<.*",
            "--launch-skip",
            "6",
            "--launch-count",
            "1",
        ),
        says=(r"smsp__issue_active\.avg\.per_cycle_active",),
    )


def first():
    yield from facts()
    yield Item(
        "first",
        "tests",
        "smallest kernels",
        40,
        4,
        program="bench_gpu_linear_scan",
        chosen=f"^small/({ROOFS}|lanes|look_back|automatic)/",
        more=("--quick", "--check"),
    )
    yield Item(
        "first",
        "tests",
        "look_back stress",
        40,
        4,
        75,
        program="look_back_stress_gpu",
        chosen="[protocol]",
    )
    for kind in (
        "uint32",
        "float",
        "bfloat16",
        "complex_float",
        "gated_exact",
        "gated_float",
        "gated_bfloat16",
    ):
        yield battery("first", kind, until=140)
    yield from rows(
        "first",
        "default",
        "automatic|look_back",
        (
            "channels_last",
            "time_contiguous",
            "two_million_steps",
            "one_sequence",
            "bfloat16",
            "qrnn_packed",
        ),
        until=205,
    )
    for file in ("test_cuda", "test_cuda_selective"):
        yield python_tests(file)
    for tool in ("memcheck", "racecheck"):
        yield Item(
            "first",
            "sanitizers",
            f"{tool} smallest kernels",
            45,
            25,
            program="bench_gpu_linear_scan",
            chosen="^small/(lanes|look_back|automatic)/",
            under=tool,
            more=("--quick", "--check"),
            says=("SUMMARY: 0 (errors|hazards)",),
        )


def second():
    for name in ("few", "few_bfloat16", "many", "many_bfloat16"):
        yield Item(
            "second",
            "bench",
            f"rows selective_{name}",
            30,
            4,
            190,
            program="bench_gpu_selective_scan",
            chosen=f"^selective_{name}/",
        )
    yield from rows("second", "default", "automatic|look_back", ("small", "complex_lambda"), 190)
    yield from rows(
        "second", "lanes", "lanes|lanes_registers|lanes_ring|plain_loop", WORKLOADS, 190
    )
    yield from rows(
        "second", "comparison", "hillis_steele|blelloch|triangular_matmul|cub", WORKLOADS, 190
    )
    yield from rows(
        "second",
        "CUB",
        "cub_pairs|cub_pairs_packed|block_per_sequence",
        ("time_contiguous", "one_sequence"),
        190,
    )
    for kind in ("double", "float16", "complex_double"):
        yield battery("second", kind, until=240)
    yield Item(
        "second",
        "tests",
        "numerics",
        100,
        12,
        240,
        program="linear_scan_test",
        chosen="[numerics][backends],[numerics][cuda_lanes],[numerics][nan]",
        wants="float double complex_double uint32",
    )
    yield peer("torch.associative_scan", "torch")
    yield peer("lax.associative_scan", "jax")
    yield peer("accelerated_scan.triton", "torch accelerated_scan")
    # This item uses managed memory, which can hang a GPU, so only the profiles come after it.
    yield Item(
        "second",
        "tests",
        "graphs and state spaces",
        40,
        10,
        program="device_test_gpu",
        environment=(("LD_LIBRARY_PATH", "{cublas}"),),
    )
    for workload in ("one_sequence", "time_contiguous"):
        yield profiled(workload)


ITEMS = [*first(), *second()]
