# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.nn: layers equal a loop and follow the conventions of torch.nn.LSTM."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from conftest import SlowDecay

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import func
from torch.nn import functional
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)
from torch_nn_loops import LAYERS, leaves, loop

from scanrec._layers._state_space import legs_normal_part
from scanrec.torch import nn

warnings.filterwarnings("ignore", category=FutureWarning)
DOUBLE = torch.float64
T, B, H = 7, 3, 4


PLAIN = [name for name in LAYERS if " " not in name]


def make(name, inputs=3, num_layers=2, dtype=DOUBLE, **options):
    torch.manual_seed(1)
    kind, own, _ = LAYERS[name]
    return kind(inputs, H, num_layers, dtype=dtype, **own, **options).eval()


def like(state, tensors):
    return type(state)(*tensors) if isinstance(state, tuple) else tensors[0]


def drawn(layer, batch=B):
    """Return a random state."""
    _, state = layer(torch.zeros(1, batch, layer.input_size, dtype=DOUBLE))
    return like(state, [torch.randn_like(x).requires_grad_() for x in leaves(state)])


def alone(state, i):
    """Return the state of sequence i without its batch axis."""
    return None if state is None else like(state, [s[:, i] for s in leaves(state)])


def same(got, want, tolerance=1e-10):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_equal_the_loop(name, bidirectional):
    for inputs, begins in ((3, True), (H, False)):
        layer = make(name, inputs, bidirectional=bidirectional)
        x = torch.randn(T, B, inputs, dtype=DOUBLE, requires_grad=True)
        state = None if begins else drawn(layer)
        got = layer(x, state)
        want = loop(layer, LAYERS[name][2], x, state)
        assert got[0].shape == (T, B, H * (2 if bidirectional else 1))
        same(got[0], want[0])
        same(leaves(got[1]), want[1])
        at = [*layer.parameters(), x, *(() if begins else leaves(state))]
        weights = [torch.randn_like(y) for y in (want[0], *want[1])]
        gradients = [
            torch.autograd.grad(sum((w * z).sum().real for w, z in zip(weights, all)), at)
            for all in ((got[0], *leaves(got[1])), (want[0], *want[1]))
        ]
        same(*gradients, 1e-10)


def test_min_gru_in_float32_equals_float64_for_slow_decays():
    """The update gates are 1e-4. The tolerance is that of SlowDecay."""
    layer, x = nn.MinGRU(1, 1, bidirectional=True), torch.rand(100_000, 1, 1)
    for name, weight in layer.named_parameters():
        values = [1.0, 0.0] if "weight" in name else [0.0, -9.2]
        weight.data = torch.tensor(values).reshape(weight.shape)

    def run(layer, x):
        x.requires_grad_()
        y = layer(x)[0]
        layer.zero_grad()
        y.sum().backward()
        return [y.detach(), x.grad, *(layer.get_parameter(name).grad for name in biases)]

    biases = ["bias_l0", "bias_l0_reverse"]
    got = run(layer, x)
    for a, b in zip(got, run(copy.deepcopy(layer).double(), x.detach().double())):
        assert a.dtype == torch.float32
        assert torch.dist(a, b, float("inf")) <= SlowDecay.tolerance * b.abs().max()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_every_parameter_has_a_gradient_after_few_steps(name, bidirectional):
    """Check 1 and 3 steps, fewer than the 4 default taps of Mamba's convolution, and 0 sequences.
    DistributedDataParallel rejects the next call if a parameter has no gradient."""
    layer = make(name, bidirectional=bidirectional)
    reset_mask = torch.zeros(4, B, dtype=torch.bool)
    reset_mask[[0, 1, 3], [0, 1, 2]] = True
    for steps, batch, resets in (
        *((1, B, None), (1, B, reset_mask[:2]), (3, B, None), (3, B, reset_mask), (1, 0, None)),
    ):
        x, grads = torch.randn(steps, batch, 3, dtype=DOUBLE), []
        for y, _ in (
            layer(x, None, resets),
            loop(layer, LAYERS[name][2], x, None, resets),
        ):
            layer.zero_grad()
            y.square().sum().backward()
            grads.append([p.grad for p in layer.parameters()])
        got, want = grads
        assert all(isinstance(g, torch.Tensor) for g in got)
        same(got, [torch.zeros_like(p) if g is None else g for p, g in zip(got, want)])


@pytest.mark.parametrize("name", LAYERS)
def test_chunks_single_steps_and_layouts_equal_the_whole_sequence(name):
    layer, x = make(name), torch.randn(T, B, 3, dtype=DOUBLE)
    whole, last = layer(x)
    first, state = layer(x[:4])
    rest, state = layer(x[4:], state)
    same((torch.cat([first, rest]), leaves(state)), (whole, leaves(last)), 1e-12)
    state, one = None, None
    for t in range(T):
        y, state = layer.step(x[t], state)
        z, one = layer.step(x[t, 0], one)
        same((y, z), (whole[t], whole[t, 0]), 1e-12)
    same(leaves(state), leaves(last), 1e-12)
    for both in (False, True):
        layer = make(name, bidirectional=both)
        batch_first = make(name, bidirectional=both, batch_first=True)
        state = drawn(layer)
        for given in (None, state):
            whole, last = layer(x, given)
            y, final = batch_first(x.transpose(0, 1), given)
            same((y.transpose(0, 1), leaves(final)), (whole, leaves(last)), 1e-12)
            for of in (layer, batch_first):
                y, final = of(x[:, 1], alone(given, 1))
                assert type(final) is type(last)
                same((y, leaves(final)), (whole[:, 1], leaves(alone(last, 1))), 1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences_equal_each_sequence_alone(name, bidirectional):
    layer = make(name, bidirectional=bidirectional)
    for lengths, is_sorted in (((3, 7, 1, 3, 5), False), ((6, 6, 2), True)):
        xs = [torch.randn(n, 3, dtype=DOUBLE, requires_grad=True) for n in lengths]
        state = drawn(layer, len(xs))
        for given in (None, state):
            want = [layer(x, alone(given, i)) for i, x in enumerate(xs)]
            output, final = layer(pack_sequence(xs, enforce_sorted=is_sorted), given)
            padded, found = pad_packed_sequence(output)
            assert tuple(found) == lengths
            got = [padded[:n, i] for i, n in enumerate(lengths)]
            same(got, [y for y, _ in want], 1e-11)
            for i, (_, one) in enumerate(want):
                same(leaves(alone(final, i)), leaves(one), 1e-11)
            at = [*xs, *layer.parameters()]
            loss = lambda ys: sum(y.sin().sum() for y in ys)
            gradients = [torch.autograd.grad(loss(ys), at) for ys in (got, [y for y, _ in want])]
            same(*gradients, 1e-9)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_resets_equal_the_loop_and_isolate_sequences(name, bidirectional):
    x = torch.randn(T, B, 3, dtype=DOUBLE)
    reset_mask = torch.zeros(T + 1, B, dtype=torch.bool)
    reset_mask[[2, 3, 0, 5, 7, 1, 6], [0, 0, 1, 1, 1, 2, 2]] = True
    layer = make(name, bidirectional=bidirectional)
    batch_first = make(name, bidirectional=bidirectional, batch_first=True)
    state = drawn(layer)
    weights = None
    for given in (None, state):
        want = loop(layer, LAYERS[name][2], x, given, reset_mask)
        got = layer(x, given, reset_mask)
        same((got[0], leaves(got[1])), want)
        at = [*layer.parameters(), *(() if given is None else leaves(given))]
        weights = weights or [torch.randn_like(y) for y in (want[0], *want[1])]
        gradients = [
            torch.autograd.grad(sum((w * z).sum().real for w, z in zip(weights, all)), at)
            for all in ((got[0], *leaves(got[1])), (want[0], *want[1]))
        ]
        same(*gradients)
        y, final = batch_first(x.transpose(0, 1), given, resets=reset_mask.T)
        same((y.transpose(0, 1), leaves(final)), (got[0], leaves(got[1])), 1e-12)
        y, final = layer(x[:, 1], alone(given, 1), resets=reset_mask[:, 1])
        same((y, leaves(final)), (got[0][:, 1], leaves(alone(got[1], 1))), 1e-12)
        if not bidirectional:
            # The reset after the last step has no effect.
            same(layer(x, given, reset_mask[:T]), got, 0)
            first, between = layer(x[:4], given, reset_mask[:4])
            rest, final = layer(x[4:], between, reset_mask[4:])
            same((torch.cat([first, rest]), leaves(final)), (got[0], leaves(got[1])), 1e-12)
    starts = torch.zeros(T, 1, dtype=torch.bool)
    starts[[2, 3, 6]] = True
    hidden = torch.cat([x[:2], torch.full_like(x[2:3], torch.nan), x[3:]])
    output, ended = layer(hidden, resets=starts)
    for part in (slice(0, 2), slice(3, 6), slice(6, T)):
        y, begun = layer(x[part])
        same(output[part], y, 1e-12)
    # The forward final state of the first layer depends on the last sequence alone.
    same([s[0] for s in leaves(ended)], [s[0] for s in leaves(begun)], 1e-12)


def test_dropout_applies_between_layers_only():
    """With a probability of 1 the input of the second layer is zeros."""
    x = torch.randn(T, B, 3, dtype=DOUBLE)
    for name in PLAIN:
        layer, second = make(name, dropout=1.0), make(name, H, num_layers=1)
        weights = {k.replace("_l1", "_l0"): w for k, w in layer.state_dict().items() if "_l1" in k}
        second.load_state_dict(weights)
        same(layer(x)[0], make(name)(x)[0], 0)
        y, state = layer.train()(x)
        same(y, second(torch.zeros(T, B, H, dtype=DOUBLE))[0], 1e-12)
        first = make(name)(x)[1]  # the input of the first layer has no dropout
        same([s[0] for s in leaves(state)], [s[0] for s in leaves(first)], 0)
    with pytest.warns(UserWarning, match="dropout is between layers"):
        nn.QRNN(3, H, dropout=0.5)
    torch.manual_seed(1)
    some = make("QRNN", dropout=0.5).train()
    assert not torch.equal(some(x)[0], some(x)[0])


def test_zoneout_keeps_the_given_fraction_of_states_in_training():
    torch.manual_seed(1)
    layer = nn.QRNN(3, H, pool="f", zoneout=0.25, dtype=DOUBLE)
    h = layer(torch.randn(500, B, 3, dtype=DOUBLE))[0]
    stays = (h[1:] == h[:-1]).double().mean().item()
    assert abs(stays - 0.25) < 5 * (0.25 * 0.75 / h[1:].numel()) ** 0.5


def written(save, x):
    """Save x to a file in memory, rewind the file, and return it."""
    file = io.BytesIO()
    save(x, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", [*PLAIN, "QRNN ifo"])
def test_states_and_exported_programs_survive_saving(name):
    layer, x = make(name), torch.randn(T, B, 3, dtype=DOUBLE)
    with torch.no_grad():
        _, state = layer(x)
        want, last = layer(x, state)
    for again in (
        copy.deepcopy(state),
        pickle.loads(pickle.dumps(state)),
        torch.load(written(torch.save, state), weights_only=True),
    ):
        assert type(again) is type(state)
        same(leaves(again), leaves(state), 0)
    program = torch.export.export(layer, (x, state))
    y, final = torch.export.load(written(torch.export.save, program)).module()(x, state)
    assert type(final) is type(last)
    same((y, leaves(final)), (want, leaves(last)), 1e-12)


def test_aotinductor_packages_keep_named_tuples_of_states(tmp_path):
    torch.compiler.reset()
    layer, x = nn.QRNN(3, H, kernel_size=2), torch.randn(T, B, 3)
    with torch.no_grad():
        _, state = layer(x)
        want, last = layer(x, state)
    program = torch.export.export(layer, (x, state))
    path = str(tmp_path / "qrnn.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    y, final = torch._inductor.aoti_load_package(path)(x, state)
    assert type(final) is nn.QRNNState
    same((y, tuple(final)), (want, tuple(last)), 1e-6)


@pytest.mark.parametrize("name", PLAIN)
def test_layers_support_compile_export_pickle_dtypes_autocast_and_vmap(name):
    torch.compiler.reset()  # layers share one forward(), whose compiled programs are limited
    layer, x = make(name, dtype=torch.float32), torch.randn(T, B, 3)
    whole, last = layer(x)
    last = like(last, [s.detach() for s in leaves(last)])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    same(compiled(x)[0], whole, 1e-6)
    want = torch.autograd.grad(whole.sum(), list(layer.parameters()))
    same(torch.autograd.grad(compiled(x)[0].sum(), list(layer.parameters())), want, 1e-5)
    sizes = {0: torch.export.Dim("steps", min=2), 1: torch.export.Dim("batch", min=2)}
    program = torch.export.export(layer, (x,), dynamic_shapes={"input": sizes})
    y, state = program.module()(x[:5, :2])
    same((y, leaves(state)), (whole[:5, :2], leaves(layer(x[:5, :2])[1])), 1e-6)
    reset_mask = torch.rand(T, B) < 0.3
    same(compiled(x, None, reset_mask)[0], layer(x, None, reset_mask)[0], 1e-6)
    other = LAYERS[name][0](3, H, 2, device="meta", **LAYERS[name][1])
    assert other(x.to("meta"))[0].shape == whole.shape
    other.to_empty(device="cpu").reset_parameters()
    other(x)[0].sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in other.parameters())
    weights = torch.load(written(torch.save, layer.state_dict()), weights_only=True)
    other.load_state_dict(weights, strict=True)
    loaded = torch.load(written(torch.save, layer), weights_only=False)
    for baseline in (other.eval(), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        same(baseline(x)[0], whole, 0)
        assert repr(baseline) == repr(layer) and "num_layers=2" in repr(layer)
    y, state = copy.deepcopy(layer).double()(x.double(), last)
    assert y.dtype == DOUBLE and all(s.dtype.itemsize >= 8 for s in leaves(state))
    same(y.float(), layer(x, last)[0], 1e-5)
    for half in (torch.float16, torch.bfloat16):
        y, state = copy.deepcopy(layer).to(half)(x.to(half))
        assert y.dtype == half and all(s.dtype.itemsize in (4, 8) for s in leaves(state))
        same(y.float(), whole, 3e-2 * whole.abs().max().item() + 3e-2)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = layer(x, last)
        y.float().sum().backward()
    assert [s.dtype for s in leaves(state)] == [s.dtype for s in leaves(last)]
    same(y.float(), layer(x, last)[0], 3e-2)
    torch.optim.Adam(layer.parameters()).step()
    stacked, _ = func.stack_module_state([layer, other])
    many = func.vmap(lambda w: func.functional_call(layer, w, (x,))[0])(stacked)
    same(many, torch.stack([layer(x)[0], other(x)[0]]), 1e-5)


def gradients(layer, x):
    """Return the tensor of outputs, and the weight gradients of its sum of squares."""
    y = layer(x)[0]
    y = y if isinstance(y, torch.Tensor) else y.data
    return y, torch.autograd.grad(y.square().sum(), list(layer.parameters()))


@pytest.mark.parametrize("name", [*PLAIN, "QRNN ifo", "Mamba sizes"])
def test_programs_with_resets_run_any_length_and_batch(name):
    """Programs exported for 2 or 300 steps run 1 to 300 steps, and a batch of 1. One compiled
    program without resets runs 2 to 300 steps."""
    layer = make(name, num_layers=1, dtype=torch.float32, bidirectional=True)
    inputs = lambda steps, batch=B: (
        torch.randn(steps, batch, 3), None, torch.rand(steps, batch) < 0.3
    )  # fmt: skip
    same_steps = {0: torch.export.Dim("steps"), 1: torch.export.Dim("batch")}
    sizes = {"input": same_steps, "state": None, "resets": same_steps}
    for made in (2, 300):
        program = torch.export.export(layer, inputs(made), dynamic_shapes=sizes).module()
        for x, _, reset_mask in map(inputs, (1, 2, 129, 300), (1, B, 2, B)):
            same(program(x, None, reset_mask)[0], layer(x, None, reset_mask)[0], 1e-5)
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x, *_ in map(inputs, (2, 3, 129, 300)):
        torch._dynamo.mark_dynamic(x, 0)
        same(gradients(compiled, x), gradients(layer, x), 1e-3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("name", PLAIN)
def test_packed_sequences_cause_a_graph_break(name):
    torch.compiler.reset()
    layer, x = make(name, bidirectional=True), torch.randn(T, B, 3, dtype=DOUBLE)
    packed = pack_sequence([x[:5, 0], x[:, 1], x[:2, 2]], enforce_sorted=False)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="lengths of packed sequences"):
        torch.compile(layer, backend="aot_eager", fullgraph=True)(packed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Guards may run slower")  # on Python 3.13.0
        same(
            gradients(torch.compile(layer, backend="aot_eager"), packed),
            gradients(layer, packed),
            0,
        )


@pytest.mark.parametrize("name", [*PLAIN, "QRNN ifo"])
def test_default_backend_compiles_once_for_ten_lengths(name):
    """Check outputs and gradients. Without mark_dynamic the first length has a separate program."""
    torch.compiler.reset()
    layer = make(name, num_layers=1)
    compiled = torch.compile(layer, fullgraph=True)
    first, *others = [torch.randn(steps, B, 3, dtype=DOUBLE) for steps in range(20, 120, 10)]
    torch._dynamo.mark_dynamic(first, 0)
    same(gradients(compiled, first), gradients(layer, first))
    with torch.compiler.set_stance("fail_on_recompile"):
        for x in others:
            same(gradients(compiled, x), gradients(layer, x))


@pytest.mark.parametrize("name", PLAIN)
def test_deterministic_algorithms_give_equal_bits_twice(name):
    layer, x = make(name, bidirectional=True), torch.randn(T, B, 3, dtype=DOUBLE)
    packed = pack_sequence([x[:5, 0], x[:, 1], x[:2, 2]], enforce_sorted=False)
    torch.use_deterministic_algorithms(True)
    try:
        for input in (x, packed):
            same(gradients(layer, input), gradients(layer, input), 0)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_equal_finite_differences(name):
    layer = make(name, num_layers=1, bidirectional=True)
    x = torch.randn(3, 2, 3, dtype=DOUBLE)
    packed = pack_padded_sequence(x, [3, 2])
    state = leaves(drawn(layer, 2))

    def call(x, *state):
        y, final = layer(packed._replace(data=x), state if len(state) > 1 else state[0])
        return (y.data, *leaves(final))

    assert torch.autograd.gradcheck(call, (packed.data.detach().requires_grad_(), *state))


def test_initial_parameters_follow_the_papers():
    torch.manual_seed(2)
    whole = nn.LRU(3, H, state_size=500, r_min=0, r_max=1)  # the defaults of the paper
    assert whole.nu_l0.isfinite().all() and whole.theta_l0.isfinite().all()
    ring = torch.exp(-nn.LRU(3, H, state_size=500, r_min=0.5, r_max=0.6).nu_l0.exp())
    assert 0.5 <= ring.min() < 0.51 and 0.59 < ring.max() <= 0.6
    s5 = nn.S5(3, H, state_size=12, blocks=2)
    i = np.arange(6)
    hippo = -np.sqrt(np.outer(2 * i + 1, 2 * i + 1)) * (i[:, None] > i) - np.diag(i + 1)
    normal = hippo + np.outer(np.sqrt(i + 0.5), np.sqrt(i + 0.5))  # plus the rank-one term
    frequencies, vectors = legs_normal_part(6)
    np.testing.assert_allclose(normal @ vectors, vectors * (1j * frequencies - 0.5), atol=1e-12)
    assert vectors.shape == (6, 3) and (frequencies > 0).all()
    np.testing.assert_allclose(s5.frequency_l0.detach(), np.tile(frequencies, 2), rtol=1e-5)
    np.testing.assert_allclose(s5.log_decay_l0.detach().exp(), 0.5, rtol=1e-6)
    decay = torch.exp(-8 * functional.softplus(nn.RGLRU(3, 500).decay_l0))
    assert 0.9 <= decay.min() < 0.901 and 0.998 < decay.max() <= 0.9991
    steps = functional.softplus(nn.Mamba(3, 500).bias_delta_l0)
    assert 0.99e-3 <= steps.min() < 1.2e-3 and 0.09 < steps.max() <= 0.1001
    assert nn.QRNN(3, H, kernel_size=2).bias_l0.tolist() == [0] * H + [1] * H + [0] * H


def test_nn_is_imported_lazily():
    code = "import sys, scanrec.torch as it; assert 'nn' in dir(it) and 'scanrec.torch.nn' not in sys.modules"
    code += "; it.nn.QRNN; assert not hasattr(it, 'jax')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", PLAIN)
def test_complex_weights_raise(name):
    """Modules can be moved to a complex dtype, although they cannot be created with one."""
    layer = make(name).to(torch.complex64)
    with pytest.raises(TypeError, match=f"{name}: .* expected weights in one of float64"):
        layer(torch.zeros(T, B, 3, dtype=torch.complex64))


@pytest.mark.parametrize("sizes", [[1, 2], [2, 2], [2], [3, 0], [-3], [], [[2, 1]]])
def test_invalid_batch_sizes_of_packed_sequences_raise(sizes):
    packed = PackedSequence(torch.zeros(3, 3), torch.tensor(sizes, dtype=torch.int64))
    with pytest.raises(ValueError, match="QRNN: argument 'input': .* add up to its 3 rows, got "):
        nn.QRNN(3, H)(packed)


@pytest.mark.parametrize("name", LAYERS)
def test_sequences_of_0_steps_raise(name):
    words = f"^{name.split()[0]}: argument 'input': expected at least 1 step, got shape "
    for options, shape in (
        ({}, (0, B, 3)),
        ({}, (0, 3)),
        ({"batch_first": True}, (B, 0, 3)),
        ({"bidirectional": True}, (0, B, 3)),
    ):
        with pytest.raises(ValueError, match=words):
            make(name, **options)(torch.zeros(shape, dtype=DOUBLE))


def test_invalid_input_raises():
    layer, x = nn.QRNN(3, H), torch.zeros(T, B, 3)
    both, mamba = nn.MinGRU(3, H, bidirectional=True), nn.Mamba(3, H)
    for call, words in (
        (lambda: layer(x[..., :2]), r"QRNN: argument 'input': .*I = 3, got shape \(7, 3, 2\)"),
        (lambda: layer(x.double()), "'input': expected torch.float32, like the weights"),
        (lambda: layer([1.0]), "'input': expected a tensor, got list"),
        (lambda: layer(x.to("meta")), "'input': expected a tensor on cpu"),
        (lambda: layer(x, x), r"'state': expected shape \(1, 3, 4\), got \(7, 3, 3\)"),
        (lambda: layer(x, torch.zeros(1, B, H, dtype=torch.cfloat)), "'state': expected a real"),
        (lambda: nn.S5(3, H)(x, torch.zeros(1, B, 32)), "'state': expected a complex type"),
        (lambda: mamba(x, torch.zeros(1, B, H)), "'state': expected a tuple of hidden, conv"),
        (lambda: mamba(x, (torch.zeros(1, B, 8, 16), x)), r"'state.conv': expected shape"),
        (lambda: layer(x, resets=x[..., 0]), "QRNN: argument 'resets': expected a tensor of"),
        (lambda: layer(x, resets=x[0] > 0), r"'resets': .* broadcasts to \(7, 3\)"),
        (lambda: layer(pack_sequence([x[0]]), None, x > 0), "'resets': expected None with a"),
        (lambda: both.step(x[0]), "MinGRU.step: argument 'bidirectional': expected False"),
        (lambda: layer.step(x), r"QRNN.step: argument 'input': expected \(B, I\)"),
        (lambda: nn.QRNN(3, H, pool="of"), "'pool': expected one of 'f', 'fo', 'ifo'"),
        (lambda: nn.QRNN(3, H, kernel_size=3), "'kernel_size': expected one of 1, 2"),
        (lambda: nn.QRNN(3, H, zoneout=1), "'zoneout': expected a number below 1"),
        (lambda: nn.QRNN(3, H, memory="none"), "'memory': expected one of 'store', 'recompute'"),
        (lambda: nn.QRNN(3, H, dropout=2), "'dropout': expected a number from 0 to 1"),
        (lambda: nn.QRNN(0, H), "'input_size': expected an integer of 1 or more, got 0"),
        (lambda: nn.QRNN(3, 1.5), "'hidden_size': expected an integer of 1 or more, got 1.5"),
        (lambda: nn.QRNN(3, H, bias="no"), "'bias': expected True or False, got 'no'"),
        (lambda: nn.QRNN(3, H, dtype=torch.int8), "'dtype': expected one of float64"),
        (lambda: nn.MinGRU(3, H, candidate="g"), "'candidate': expected one of"),
        (lambda: nn.LRU(3, H, r_min=0.9, r_max=0.5), "'r_min': expected a number below r_max"),
        (lambda: nn.LRU(3, H, r_max=1.1), "'r_max': expected a number from 0 to 1, got 1.1"),
        (lambda: nn.S5(3, H, state_size=6, blocks=2), "'state_size': expected a multiple"),
        (lambda: nn.S5(3, H, dt_min=1.0), "'dt_min': expected a step size above 0, up to dt_max"),
        (lambda: nn.S5(3, H, discretisation="euler"), "'discretisation': expected one of"),
        (lambda: nn.RGLRU(3, H, heads=3), "'heads': expected a divisor of hidden_size, 4"),
        (lambda: nn.RGLRU(3, H, c=0), "'c': expected a finite number above 0"),
        (lambda: nn.Mamba(3, H, dt_rank="all"), "'dt_rank': expected an integer"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            call()
