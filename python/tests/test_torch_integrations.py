# SPDX-License-Identifier: BSD-3-Clause
"""Tests of scanrec.torch.integrations: models of transformers keep their results."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from scanrec.torch import integrations

MAMBA = dict(state_size=8, num_hidden_layers=2, conv_kernel=4)
#: Model options. Every model has two Mamba layers; Jamba has an attention layer between them.
KINDS = {
    "Mamba": MAMBA,
    "FalconMamba": MAMBA,
    "Jamba": dict(
        num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=1, num_experts=1,
        num_experts_per_tok=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=2,
    ),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def model(request):
    name, sizes = request.param, KINDS[request.param]
    torch.manual_seed(1)
    sizes = dict(vocab_size=96, hidden_size=32, **sizes)
    tokens = dict(bos_token_id=1, eos_token_id=None, pad_token_id=0)
    config = getattr(transformers, f"{name}Config")(**sizes, **tokens)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def mixers(model):
    return [x for x in model.modules() if type(x).__name__.endswith(("Mixer", "Rglru"))]


@pytest.fixture
def calls(monkeypatch):
    """Count the calls of scanrec's functions."""
    counts = dict.fromkeys(("_scan", "_update", "_conv", "_conv_update"), 0)
    functions = integrations._transformers._FUNCTIONS
    for name, function in list(functions.items()):
        if function.__name__ in counts:

            def counted(*x, function=function, **more):
                counts[function.__name__] += 1
                return function(*x, **more)

            monkeypatch.setitem(functions, name, counted)
    integrations._transformers._ours.cache_clear()
    yield counts
    integrations._transformers._ours.cache_clear()


TEXT = torch.arange(2 * 150).reshape(2, 150) * 7 % 95 + 1


def results(model, text=TEXT):
    model.zero_grad()
    out = model(text, labels=text)
    out.loss.backward()
    return out.logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("train", [False, True])
def test_logits_and_gradients_equal_the_original_model(model, calls, train):
    model.train(train)
    logits, grads = results(model)
    assert integrations.apply_to(model) is model
    ours, found = results(model)
    assert calls == {"_scan": 2, "_update": 0, "_conv": 2, "_conv_update": 0}
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-4)
    for name, g in found.items():
        torch.testing.assert_close(
            g, grads[name], rtol=1e-3, atol=1e-3 * float(grads[name].abs().max())
        )


def test_generated_text_equals_the_original_model(model, calls):
    options = dict(
        max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    attend = torch.ones_like(TEXT[:, :20])
    attend[0, :5] = 0  # padding on the left
    want = model.generate(TEXT[:, :20], attention_mask=attend, **options)
    integrations.apply_to(model)
    got = model.generate(TEXT[:, :20], attention_mask=attend, **options)
    assert calls == {"_scan": 2, "_update": 22, "_conv": 2, "_conv_update": 22}
    assert torch.equal(got.sequences, want.sequences)
    torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 5e-2), ("float64", 1e-4)])
def test_logits_of_other_dtypes_equal_the_original_model(model, dtype, tolerance):
    model.to(getattr(torch, dtype))
    with torch.no_grad():
        want = model(TEXT).logits
        got = integrations.apply_to(model)(TEXT).logits
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_restore_undoes_apply_to(model, calls):
    other = copy.deepcopy(model)
    integrations.apply_to(integrations.apply_to(model))
    with torch.no_grad():
        other(TEXT)
        assert calls["_scan"] == 0
        copy.deepcopy(model)(TEXT)
        assert calls["_scan"] == 2
        integrations.restore(model)
        assert torch.equal(model(TEXT).logits, other(TEXT).logits)
        assert calls["_scan"] == 2
    assert [type(x) for x in mixers(model)] == [type(x) for x in mixers(other)]
    integrations.restore(model)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("again", [copy.deepcopy, pickled, saved])
def test_copies_keep_the_replaced_functions(model, calls, again):
    """Check deep copies, pickled models and saved models, and restore on each of them."""
    integrations.apply_to(model)
    with torch.no_grad():
        want = model(TEXT).logits
        calls["_scan"] = 0
        other = again(model)
        assert torch.equal(other(TEXT).logits, want)
        assert calls["_scan"] == 2
        assert not {*mixers(model)} & {*mixers(other)}
        integrations.restore(other)(TEXT)
        assert calls["_scan"] == 2
        again(integrations.restore(model))(TEXT)
        assert calls["_scan"] == 2


def test_shallow_copies_use_their_own_parameters(model, calls):
    """torch.nn.DataParallel makes shallow copies."""
    first = mixers(integrations.apply_to(model))[0]
    other, x = copy.copy(first), torch.randn(2, 9, 32)
    other._modules = {**first._modules, "out_proj": copy.deepcopy(first.out_proj)}
    with torch.no_grad():
        other.out_proj.weight.zero_()
        assert first(x).any() and not other(x).any()
    assert calls["_scan"] == 2


def test_layers_keep_their_name_and_class(model):
    kinds = [type(x) for x in mixers(model)]
    said = repr(model)
    integrations.apply_to(model)
    assert repr(model) == said
    assert len({type(x) for x in mixers(model)}) == 1
    for x, kind in zip(mixers(model), kinds, strict=True):
        assert isinstance(x, kind) and type(x) is not kind
        assert type(x).__qualname__ == kind.__qualname__


def test_compiled_model_equals_eager(model):
    integrations.apply_to(model)
    with torch.no_grad():
        want = model(TEXT, use_cache=False).logits
        got = torch.compile(model, backend="aot_eager")(TEXT, use_cache=False).logits
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_unsupported_models_raise(model, monkeypatch):
    for call in (integrations.apply_to, integrations.restore):
        with pytest.raises(
            ValueError,
            match="FalconMambaMixer or JambaMambaMixer or MambaMixer or RecurrentGemmaRglru, got",
        ):
            call(torch.nn.Linear(2, 2))
        with pytest.raises(TypeError, match="'model': expected a torch.nn.Module, got int"):
            call(3)
    kinds = [type(x) for x in mixers(model)]
    mixers(model)[1].forward = lambda *x: x
    with pytest.raises(ValueError, match="layers with their original forward"):
        integrations.apply_to(model)
    del mixers(model)[1].forward
    monkeypatch.setattr(kinds[0], "forward", lambda *x: x[0].mamba_selective_scan())
    with pytest.raises(ValueError, match="call mamba_selective_scan, .* of another version"):
        integrations.apply_to(model)
    assert [type(x) for x in mixers(model)] == kinds


@pytest.fixture
def gemma():
    torch.manual_seed(2)
    config = transformers.RecurrentGemmaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, lru_width=32,
        num_attention_heads=4, head_dim=8, attention_window_size=64, conv1d_width=4,
        bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.RecurrentGemmaForCausalLM(config).eval()


def test_recurrent_gemma_equals_the_original_model(gemma):
    logits, grads = results(gemma)
    want = gemma.generate(TEXT[:, :20], max_new_tokens=8, do_sample=False)
    integrations.apply_to(gemma)
    ours_of = integrations._transformers._rnn_scan
    for of in (gemma, copy.deepcopy(gemma), pickled(gemma), saved(gemma)):
        assert [type(x)._rnn_scan for x in mixers(of)] == [ours_of] * 2
    ours, found = results(gemma)
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-4)
    for name, g in found.items():
        torch.testing.assert_close(
            g, grads[name], rtol=1e-3, atol=1e-3 * float(grads[name].abs().max())
        )
    assert torch.equal(gemma.generate(TEXT[:, :20], max_new_tokens=8, do_sample=False), want)
    integrations.restore(gemma)
    assert torch.equal(gemma(TEXT).logits, logits)
    gemma.to(torch.bfloat16)
    with torch.no_grad():
        want = gemma(TEXT).logits
        got = integrations.apply_to(gemma)(TEXT).logits
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=5e-2, atol=5e-2)
