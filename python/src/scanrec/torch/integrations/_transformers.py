# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba mixers and the RG-LRU of Hugging Face transformers.

A Mamba mixer finds its scan, and the step of it that generation takes, by names of its module. One
that is replaced has a ``forward`` of its own: the same code, for which these names are ours. The
RG-LRU has its scan in a method. Others of the process stay as they are.
"""

from __future__ import annotations

from types import CellType, FunctionType, MethodType
from typing import TypeVar

import torch

from ... import _arguments as arguments
from .._linear_scan import linear_scan
from .._selective_scan import selective_scan, selective_state_update

__all__ = ["apply_to", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)

#: The layers that are known, by module and class, and the method of each that is replaced.
MIXERS = {
    ("transformers.models.mamba.modeling_mamba", "MambaMixer"): "forward",
    ("transformers.models.falcon_mamba.modeling_falcon_mamba", "FalconMambaMixer"): "forward",
    ("transformers.models.recurrent_gemma.modeling_recurrent_gemma", "RecurrentGemmaRglru"):
        "_rnn_scan",
}  # fmt: skip
_OURS = "_scanrec_replaced"


def apply_to(model: Model) -> Model:
    """Has a model of transformers (5.23; any version whose layers call the same functions) scan
    with ours, in place: Mamba and FalconMamba with :func:`scanrec.torch.selective_scan`, and where
    they generate with :func:`scanrec.torch.selective_state_update`; RecurrentGemma with
    :func:`scanrec.torch.linear_scan`. Parameters and results stay what they are, but for rounding.
    Returns the model.

    Raises
    ------
    ValueError, TypeError:
        For a model without such layers, and where they call other functions; nothing has been
        replaced then.
    """
    call = "apply_to"
    found = [(mixer, _replaced(call, mixer)) for mixer in _mixers(call, model)]
    for mixer, ours in found:
        setattr(mixer, _OURS, True)
        setattr(mixer, _method_of(mixer), MethodType(ours, mixer))
    return model


def restore(model: Model) -> Model:
    """Undoes :func:`apply_to`. Returns the model."""
    for mixer in _mixers("restore", model):
        if _OURS in vars(mixer):
            delattr(mixer, _method_of(mixer))
            delattr(mixer, _OURS)
    return model


def _method_of(mixer: torch.nn.Module) -> str | None:
    """The method that is replaced; None of a layer that is not known."""
    bases = ((base.__module__, base.__name__) for base in type(mixer).__mro__)
    return next((MIXERS[base] for base in bases if base in MIXERS), None)


def _mixers(call: str, model: object) -> list[torch.nn.Module]:
    if not isinstance(model, torch.nn.Module):
        arguments.refuse(call, "model", "a torch.nn.Module", type(model).__name__, TypeError)
    found = [x for x in model.modules() if _method_of(x) is not None]
    if not found:
        names = " or ".join(sorted(name for _, name in MIXERS))
        expected = f"a model with layers of transformers: {names}"
        arguments.refuse(call, "model", expected, type(model).__name__)
    return found


def _replaced(call: str, mixer: torch.nn.Module) -> FunctionType:
    """The method of a layer's class, with our functions."""
    method, kind = _method_of(mixer), type(mixer)
    if method in vars(mixer) and _OURS not in vars(mixer):
        expected = f"layers whose {method} nobody has replaced"
        arguments.refuse(call, "model", expected, f"one of type {kind.__name__}")
    if method == "_rnn_scan":
        if not hasattr(kind, method) or method not in kind.forward.__code__.co_names:
            expected = f"layers that call {method}"
            arguments.refuse(call, "model", expected, f"{kind.__name__} of another version")
        return _rnn_scan
    layers = [kind.forward]
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)
    inner = layers.pop()
    if not set(_FUNCTIONS) <= set(inner.__code__.co_names):
        expected = "layers that call " + ", ".join(_FUNCTIONS)
        arguments.refuse(call, "model", expected, f"{kind.__name__} of another version")
    ours = _copy_of(inner, names={**inner.__globals__, **_FUNCTIONS})
    for outer in reversed(layers):
        ours, inner = _copy_of(outer, instead_of=inner, within=ours), outer
    return ours


def _copy_of(function, *, names=None, instead_of=None, within=None) -> FunctionType:
    """A function with other global names, or with one that it wraps replaced."""
    closure = function.__closure__ and tuple(
        CellType(within) if within is not None and cell.cell_contents is instead_of else cell
        for cell in function.__closure__
    )
    names = function.__globals__ if names is None else names
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    return copy


# ---- the functions, with the arguments that mixers call them with -----------------------------------


def _of_one_type(x, a, *weights):
    """A and weights, which mixers have in float32, in the type that x is computed in."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (a.to(dtype), *(None if w is None else w.to(dtype) for w in weights))


def _scan(
    hidden_states, dt, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False,
    return_last_state=False, use_mambapy=False, use_associative_scan=False,
):  # fmt: skip
    """A scan; other ways to compute it, which the last two ask for, are not taken."""
    A, D, bias = _of_one_type(hidden_states, A, D, delta_bias)
    return selective_scan(hidden_states, dt, A, B, C, D, z, bias, delta_softplus, return_last_state)


def _update(state, hidden_states, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False):
    A, D, bias = _of_one_type(hidden_states, A, D, dt_bias)
    # Generation may run where gradients are recorded, and drops them.
    with torch.no_grad():
        return selective_state_update(state, hidden_states, dt, A, B, C, D, z, bias, dt_softplus)


def _no_fused_layer(*arguments, **options):
    """The whole layer in one kernel, which mixers go without where there is None."""
    return None


def _rnn_scan(
    self, hidden_states, recurrent_gate, reset, recurrent_states, acc_dtype=torch.float32
):
    """The scan of the RG-LRU, in acc_dtype whatever the types are."""
    states, last = linear_scan(
        recurrent_gate.to(acc_dtype),
        hidden_states.to(acc_dtype),
        None if recurrent_states is None else recurrent_states.to(acc_dtype),
        resets=reset,
        return_final=True,
    )
    return states.to(hidden_states.dtype), last


_FUNCTIONS = {
    "mamba_selective_scan": _scan,
    "mamba_selective_state_update": _update,
    "mamba_inner_fn": _no_fused_layer,
}
