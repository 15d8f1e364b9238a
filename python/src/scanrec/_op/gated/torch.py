# SPDX-License-Identifier: BSD-3-Clause
"""``qrnn_pool`` in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, SupportsIndex, overload

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import aligned, boundary_tensor, check_tensor, common_dtype, reset_mask_of
from ..._types import Memory, Pool
from ..doc import documented
from ..spec import SEQUENCE_DOC
from .spec import GATES, QRNN_POOL_DOC
from .torch_rules import GatedProblem, gated_scan

__all__ = ["qrnn_pool"]


@overload
def qrnn_pool(
    pre: Tensor | Sequence[Tensor | float], initial_state: Tensor | float | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: Tensor | None = None, zoneout: Tensor | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def qrnn_pool(
    pre: Tensor | Sequence[Tensor | float], initial_state: Tensor | float | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: Tensor | None = None, zoneout: Tensor | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: Literal[True],
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def qrnn_pool(
    pre: Tensor | Sequence[Tensor | float], initial_state: Tensor | float | None = None, *,
    pool: Pool = "fo", axis: SupportsIndex = -2, reverse: bool = False,
    resets: Tensor | None = None, zoneout: Tensor | None = None, forget_bias: float = 0.0,
    memory: Memory = "store", return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@documented(SEQUENCE_DOC, QRNN_POOL_DOC)
def qrnn_pool(
    pre: Tensor | Sequence[Tensor | float],
    initial_state: Tensor | float | None = None,
    *,
    pool: Pool = "fo",
    axis: SupportsIndex = -2,
    reverse: bool = False,
    resets: Tensor | None = None,
    zoneout: Tensor | None = None,
    forget_bias: float = 0.0,
    memory: Memory = "store",
    return_final: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Tensors of any strides are read in place.

    Raises
    ------
    NotImplementedError:
        The call is under nested levels of forward mode that :func:`linear_scan` does not support.
    """
    call = "qrnn_pool"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    count = arguments.pool_size(call, pool)
    given = pre if isinstance(pre, (tuple, list)) else (pre,)
    packed = given is not pre
    names = ("pre",) if packed else GATES[:count]
    if len(given) != len(names):
        arguments.refuse(call, "pre", f"{count} tensors for pool '{pool}'", len(given))
    first = check_tensor(call, names[0], given[0])
    values = {**dict(zip(names, given)), "initial_state": initial_state}
    for name, x in values.items():
        if isinstance(x, complex) or (isinstance(x, Tensor) and x.is_complex()):
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            arguments.refuse(call, name, "a real type", got, TypeError)
    dtype, device = common_dtype(call, first, values), first.device
    arguments.check_real(call, names[0], str(dtype).removeprefix("torch."))
    shape = tuple(first.shape)
    axis, stack = arguments.time_axis(call, axis, shape), -1
    if packed:
        stack = arguments.stack_axis(call, shape, axis, count)
        apart, shape = arguments.unstacked(shape, stack, count)
        tensors = [torch.unflatten(first.to(dtype), stack, apart[stack : stack + 2])]
    else:
        tensors = [aligned(call, name, x, shape, dtype, device) for name, x in zip(names, given)]
    problem = GatedProblem(
        shape,
        axis,
        reverse,
        stack,
        forget_bias=arguments.number(call, "forget_bias", forget_bias),
        recompute=arguments.recomputes(call, memory),
    )
    output, final = gated_scan(
        problem,
        *(*tensors, *[None] * (len(GATES) - len(tensors))),
        boundary_tensor(call, initial_state, shape, axis, dtype, device),
        reset_mask_of(call, resets, shape, axis, device),
        reset_mask_of(call, zoneout, shape, axis, device, "zoneout"),
    )
    return (output, final.squeeze(axis)) if return_final else output
