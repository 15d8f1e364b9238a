# SPDX-License-Identifier: BSD-3-Clause
"""Linear attention on CPUs: scanrec against onnxruntime and the PyTorch code of transformers, and, if
installed, against OpenVINO and ExecuTorch.

onnxruntime runs its operator LinearAttention of the domain com.microsoft with bound inputs and outputs. Its
ONNX operator of the same name is several times slower. transformers' torch_chunk_gated_delta_rule is the code
of Qwen3-Next without kernels for GPUs. OpenVINO runs its operation GatedDeltaNet, and ExecuTorch its operator
llama::gated_delta_rule; both have only delta rules. scanrec is called through a C library of bench/CMakeLists.txt:
    cmake --build build/bench --target bench_linear_attention_calls
    pip install onnxruntime onnx torch transformers openvino
    pip install --no-deps executorch
    python bench/python/linear_attention.py --library build/bench/bench/bench_linear_attention_calls.so
All ways compute in float32, and return the final state. A packed array has the shape (batch, time, heads,
d). ExecuTorch has another layout, and gets copies of these arrays. Before the measurement, all results are
compared with those of scanrec.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import math
import pathlib
import time

import numpy as np
import onnxruntime
import records
import torch
import transformers
from onnx import TensorProto, helper
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

try:
    import openvino
    from openvino.utils.node_factory import NodeFactory
except ImportError:
    openvino = None
try:  # the only interface to the number of threads
    from executorch.extension.pybindings import _C as executorch_runtime
except ImportError:
    executorch_runtime = None

#: (batch, time, heads, d) of queries, keys and values.
SHAPES = (
    (1, 2048, 16, 128),
    (1, 2048, 32, 64),
    (8, 512, 16, 128),
    (1, 16384, 4, 128),
    (1, 2048, 1, 128),
    (1, 1, 32, 128),
)
INPUTS = ("query", "key", "value", "gate", "beta")
TOLERANCE = 1e-4  # of differences, relative to the largest number of an array


def keep_memory():
    """Let glibc keep freed memory, as the C++ benchmarks do. Otherwise PyTorch's large temporary arrays
    take new pages in every call."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    m_trim_threshold, m_mmap_max = -1, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, 2**31 - 1)


def aligned(shape, alignment):
    """An array whose address is `alignment` plus a multiple of 4096 bytes."""
    size = 4 * math.prod(shape)
    memory = np.zeros(size + 8192, np.uint8)
    start = (alignment - memory.ctypes.data) % 4096
    return memory[start : start + size].view(np.float32).reshape(shape)


@dataclasses.dataclass
class Problem:
    """The arrays of a call. Gates are logarithms. Keys have a length of 1, as in most models."""

    shape: tuple[int, int, int, int]
    rule: str
    alignment: int

    def __post_init__(self):
        batch, time, heads, d = self.shape
        random = np.random.default_rng(0)
        key = random.standard_normal(self.shape)
        given = {
            "query": random.standard_normal(self.shape),
            "key": key / np.linalg.norm(key, axis=-1, keepdims=True),
            "value": random.standard_normal(self.shape),
            "out_grad": random.standard_normal(self.shape),
        }
        if "gated" in self.rule:
            shape = self.shape if self.rule.startswith("key_") else (batch, time, heads)
            given["gate"] = -0.1 * random.random(shape)
        if "delta" in self.rule:
            given["beta"] = random.random((batch, time, heads))
        if time == 1:  # a stream that goes on
            given["initial_state"] = random.standard_normal((batch, heads, d, d))
        self.arrays = {name: self.copy(x) for name, x in given.items()}

    def copy(self, x):
        array = aligned(x.shape, self.alignment)
        array[...] = x
        return array

    def new(self, name):
        """An array for a result: the output, the final state, or the gradient of an input."""
        batch, _, heads, d = self.shape
        if name == "final_state":
            return aligned((batch, heads, d, d), self.alignment)
        like = "query" if name == "out" else name.removesuffix("_grad")
        return aligned(self.arrays[like].shape, self.alignment)

    def inputs(self):
        return [name for name in INPUTS if name in self.arrays]


class Call(ctypes.Structure):
    """attention_call<float> of bench/linear_attention_call.hpp."""

    numbers = ("batch", "time", "heads", "d", "gate_channels")
    pointers = ("query", "key", "value", "gate", "beta", "out", "out_grad", "query_grad", "key_grad",
                "value_grad", "gate_grad", "beta_grad", "initial_state", "final_state")  # fmt: skip
    _fields_ = (
        *((name, ctypes.c_int64) for name in numbers),
        *((name, ctypes.c_void_p) for name in pointers),
    )


class Scanrec:
    def __init__(self, library, problem, threads):
        self.function = ctypes.CDLL(str(library)).bench_linear_attention
        self.function.restype = ctypes.c_char_p
        self.threads = threads
        self.value_results = {name: problem.new(name) for name in ("out", "final_state")}
        self.gradient_results = {f"{x}_grad": problem.new(f"{x}_grad") for x in problem.inputs()}
        arrays = {
            x: problem.arrays[x]
            for x in (*problem.inputs(), "initial_state")
            if x in problem.arrays
        }
        self.forward = self.call(problem, arrays | self.value_results)
        adjoint = arrays | self.gradient_results | {"out_grad": problem.arrays["out_grad"]}
        self.adjoint = self.call(problem, adjoint)

    def call(self, problem, arrays):
        given = {name: array.ctypes.data for name, array in arrays.items()}
        channels = problem.shape[3] if problem.rule.startswith("key_") else 1
        return Call(**dict(zip(Call.numbers, (*problem.shape, channels))), **given)

    def run(self, call):
        error = self.function(ctypes.byref(call), self.threads)
        if error:
            raise RuntimeError(error.decode())

    def value(self):
        self.run(self.forward)
        return self.value_results

    def gradient(self):
        self.run(self.forward)
        self.run(self.adjoint)
        return self.gradient_results


class OnnxRuntime:
    names = {"gate": "decay", "initial_state": "past_state"}

    def __init__(self, problem, threads):
        batch, steps, heads, d = problem.shape
        packed = (batch, steps, heads * d)
        order = ("query", "key", "value", "initial_state", "gate", "beta")
        self.results = {name: problem.new(name) for name in ("out", "final_state")}
        given = {x: problem.arrays[x] for x in order if x in problem.arrays}

        def described(name, array):
            shape = packed if array.shape == problem.shape else array.shape
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        inputs = [name if name in given else "" for name in order]
        while not inputs[-1]:
            inputs.pop()
        node = helper.make_node(
            "LinearAttention", inputs, list(self.results), domain="com.microsoft",
            q_num_heads=heads, kv_num_heads=heads, scale=d**-0.5,
            update_rule=problem.rule.removeprefix("key_"),
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "linear_attention",
            [described(name, array) for name, array in given.items()],
            [described(name, array) for name, array in self.results.items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
            ir_version=8,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        self.bound = self.session.io_binding()
        for bind, arrays in (
            (self.bound.bind_input, given),
            (self.bound.bind_output, self.results),
        ):
            for name, array in arrays.items():
                shape = packed if array.shape == problem.shape else array.shape
                bind(name, "cpu", 0, np.float32, shape, array.ctypes.data)

    def value(self):
        self.session.run_with_iobinding(self.bound)
        return self.results


class Transformers:
    """The delta rules, without gates per key. The others have no function of their own in transformers."""

    def __init__(self, problem, threads):
        self.threads = threads
        self.given = {x: torch.from_numpy(problem.arrays[x]) for x in problem.inputs()}
        self.gate = torch.zeros(problem.shape[:3])
        self.out_grad = torch.from_numpy(problem.arrays["out_grad"])
        self.state = problem.arrays.get("initial_state")
        self.state = None if self.state is None else torch.from_numpy(self.state)
        one_step = problem.shape[1] == 1
        self.function = (
            qwen3_next.torch_recurrent_gated_delta_rule
            if one_step
            else qwen3_next.torch_chunk_gated_delta_rule
        )

    def run(self, query, key, value, beta, gate=None):
        torch.set_num_threads(self.threads)
        gate = self.gate if gate is None else gate
        return self.function(
            query, key, value, gate, beta, initial_state=self.state, output_final_state=True
        )

    def value(self):
        with torch.no_grad():
            out, state = self.run(**self.given)
        return {"out": out.numpy(), "final_state": state.numpy()}

    def gradient(self):
        given = {name: x.detach().requires_grad_() for name, x in self.given.items()}
        out, _ = self.run(**given)
        grads = torch.autograd.grad(out, list(given.values()), self.out_grad)
        return {f"{name}_grad": grad.numpy() for name, grad in zip(given, grads)}


class OpenVino:
    """The delta rules, without gates per key. OpenVINO 2026.4 cannot read the ONNX operator, so the model is one
    operation GatedDeltaNet, which its CPU plugin for x86 contains. With one thread, it runs in the thread of the
    caller."""

    order = ("query", "key", "value", "initial_state", "gate", "beta")

    def __init__(self, problem, threads):
        self.results = {name: problem.new(name) for name in ("out", "final_state")}
        zeros = {
            "initial_state": problem.new("final_state"),
            "gate": aligned(problem.shape[:3], problem.alignment),
        }
        self.given = [(zeros | problem.arrays)[name] for name in self.order]
        libraries = pathlib.Path(openvino.__file__).parent / "libs"
        factory = NodeFactory()
        factory.add_extension(str(libraries / "libopenvino_intel_cpu_plugin.so"))
        inputs = [
            openvino.op.Parameter(openvino.Type.f32, openvino.Shape(x.shape)) for x in self.given
        ]
        node = factory.create("GatedDeltaNet", [x.output(0) for x in inputs], {})
        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Model(node.outputs(), inputs)
        self.request = openvino.compile_model(model, "CPU", options).create_infer_request()
        for set_tensor, arrays in (
            (self.request.set_input_tensor, self.given),
            (self.request.set_output_tensor, self.results.values()),
        ):
            for index, array in enumerate(arrays):
                set_tensor(index, openvino.Tensor(array, shared_memory=True))

    def value(self):
        self.request.infer()
        return self.results


class ExecuTorch:
    """The delta rules. Before the measurement, the arrays get the operator's layout of (batch, heads, time,
    d), the queries are scaled, and the gates become factors."""

    def __init__(self, problem, threads):
        executorch_runtime._unsafe_reset_threadpool(threads)
        root = pathlib.Path(executorch_runtime.__file__).parents[2]
        torch.ops.load_library(root / "extension/llm/custom_ops/libcustom_ops_aot_lib.so")
        arrays = {"gate": np.zeros(problem.shape[:3], np.float32)} | problem.arrays
        state = torch.from_numpy(arrays.pop("initial_state", problem.new("final_state")))
        given = {x: torch.from_numpy(arrays[x]).transpose(1, 2).contiguous() for x in INPUTS}
        given["query"] = given["query"] * problem.shape[3] ** -0.5
        given["gate"] = given["gate"].exp()
        self.given = [*given.values(), state]
        self.results = {
            "out": torch.empty_like(given["value"]),
            "final_state": torch.empty_like(state),
        }

    def value(self):
        out, state = self.results.values()
        torch.ops.llama.gated_delta_rule.out(*self.given, out=out, final_state_out=state)
        return {"out": out.transpose(1, 2).numpy(), "final_state": state.numpy()}


def ways_of(library, problem, threads):
    yield "scanrec", Scanrec(library, problem, threads)
    yield "onnxruntime", OnnxRuntime(problem, threads)
    if "delta" in problem.rule and not problem.rule.startswith("key_"):
        yield "transformers", Transformers(problem, threads)
        if openvino:
            yield "openvino", OpenVino(problem, threads)
    if "delta" in problem.rule and executorch_runtime:
        yield "executorch", ExecuTorch(problem, threads)


def difference(got, want):
    """The largest difference between two results, relative to the largest number of each array."""
    return float(np.max([abs(got[x] - want[x]).max() / abs(want[x]).max() for x in want]))


def in_turn(calls, rounds, threads):
    """Milliseconds of each call: the fastest of at least `rounds` rounds, which take at least two
    seconds. Each round runs every call for at least 3 ms. A pause before each call lets the waiting
    threads of the other libraries go to sleep. The time of one thread is its processor time, which
    other programs affect least."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    fastest = dict.fromkeys(calls, float("inf"))
    first, done = time.monotonic(), 0
    while done < rounds or time.monotonic() - first < 2:
        for way, call in calls.items():
            time.sleep(0.01)
            if not 50 < fastest[way] < float("inf"):
                call()  # wakes the threads; long calls need no such preparation
            begin, count = clock(), 0
            while count == 0 or clock() - begin < 3e-3:
                call()
                count += 1
            fastest[way] = min(fastest[way], (clock() - begin) / count * 1e3)
        done += 1
    return fastest


def main():
    parser = records.parser_of(__doc__)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="C library of scanrec")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--rules", nargs="+", default=["gated", "gated_delta", "key_gated", "key_gated_delta"]
    )
    parser.add_argument("--what", nargs="+", default=["value", "gradient"])
    parser.add_argument("--alignment", type=int, default=64, help="of arrays, in bytes: up to 4096")
    parser.add_argument("--shapes", nargs="+", help="such as 1x2048x16x128")
    parser.add_argument(
        "--differentiated",
        type=int,
        default=2048,
        help="most steps of transformers' gradient: each chunk's gradient is added to a whole array of zeros",
    )
    args = parser.parse_args()
    keep_memory()
    rows, largest = [], 0.0
    for shape in SHAPES:
        name = "x".join(map(str, shape))
        if args.shapes and name not in args.shapes:
            continue
        for rule in args.rules:
            problem = Problem(shape, rule, args.alignment)
            for threads in args.threads:
                # Waking a thread beside waiting threads of other libraries takes longer than one step.
                if shape[1] == 1 and threads > 1:
                    continue
                ways = dict(ways_of(args.library, problem, threads))
                for what in args.what:
                    calls = {way: getattr(x, what) for way, x in ways.items() if hasattr(x, what)}
                    if what == "gradient" and shape[1] == 1:
                        continue
                    if what == "gradient" and shape[1] > args.differentiated:
                        calls.pop("transformers", None)
                    want = calls["scanrec"]()
                    for way, call in calls.items():
                        error = difference(call(), want)
                        largest = max(largest, error)
                        if not error < TOLERANCE:
                            raise SystemExit(f"{what} of {rule}, {name}: {way} differs by {error}")
                    best = in_turn(calls, args.rounds, threads)
                    about = {"what": what, "rule": rule, "shape": name, "threads": threads}
                    rows += [{**about, "way": way, "milliseconds": ms} for way, ms in best.items()]
                    times = " ".join(
                        f"{way} {ms:9.3f} ms ({ms / best['scanrec']:5.2f})"
                        for way, ms in best.items()
                    )
                    print(f"{what:8} {rule:15} {name:14} {threads} threads: {times}", flush=True)
    context = {
        "onnxruntime": onnxruntime.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **{
            name: importlib.metadata.version(name)
            for name, module in (("openvino", openvino), ("executorch", executorch_runtime))
            if module
        },
        "alignment of arrays": f"{args.alignment} bytes modulo 4096",
        "largest difference between ways": f"{largest:.1e}",
    }
    records.write(args, "linear_attention", rows, context)


if __name__ == "__main__":
    main()
