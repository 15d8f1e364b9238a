# SPDX-License-Identifier: BSD-3-Clause
"""QRNN pooling: arguments checked and aligned, then the function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, SupportsIndex, overload

from torch import Tensor

from .. import _arguments as arguments
from .._native import GATES
from .._types import Memory, Pool
from ._gated_functions import GatedProblem, gated_scan
from ._tensors import aligned, check_tensor, common_dtype, edge_tensor, marks, zoneout_marks

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
    """Pooling of a quasi-recurrent network along an axis, from pre-activations::

        state[t] = f[t] * state[t-1] + (1 - f[t]) * z[t]       "f", "fo"
        state[t] = f[t] * state[t-1] + i[t] * z[t]             "ifo"
        output[t] = state[t]                                   "f"
        output[t] = o[t] * state[t]                            "fo", "ifo"

    with ``z = tanh(candidate)`` and ``f``, ``o``, ``i`` the sigmoids of the pre-activations of
    forget, output and input gate. Activations, scan and output are one pass over memory, and so is
    the gradient. Differentiable in ``pre`` and ``initial_state``.

    Parameters
    ----------
    pre:
        One tensor ``(..., T, n * C)`` of the n = 2 (``"f"``), 3 or 4 pre-activations side by side,
        in the order candidate, forget gate, output gate, input gate; read in place, and so is its
        gradient written. Or a sequence of n tensors: the candidate, whose shape ``(..., T, C)`` is
        the result's, and gates of any shapes that broadcast to it. float16, bfloat16, float32,
        float64, any strides.
    initial_state:
        The state before the first step: any shape that broadcasts to that of the output without
        the axis of time. None is 0.
    pool:
        ``"f"``, ``"fo"`` or ``"ifo"``.
    axis:
        The axis of time. Packed pre-activations lie along the last other axis.
    reverse:
        Time runs from the end; ``initial_state`` is then the one after the last step.
    resets:
        Booleans that broadcast to the output, though not along time. Where one is set a sequence
        starts: the link between steps t-1 and t is cut, in either direction. There may be one step
        more of them, as in :func:`linear_scan`.
    zoneout:
        Booleans that broadcast to the output. Where one is set the state stays as it was, whatever
        the gates say. Nothing is rescaled.
    forget_bias:
        A number added to the pre-activation of the forget gate: 1 or 2 for networks that are to
        remember from the first step of training.
    memory:
        What a gradient will need besides ``pre``: ``"store"`` keeps the state of every step (with
        ``"f"`` the output is that), ``"recompute"`` that of every 128th, and computes those between
        anew: 1/128 of the memory, for about a fifth more time backward.
    return_final:
        Returns ``(output, final_state)``. The final state has the shape of the output without the
        axis of time, and is float32 for 16-bit types.

    Returns
    -------
    The outputs. 16-bit types are computed in float32 and rounded when stored.

    Raises
    ------
    ValueError, TypeError:
        Names the argument, what was expected and what came.
    NotImplementedError:
        As of ``linear_scan``.

    Notes
    -----
    Source: Bradbury et al., Quasi-Recurrent Neural Networks (2017), section 2.1; zoneout: Krueger
    et al. (2017). Forward mode and higher orders are composed of activations and scans.
    """
    call = "qrnn_pool"
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    count = arguments.pool_size(call, pool)
    packed = not isinstance(pre, (tuple, list))
    names = ("pre",) if packed else GATES[:count]
    given = (pre,) if packed else tuple(pre)
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
        tensors = [first.to(dtype).unflatten(stack, apart[stack : stack + 2])]
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
        edge_tensor(call, initial_state, shape, axis, dtype, device),
        marks(call, resets, shape, axis, device),
        zoneout_marks(call, zoneout, shape, device),
        *tensors,
    )
    return (output, final.squeeze(axis)) if return_final else output
