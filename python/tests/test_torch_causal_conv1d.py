# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.causal_conv1d and causal_conv1d_update: values, derivatives, compiled
programs, streaming and invalid arguments."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import conv1d, silu

from scanrec.torch import causal_conv1d, causal_conv1d_update

warnings.filterwarnings("ignore", category=FutureWarning)

BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def by_torch(x, weight, bias, initial, activation):
    """Compute outputs and final states in float64 with PyTorch's convolution."""
    x, weight, initial = x.double(), weight.double(), initial.double()
    every = torch.cat([initial, x], -1)
    bias = None if bias is None else bias.double()
    out = conv1d(every, weight.unsqueeze(1), bias, groups=x.shape[1])
    return silu(out) if activation else out, every[..., x.shape[-1] :]


def problem(dtype, steps, channels, width, time_last=True):
    x = torch.randn(2, steps, channels, dtype=dtype).transpose(1, 2)
    if time_last:
        x = x.contiguous()
    weight, bias = torch.randn(channels, width, dtype=dtype), torch.randn(channels, dtype=dtype)
    return x, weight, bias, torch.randn(2, channels, width - 1, dtype=dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("time_last", [True, False])
@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_values_equal_pytorch_conv1d(dtype, time_last, width):
    for steps, channels in ((1, 5), (2, 33), (70, 48)):
        x, weight, bias, initial = problem(dtype, steps, channels, width, time_last)
        for activation in (None, "silu", "swish"):
            out, final = causal_conv1d(x, weight, bias, None, initial, True, None, activation)
            want, last = by_torch(x, weight, bias, initial, activation)
            assert out.dtype == final.dtype == dtype
            assert torch.all((out.double() - want).abs() <= BOUNDS[dtype] * (1 + want.abs()))
            assert torch.equal(final.double(), last)
        out = causal_conv1d(x, weight)
        want, _ = by_torch(x, weight, None, torch.zeros_like(initial), None)
        assert torch.all((out.double() - want).abs() <= BOUNDS[dtype] * (1 + want.abs()))


def test_outputs_have_the_strides_of_the_input():
    x, weight, bias, _ = problem(torch.float32, 40, 32, 4, time_last=False)
    assert causal_conv1d(x, weight, bias).stride() == x.stride()


def test_weights_may_be_float32_for_16_bit_inputs():
    x, weight, bias, _ = problem(torch.bfloat16, 40, 32, 4)
    want = causal_conv1d(x, weight, bias, activation="silu")
    assert torch.equal(causal_conv1d(x, weight.float(), bias.float(), activation="silu"), want)


def test_zero_steps_return_the_initial_state():
    x, weight, bias, initial = problem(torch.float32, 0, 5, 4)
    out, final = causal_conv1d(x, weight, bias, initial_states=initial, return_final_states=True)
    assert out.shape == x.shape
    assert torch.equal(final, initial)


def test_final_states_are_written_to_a_caller_provided_tensor():
    x, weight, bias, initial = problem(torch.float32, 9, 5, 4)
    _, want = causal_conv1d(x, weight, bias, return_final_states=True)
    given = torch.zeros_like(initial)
    _, final = causal_conv1d(x, weight, bias, return_final_states=True, final_states_out=given)
    assert final is given
    assert torch.equal(given, want)
    given.zero_()
    assert isinstance(causal_conv1d(x, weight, bias, final_states_out=given), torch.Tensor)
    assert torch.equal(given, want)


def test_seq_idx_separates_sequences():
    x, weight, bias, initial = problem(torch.float32, 50, 20, 4)
    lengths = [1, 2, 17, 30]
    number = torch.repeat_interleave(torch.tensor([5, 0, 1, 2]), torch.tensor(lengths))
    seq_idx = number.int().expand(2, -1)
    out, final = causal_conv1d(x, weight, bias, seq_idx, initial, True, activation="silu")
    parts = x.split(lengths, -1)
    first = causal_conv1d(parts[0], weight, bias, initial_states=initial, activation="silu")
    rest = [
        causal_conv1d(part, weight, bias, return_final_states=True, activation="silu")
        for part in parts[1:]
    ]
    assert torch.equal(out, torch.cat([first, *(y for y, _ in rest)], -1))
    assert torch.equal(final, rest[-1][1])


@pytest.mark.parametrize("numbered", [False, True])
def test_derivatives_equal_finite_differences(numbered):
    x, weight, bias, initial = (
        t.requires_grad_() for t in problem(torch.float64, 9, 3, 4, time_last=False)
    )
    seq_idx = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0] * 9]) if numbered else None

    def call(x, weight, bias, initial):
        return causal_conv1d(x, weight, bias, seq_idx, initial, True, activation="silu")

    operands = x, weight, bias, initial
    assert gradcheck(call, operands, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(call, operands)


def test_vmap_equals_a_loop_over_the_batch():
    x, weight, bias, _ = problem(torch.float32, 9, 3, 4)
    batch = torch.stack([x, 2 * x])
    out = torch.func.vmap(lambda x: causal_conv1d(x, weight, bias))(batch)
    torch.testing.assert_close(out, torch.stack([causal_conv1d(x, weight, bias) for x in batch]))


def test_compiled_gradients_equal_eager():
    x, weight, bias, _ = (t.requires_grad_() for t in problem(torch.float32, 40, 16, 4))

    def loss(x, weight, bias):
        return causal_conv1d(x, weight, bias, activation="silu").square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    want = torch.autograd.grad(loss(x, weight, bias), (x, weight, bias))
    got = torch.autograd.grad(compiled(x, weight, bias), (x, weight, bias))
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w)


# ---- streaming updates ---------------------------------------------------------------------------


def stream(held, rows=2):
    x, weight, bias, _ = problem(torch.float32, 20, 33, 4)
    whole = causal_conv1d(x, weight, bias, return_final_states=True, activation="silu")
    return x, weight, bias, torch.zeros(rows, 33, held), *whole


@pytest.mark.parametrize("held", [3, 4, 7])
def test_single_steps_have_the_bits_of_the_whole_sequence(held):
    x, weight, bias, state, want, last = stream(held)
    out = [causal_conv1d_update(x[..., t], state, weight, bias, "silu") for t in range(20)]
    assert torch.equal(torch.stack(out, -1), want)
    assert torch.equal(state[..., held - 3 :], last)


@pytest.mark.parametrize("held", [3, 4, 7])
@pytest.mark.parametrize("circular", [False, True])
def test_chunks_have_the_bits_of_the_whole_sequence(held, circular):
    x, weight, bias, state, want, _ = stream(held)
    out, t = [], 0
    for steps in (1, 2, 3, 1, 9, 4):
        lengths = torch.tensor([t, t], dtype=torch.int32) if circular else None
        piece = x[..., t : t + steps]
        out.append(causal_conv1d_update(piece, state, weight, bias, "silu", lengths))
        t += steps
    assert torch.equal(torch.cat(out, -1), want)


def test_state_rows_are_selected_and_padding_writes_no_state():
    x, weight, bias, state, want, last = stream(3, rows=5)
    state[2] = 7
    rows = torch.tensor([4, 0, -1])
    for t in range(20):
        step = torch.cat([x[..., t], x[:1, :, t]])
        out = causal_conv1d_update(step, state, weight, bias, "silu", None, rows)
        assert torch.equal(out[:2], want[..., t])
    assert torch.equal(state[rows[:2]], last)
    assert torch.all(state[1] == 0) and torch.all(state[2] == 7) and torch.all(state[3] == 0)
    assert torch.equal(
        out[2], causal_conv1d(x[:1, :, -1:], weight, bias, activation="silu")[0, :, 0]
    )


def test_16_bit_states_are_updated_in_place():
    x, weight, bias, _ = problem(torch.bfloat16, 6, 20, 4)
    state = torch.zeros(2, 20, 4, dtype=torch.bfloat16)
    version = state._version
    out = [causal_conv1d_update(x[..., t], state, weight, bias) for t in range(6)]
    assert torch.equal(torch.stack(out, -1), causal_conv1d(x, weight, bias))
    assert state._version > version


def test_compiled_updates_have_the_bits_of_the_whole_sequence():
    x, weight, bias, state, want, _ = stream(4)
    step = torch.compile(
        lambda x: causal_conv1d_update(x, state, weight, bias, "silu"),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    out = [step(x[..., t]) for t in range(20)]
    assert torch.equal(torch.stack(out, -1), want)


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("x", lambda x, w, b, s: causal_conv1d(x.int(), w, b)),
        ("x", lambda x, w, b, s: causal_conv1d(x[0], w, b)),
        ("weight", lambda x, w, b, s: causal_conv1d(x, w.double(), b)),
        ("weight", lambda x, w, b, s: causal_conv1d(x, w[1:], b)),
        ("bias", lambda x, w, b, s: causal_conv1d(x, w, b[1:])),
        ("activation", lambda x, w, b, s: causal_conv1d(x, w, b, activation="gelu")),
        ("seq_idx", lambda x, w, b, s: causal_conv1d(x, w, b, torch.zeros(2, 9))),
        ("seq_idx", lambda x, w, b, s: causal_conv1d(x, w, b, torch.zeros(2, 8).int())),
        ("initial_states", lambda x, w, b, s: causal_conv1d(x, w, b, initial_states=s[..., 1:])),
        ("final_states_out", lambda x, w, b, s: causal_conv1d(x, w, final_states_out=s[1:])),
        ("conv_state", lambda x, w, b, s: causal_conv1d_update(x, s[..., 1:], w, b)),
        ("conv_state", lambda x, w, b, s: causal_conv1d_update(x, s.half(), w, b)),
        ("conv_state", lambda x, w, b, s: causal_conv1d_update(x, s[:1].expand(2, -1, -1), w)),
        ("cache_seqlens", lambda x, w, b, s: causal_conv1d_update(x, s, w, b, None, b)),
        (
            "conv_state_indices",
            lambda x, w, b, s: causal_conv1d_update(x, s, w, b, None, None, torch.tensor([1, 1])),
        ),
        ("x", lambda x, w, b, s: causal_conv1d_update(x.requires_grad_(), s, w, b)),
    ],
)
def test_invalid_arguments_raise_and_leave_the_state_unchanged(argument, change):
    x, weight, bias, state = problem(torch.float32, 9, 5, 4)
    before = state.clone()
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=f"'{argument}'"):
        change(x, weight, bias, state)
    assert torch.equal(state, before)
