# SPDX-License-Identifier: BSD-3-Clause
"""The Mamba mixers and the RG-LRU of Hugging Face transformers.

A layer is replaced by giving it a subclass of its class. A Mamba mixer finds its scan, and the
step of it that generation takes, by names of its module: the ``forward`` of the subclass is the
same code, for which these names are ours. The RG-LRU has its scan in a method. Other models of the
process stay as they are.

The subclass has the name of its base, under which pickle finds the base. So ``__reduce_ex__`` names
the base, and loading makes the subclass again.
"""

from __future__ import annotations

from functools import cache
from types import CellType, FunctionType
from typing import TypeVar

import torch

from ... import _arguments as arguments
from ..._op.linear.torch import linear_scan
from ..._op.selective.torch import selective_scan
from ..._op.selective.torch_step import selective_state_update

__all__ = ["apply_to", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)

_MAMBA = ("mamba_selective_scan", "mamba_selective_state_update")

#: The layers that are known, by module and class, and the method of each that is replaced, with the
#: names that its ``forward`` uses.
MIXERS = {
    ("transformers.models.mamba.modeling_mamba", "MambaMixer"):
        ("forward", (*_MAMBA, "mamba_inner_fn")),
    ("transformers.models.falcon_mamba.modeling_falcon_mamba", "FalconMambaMixer"):
        ("forward", (*_MAMBA, "mamba_inner_fn")),
    ("transformers.models.jamba.modeling_jamba", "JambaMambaMixer"): ("forward", _MAMBA),
    ("transformers.models.recurrent_gemma.modeling_recurrent_gemma", "RecurrentGemmaRglru"):
        ("_rnn_scan", ("_rnn_scan",)),
}  # fmt: skip
_INSTEAD_OF = "_scanrec_instead_of"  # the class of transformers, in ours


def apply_to(model: Model) -> Model:
    """Has a model of transformers (5.23; any version whose layers call the same functions) scan
    with ours, in place: Mamba, FalconMamba and Jamba with :func:`scanrec.torch.selective_scan`, and
    where they generate with :func:`scanrec.torch.selective_state_update`; RecurrentGemma with
    :func:`scanrec.torch.linear_scan`. Parameters and results stay what they are, but for rounding.
    Copies of the model scan with ours as well, and so does a pickled model after loading. Returns
    the model.

    Raises
    ------
    ValueError, TypeError:
        For a model without such layers, and where they call other functions; nothing has been
        replaced then.
    """
    found = [(mixer, _ours_for("apply_to", mixer)) for mixer in _mixers("apply_to", model)]
    for mixer, ours in found:
        mixer.__class__ = ours
    return model


def restore(model: Model) -> Model:
    """Undoes :func:`apply_to`. Returns the model."""
    for mixer in _mixers("restore", model):
        mixer.__class__ = _class_of(mixer)
    return model


def _known(kind: type) -> tuple[str, tuple[str, ...]] | None:
    """The method that is replaced, and names that ``forward`` uses; None of an unknown layer."""
    bases = ((base.__module__, base.__name__) for base in kind.__mro__)
    return next((MIXERS[base] for base in bases if base in MIXERS), None)


def _class_of(mixer: torch.nn.Module) -> type:
    """The class of transformers, also of a layer that is replaced."""
    return vars(type(mixer)).get(_INSTEAD_OF, type(mixer))


def _mixers(call: str, model: object) -> list[torch.nn.Module]:
    if not isinstance(model, torch.nn.Module):
        arguments.refuse(call, "model", "a torch.nn.Module", type(model).__name__, TypeError)
    found = [x for x in model.modules() if _known(type(x)) is not None]
    if not found:
        names = " or ".join(sorted(name for _, name in MIXERS))
        expected = f"a model with layers of transformers: {names}"
        arguments.refuse(call, "model", expected, type(model).__name__)
    return found


def _ours_for(call: str, mixer: torch.nn.Module) -> type:
    """The subclass for a layer, which is checked before."""
    kind = _class_of(mixer)
    method, names = _known(kind)
    if method in vars(mixer):
        expected = f"layers whose {method} nobody has replaced"
        arguments.refuse(call, "model", expected, f"one of type {kind.__name__}")
    if not hasattr(kind, method) or not set(names) <= set(_layers(kind)[-1].__code__.co_names):
        expected = "layers that call " + ", ".join(names)
        arguments.refuse(call, "model", expected, f"{kind.__name__} of another version")
    return _ours(kind)


@cache
def _ours(kind: type) -> type:
    """The subclass that replaces a class of layers."""
    method, _ = _known(kind)

    def reduced(self, protocol):
        return _empty, (kind,), kind.__reduce_ex__(self, 2)[2]

    return type(kind)(
        kind.__name__,
        (kind,),
        {
            method: _rnn_scan if method == "_rnn_scan" else _forward(kind),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "__reduce_ex__": reduced,
            _INSTEAD_OF: kind,
        },
    )


def _empty(kind: type) -> torch.nn.Module:
    """A layer that pickle or copy is about to fill."""
    bare = kind.__new__(kind)
    bare.__class__ = _ours_for("apply_to", bare)
    return bare


def _layers(kind: type) -> list[FunctionType]:
    """The ``forward`` of a class, from the outermost decorator to the innermost function."""
    layers = [kind.forward]
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)
    return layers


def _forward(kind: type) -> FunctionType:
    """The ``forward`` of a class, with our functions."""
    *layers, inner = _layers(kind)
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


# ---- the functions, with the arguments that mixers call them with --------------------------------


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
