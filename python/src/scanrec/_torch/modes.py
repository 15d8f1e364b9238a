# SPDX-License-Identifier: BSD-3-Clause
"""Functions that tell which modes of PyTorch are active: differentiation, batching, tracing,
profiling, and other modes that intercept calls.

PyTorch has only private functions for most of these queries. Apart from ``saved_by_name`` of the
layers, the package uses private functions only in this file. It was tested with PyTorch
2.10 to 2.15.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import torch
import torch.autograd.forward_ad
from torch._C import _AutoDispatchBelowAutograd as below_autograd
from torch.overrides import has_torch_function

from .types import Maybe

try:
    from torch._C import (
        DispatchKey,
        DispatchKeySet,
        _dispatch_keys,
        _dispatch_tls_local_include_set,
    )
    from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]
except ImportError:  # another version of PyTorch: is_plain is False for all calls
    DispatchKey = None  # type: ignore[assignment, misc]

__all__ = ["alive", "below_autograd", "forward_ad", "in_graph", "is_distributed", "is_eager"]
__all__ += ["is_plain", "is_pushed", "is_recorded", "is_tracing", "levels", "uncompiled"]

# PyTorch has no type annotations for the following functions.
_Function = TypeVar("_Function", bound=Callable[..., Any])
forward_ad: Any = torch.autograd.forward_ad
in_graph: Callable[[_Function], _Function] = torch.compiler.allow_in_graph
uncompiled: Callable[[_Function], _Function] = torch.compiler.disable
is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


def is_distributed(x: object) -> bool:
    """Whether a tensor is a DTensor. The function does not import the module of DTensors."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(x, tensors.DTensor)


def is_recorded(*tensors: Maybe) -> bool:
    """Whether autograd, forward mode or a transformation of torch.func may have to process a call
    with these tensors. If not, callers run the operator directly, which takes half the time."""
    if not is_eager():
        return True
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def is_eager() -> bool:
    """Whether neither a transformation of torch.func nor forward mode is active."""
    return torch._C._functorch.peek_interpreter_stack() is None and forward_ad._current_level < 0


def is_pushed(*tensors: Maybe) -> bool:
    """Whether forward mode may differentiate a call with these tensors."""
    if names := levels():  # wrappers of torch.func hide tangents of forward_ad
        return "Jvp" in names or forward_ad._current_level >= 0
    if forward_ad._current_level < 0:
        return False
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def alive(x: Maybe) -> Maybe:
    """Return a tensor without the wrappers of transformations of torch.func that have ended.
    PyTorch removes these wrappers for operators but not for autograd functions.
    ``unwrap_if_dead`` removes one wrapper at a time."""
    inner = None if x is None else torch._C._functorch.unwrap_if_dead(x)
    return x if inner is x else alive(inner)


def levels() -> list[str]:
    """The names of the active transformations of torch.func ("levels" in PyTorch), the innermost
    last: "Grad", "Jvp", "Vmap" and others."""
    functorch = torch._C._functorch
    if functorch.peek_interpreter_stack() is None:
        return []
    return [level.key().name for level in functorch.get_interpreter_stack()]


def _number_of(*names: str) -> int:
    """A set of dispatch keys, as a number."""
    return reduce(or_, (DispatchKeySet(getattr(DispatchKey, name)) for name in names)).raw_repr()


# The dispatch keys of dense tensors on a CPU, and the keys that a thread adds if no mode is active.
# Each set occurs with and without the keys of autograd, which inference mode omits. Lazily
# conjugated views, and tensors that are wrapped, sparse or on other devices have other keys. Modes
# that trace add keys. The profiler adds none, so is_plain tests for it separately.
_TENSOR: frozenset[int] = frozenset()
_THREAD: frozenset[int] = frozenset()
if DispatchKey is not None:
    _TENSOR = frozenset((
        _number_of("CPU", "AutocastCPU"),
        _number_of("CPU", "AutocastCPU", "AutogradCPU", "ADInplaceOrView"),
    ))  # fmt: skip
    _THREAD = frozenset((
        _number_of("BackendSelect"),
        _number_of("BackendSelect", "ADInplaceOrView"),
    ))  # fmt: skip


def is_plain(*tensors: Maybe) -> bool:
    """Whether the dispatcher would only run a kernel for CPUs on these tensors."""
    if not _THREAD or is_recorded(*tensors) or has_torch_function(tensors):
        return False
    if _profiler_enabled():
        return False
    if _dispatch_tls_local_include_set().raw_repr() not in _THREAD:
        return False
    return all(x is None or _dispatch_keys(x).raw_repr() in _TENSOR for x in tensors)
