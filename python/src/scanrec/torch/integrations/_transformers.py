# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba mixers of Hugging Face transformers.

A mixer finds its scan, and the step of it that generation takes, by names of its module. One that is
replaced has a ``forward`` of its own: the same code, for which these names are ours. Others of the
process stay as they are.
"""

from __future__ import annotations

from types import CellType, FunctionType, MethodType
from typing import TypeVar

import torch

from ... import _arguments as arguments
from .._selective_scan import selective_scan, selective_state_update

__all__ = ["apply_to", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)

#: The mixers that are known, by module and class.
MIXERS = {
    ("transformers.models.mamba.modeling_mamba", "MambaMixer"),
    ("transformers.models.falcon_mamba.modeling_falcon_mamba", "FalconMambaMixer"),
}
_OURS = "_scanrec_forward"


def apply_to(model: Model) -> Model:
    """Has a model scan with :func:`scanrec.torch.selective_scan`, and generate with
    :func:`scanrec.torch.selective_state_update`: its Mamba and FalconMamba mixers of transformers
    (5.23; any version whose mixers call the same functions), in place. Parameters and results stay
    what they are, but for rounding; tensors are on a CPU. Returns the model.

    Raises
    ------
    ValueError, TypeError:
        For a model without such mixers, and where they call other functions; nothing has been
        replaced then.
    """
    call = "apply_to"
    found = [(mixer, _replaced(call, mixer)) for mixer in _mixers(call, model)]
    for mixer, forward in found:
        setattr(mixer, _OURS, True)
        mixer.forward = MethodType(forward, mixer)
    return model


def restore(model: Model) -> Model:
    """Undoes :func:`apply_to`. Returns the model."""
    for mixer in _mixers("restore", model):
        if _OURS in vars(mixer):
            del mixer.forward
            delattr(mixer, _OURS)
    return model


def _is_known(kind: type) -> bool:
    return any((base.__module__, base.__name__) in MIXERS for base in kind.__mro__)


def _mixers(call: str, model: object) -> list[torch.nn.Module]:
    if not isinstance(model, torch.nn.Module):
        arguments.refuse(call, "model", "a torch.nn.Module", type(model).__name__, TypeError)
    found = [x for x in model.modules() if _is_known(type(x))]
    if not found:
        names = " or ".join(sorted(name for _, name in MIXERS))
        expected = f"a model with mixers of transformers: {names}"
        arguments.refuse(call, "model", expected, type(model).__name__)
    return found


def _replaced(call: str, mixer: torch.nn.Module) -> FunctionType:
    """The forward of a mixer's class, with our functions."""
    if "forward" in vars(mixer) and _OURS not in vars(mixer):
        expected = "mixers whose forward nobody has replaced"
        arguments.refuse(call, "model", expected, f"one of type {type(mixer).__name__}")
    layers = [type(mixer).forward]
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)
    inner = layers.pop()
    if not set(_FUNCTIONS) <= set(inner.__code__.co_names):
        expected = "mixers that call " + ", ".join(_FUNCTIONS)
        arguments.refuse(call, "model", expected, f"{type(mixer).__name__} of another version")
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


_FUNCTIONS = {
    "mamba_selective_scan": _scan,
    "mamba_selective_state_update": _update,
    "mamba_inner_fn": _no_fused_layer,
}
