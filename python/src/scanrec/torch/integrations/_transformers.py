# SPDX-License-Identifier: BSD-3-Clause
"""Replacement of the scans in Mamba mixers and the RG-LRU of Hugging Face transformers.

The class of a layer is changed to a subclass of it. A Mamba mixer calls its scan, and the
function for one step of generation, through global variables of its module. The ``forward`` of the
subclass is a copy for which these variables are our functions. The RG-LRU has its scan in a method,
which the subclass overrides. Other models in the process do not change.

The subclass has the same name as its base, so pickle would find the base. ``__reduce_ex__`` stores
the base, and loading makes the subclass again.
"""

from __future__ import annotations

from functools import cache
from types import CellType, FunctionType
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._op.conv1d.torch import causal_conv1d, causal_conv1d_update
from ..._op.linear.torch import linear_scan
from ..._op.selective.torch import selective_scan
from ..._op.selective.torch_step import selective_state_update

__all__ = ["apply_to", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)
Kind: TypeAlias = type[torch.nn.Module]

_MAMBA = (
    *("mamba_selective_scan", "mamba_selective_state_update"),
    *("causal_conv1d_fn", "causal_conv1d_update"),
)

#: The supported layers, by module and class. An entry has the method that is replaced, and names
#: that the ``forward`` of the class must use.
MIXERS = {
    ("transformers.models.mamba.modeling_mamba", "MambaMixer"):
        ("forward", (*_MAMBA, "mamba_inner_fn")),
    ("transformers.models.falcon_mamba.modeling_falcon_mamba", "FalconMambaMixer"):
        ("forward", (*_MAMBA, "mamba_inner_fn")),
    ("transformers.models.jamba.modeling_jamba", "JambaMambaMixer"): ("forward", _MAMBA),
    ("transformers.models.recurrent_gemma.modeling_recurrent_gemma", "RecurrentGemmaRglru"):
        ("_rnn_scan", ("_rnn_scan",)),
}  # fmt: skip
_INSTEAD_OF = "_scanrec_instead_of"  # an attribute of our subclass: the class that it replaces


def apply_to(model: Model) -> Model:
    """Replace the scans of a model of transformers by those of scanrec, in place.

    Mamba, FalconMamba and Jamba then call :func:`scanrec.torch.selective_scan` and
    :func:`scanrec.torch.causal_conv1d`. To generate, they call
    :func:`scanrec.torch.selective_state_update` and :func:`scanrec.torch.causal_conv1d_update`.
    RecurrentGemma calls :func:`scanrec.torch.linear_scan`. Parameters do not change, and results
    differ by rounding only. Copies of the model call the same functions, and so does a pickled
    model after loading.

    The function supports transformers 5.23, and other versions whose layers call the same functions
    of transformers. It returns the model.

    Raises
    ------
    ValueError, TypeError:
        The model is not a module or has no supported layer, or a layer calls other functions or
        has its own replacement of the method. Then nothing is replaced.
    """
    found = [(mixer, _ours_for(mixer)) for mixer in _mixers("apply_to", model)]
    for mixer, ours in found:
        mixer.__class__ = ours
    return model


def restore(model: Model) -> Model:
    """Undo :func:`apply_to`. Returns the model."""
    for mixer in _mixers("restore", model):
        mixer.__class__ = _class_of(mixer)
    return model


def _known(kind: Kind) -> tuple[str, tuple[str, ...]]:
    """The entry in ``MIXERS`` of a class or its nearest base, or empty values if none is listed."""
    bases = ((base.__module__, base.__name__) for base in kind.__mro__)
    return next((MIXERS[base] for base in bases if base in MIXERS), ("", ()))


def _class_of(mixer: torch.nn.Module) -> Kind:
    """The class that a layer had before :func:`apply_to`."""
    kind: Kind = vars(type(mixer)).get(_INSTEAD_OF, type(mixer))
    return kind


def _mixers(call: str, model: object) -> list[torch.nn.Module]:
    if not isinstance(model, torch.nn.Module):
        arguments.refuse(call, "model", "a torch.nn.Module", type(model).__name__, TypeError)
    found = [x for x in model.modules() if _known(type(x))[0]]
    if not found:
        names = " or ".join(sorted(name for _, name in MIXERS))
        expected = f"a model with layers of transformers: {names}"
        arguments.refuse(call, "model", expected, type(model).__name__)
    return found


def _ours_for(mixer: torch.nn.Module) -> Kind:
    """Return the subclass for a layer, after checks of the layer."""
    kind: Any = _class_of(mixer)
    method, names = _known(kind)
    if method in vars(mixer):
        expected = f"layers with their original {method}"
        arguments.refuse("apply_to", "model", expected, f"one of type {kind.__name__}")
    if not hasattr(kind, method) or not set(names) <= set(_layers(kind)[-1].__code__.co_names):
        expected = "layers that call " + ", ".join(names)
        arguments.refuse("apply_to", "model", expected, f"{kind.__name__} of another version")
    return _ours(kind)


@cache
def _ours(kind: Any) -> Kind:
    """Make the subclass that replaces a class of layers."""
    method, _ = _known(kind)

    def reduced(self: object, protocol: object) -> tuple[object, ...]:
        return _empty, (kind,), kind.__reduce_ex__(self, 2)[2]

    attributes = {
        method: _rnn_scan if method == "_rnn_scan" else _forward(kind),
        **{name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")},
        "__reduce_ex__": reduced,
        _INSTEAD_OF: kind,
    }
    ours: Kind = type(kind)(kind.__name__, (kind,), attributes)
    return ours


def _empty(kind: Kind) -> torch.nn.Module:
    """Return an empty layer, which pickle or copy fills."""
    bare = kind.__new__(kind)
    bare.__class__ = _ours_for(bare)
    return bare


def _layers(kind: Kind) -> list[Any]:
    """The decorators of a class's ``forward``, outermost first, and then the function itself."""
    layers = [kind.forward]
    while hasattr(layers[-1], "__wrapped__"):
        layers.append(layers[-1].__wrapped__)
    return layers


def _forward(kind: Kind) -> FunctionType:
    """Return a copy of a class's ``forward`` that calls our functions."""
    *layers, inner = _layers(kind)
    ours = _copy_of(inner, {**inner.__globals__, **_FUNCTIONS})
    for outer in reversed(layers):
        ours, inner = _copy_of(outer, outer.__globals__, inner, ours), outer
    return ours


def _copy_of(
    function: Any, names: dict[str, Any], instead_of: object = None, within: object = None
) -> FunctionType:
    """Copy a function, with other globals or with another wrapped function."""
    closure = function.__closure__ and tuple(
        CellType(within) if within is not None and cell.cell_contents is instead_of else cell
        for cell in function.__closure__
    )
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
    return copy


# ---- our functions, with the signatures that mixers expect ---------------------------------------


def _of_one_type(x: Tensor, *weights: Tensor | None) -> list[Any]:
    """Convert weights, which mixers keep in float32, to the type in which kernels compute for x."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return [None if w is None else w.to(dtype) for w in weights]


def _scan(
    hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, use_mambapy: bool = False, use_associative_scan: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Run the scan. The last two arguments select algorithms of transformers, and are ignored."""
    A, D, bias = _of_one_type(hidden_states, A, D, delta_bias)
    return selective_scan(hidden_states, dt, A, B, C, D, z, bias, delta_softplus, return_last_state)


def _update(
    state: Tensor, hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None = None, z: Tensor | None = None, dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
) -> Tensor:  # fmt: skip
    A, D, bias = _of_one_type(hidden_states, A, D, dt_bias)
    # Generation may run outside torch.no_grad(), but needs no gradients.
    with torch.no_grad():
        return selective_state_update(state, hidden_states, dt, A, B, C, D, z, bias, dt_softplus)


def _conv(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None,
    activation: str | None = None, seq_idx: Tensor | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    own, rest = _activations(activation)
    x = hidden_states.to(weight.dtype)
    out: Tensor = rest(causal_conv1d(x, weight, bias, seq_idx, activation=own))
    return out.to(hidden_states.dtype)


def _conv_update(
    hidden_states: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:  # fmt: skip
    own, rest = _activations(activation)
    # A cache may have another type than the model, but the kernel keeps states in the input type.
    x, state = hidden_states.to(weight.dtype), conv_state.to(weight.dtype)
    with torch.no_grad():
        out: Tensor = rest(causal_conv1d_update(x, state, weight, bias, own))
        if state is not conv_state:
            conv_state.copy_(state)
        return out.to(hidden_states.dtype)


def _activations(name: str | None) -> tuple[str | None, Any]:
    """Return the activation for the convolution, and a function to apply to its outputs."""
    if name in (None, "silu", "swish"):
        return name, lambda x: x
    from transformers.activations import ACT2FN

    return None, ACT2FN[name]


def _no_fused_layer(*arguments: Any, **options: Any) -> None:
    """Return None: there is no kernel for a whole layer, so mixers call the scan."""


def _rnn_scan(
    self: torch.nn.Module, hidden_states: Tensor, recurrent_gate: Tensor, reset: Tensor,
    recurrent_states: Tensor | None, acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Run the scan of the RG-LRU in acc_dtype."""
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
    "causal_conv1d_fn": _conv,
    "causal_conv1d_update": _conv_update,
    "mamba_inner_fn": _no_fused_layer,
}
