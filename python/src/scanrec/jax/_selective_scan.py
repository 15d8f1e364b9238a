# SPDX-License-Identifier: BSD-3-Clause
"""The selective scan and a step of it: arguments brought to three axes, then the primitive."""

from __future__ import annotations

from math import prod
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import _arguments as arguments
from . import _selective_rules  # noqa: F401 (registers how the primitives differentiate)
from ._arrays import aligned, is_known, marks_of
from ._selective_arguments import Given
from ._selective_primitives import SelectiveProblem, bind_selective
from ._sharding import varying_alike
from ._types import ArrayLike

__all__ = ["selective_scan", "selective_state_update"]


@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: Literal[False] = False,
) -> jax.Array: ...  # fmt: skip
@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: Literal[True],
) -> tuple[jax.Array, jax.Array]: ...  # fmt: skip
@overload
def selective_scan(
    u: ArrayLike, delta: ArrayLike, A: ArrayLike, B: ArrayLike, C: ArrayLike,
    D: ArrayLike | None = None, z: ArrayLike | None = None, delta_bias: ArrayLike | None = None, *,
    delta_softplus: bool = False, initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None, intervals: ArrayLike | None = None, reverse: bool = False,
    return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...  # fmt: skip
def selective_scan(
    u: ArrayLike,
    delta: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike,
    D: ArrayLike | None = None,
    z: ArrayLike | None = None,
    delta_bias: ArrayLike | None = None,
    *,
    delta_softplus: bool = False,
    initial_state: ArrayLike | None = None,
    resets: ArrayLike | None = None,
    intervals: ArrayLike | None = None,
    reverse: bool = False,
    return_final: bool = False,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """The recurrence of Mamba::

        step[t] = softplus(delta[t] + delta_bias)             or delta[t] + delta_bias
        x[t] = exp(step[t] A) x[t-1] + step[t] B[t] u[t]      N states per channel
        out[t] = (sum(C[t] x[t]) + D u[t]) silu(z[t])       2 Re(sum) where A is complex

    Value and gradient are one pass over memory each; the N states stay in registers. Differentiable
    in all arrays but ``resets``.

    Parameters
    ----------
    u:
        ``(..., T, D)``. Its shape is the result's.
    delta, z:
        The shape of ``u``. Without ``z`` outputs are not gated.
    A:
        ``(D, N)``, float32 or float64, or complex of them: the type of states. The others are of
        its real type, each of its own: with 32 bits they may be bfloat16 and float16, too.
    B, C:
        ``(..., T, N)``, or ``(..., T, G, N)`` for G groups of channels, with the axes of ``u``
        before them. Where ``u`` has more than two axes also ``(D, N)``, the same at all steps.
        Complex, where ``A`` is; those of every step may also be real, with ``2 N`` numbers that are
        the parts of complex ones, side by side.
    D, delta_bias:
        ``(D,)``. None is 0.
    delta_softplus:
        Whether steps are ``softplus(delta + delta_bias)``, which is its argument above 20.
    initial_state:
        The state before the first step: any shape that broadcasts to ``(..., D, N)``. None is 0.
    resets:
        Booleans that broadcast to ``u``, though not along time: ``(B, T, 1)``, say. Where one is
        set a sequence starts: the link between steps t-1 and t is cut, in either direction. There
        may be one step more of them, as in :func:`linear_scan`.
    intervals:
        For samples at irregular times, any shape that broadcasts to ``(..., T)``: the factor of all
        steps at each.
    reverse:
        Time runs from the end; ``initial_state`` is then the one after the last step, and the final
        state that of the first.
    return_final:
        Returns ``(out, final_state)``, the latter ``(..., D, N)`` in the type of ``A``.

    Returns
    -------
    The outputs, in the type of ``u``.

    Raises
    ------
    ValueError, TypeError:
        When called or traced; names the argument, what was expected and what came.
    RuntimeError:
        When a program is compiled for a GPU, and the package was built without kernels for them.

    Notes
    -----
    Reverse mode keeps the states before every 128 steps, and computes those in between anew.
    Forward mode and what is differentiated more than once is composed of elementwise operations and
    scans, with arrays of ``(..., T, D, N)``. ``vmap`` makes more sequences of a batch, or more
    channels where weights, or gradients of weights, differ within it. Gradients of complex arrays
    are JAX's: transposes, without conjugates. Results do not depend on the number of threads.

    Source: Gu and Dao, Mamba: Linear-time sequence modeling with selective state spaces (2023).
    """
    call = "selective_scan"
    softplus = arguments.flag(call, "delta_softplus", delta_softplus)
    reverse = arguments.flag(call, "reverse", reverse)
    return_final = arguments.flag(call, "return_final", return_final)
    given = Given(call, "u", ("T", "D"), u, A)
    shape, lead = given.shape, given.shape[:-2]
    steps, channels = shape[-2:]
    arrays = {
        "u": given.first,
        "delta": given.same("delta", delta),
        "a": given.a,
        "b": given.mixing("B", B, (*lead, steps)),
        "c": given.mixing("C", C, (*lead, steps)),
        **given.others(D, z, "delta_bias", delta_bias),
    }
    edge = (*lead, channels, given.states)
    if initial_state is not None:
        first = given.typed("initial_state", initial_state, may_be_complex=True)
        first = aligned(call, "initial_state", first, edge, given.a.dtype)
        arrays["initial_state"] = jnp.broadcast_to(first, edge)
    if resets is not None:
        marks = marks_of(call, resets, shape, len(shape) - 2)
        if any(n != 1 for n in marks.shape[:-2]):
            marks = jnp.broadcast_to(marks, (*lead, *marks.shape[-2:]))
        arrays["resets"] = marks
    if intervals is not None:
        times = given.typed("intervals", intervals)
        times = aligned(call, "intervals", times, shape[:-1], given.real)
        arrays["intervals"] = jnp.broadcast_to(times, shape[:-1])
    out, final = _scan(arrays, lead, softplus, reverse, return_final)
    return (out, final) if return_final else out


def selective_state_update(
    state: ArrayLike,
    x: ArrayLike,
    dt: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike,
    D: ArrayLike | None = None,
    z: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    *,
    dt_softplus: bool = False,
    state_batch_indices: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """One step of :func:`selective_scan`, for decoding: outputs, and the state after it.
    Differentiable likewise.

    Parameters
    ----------
    state:
        ``(..., D, N)``: what a scan or a step before has returned. In a type of 16 bits it is
        rounded at every step; complex, where ``A`` is.
    x, dt, z:
        ``(..., D)``.
    A, D, dt_bias, dt_softplus:
        As in :func:`selective_scan`.
    B, C:
        ``(..., N)``, or ``(..., G, N)`` for G groups of channels; or the parts of complex ones.
    state_batch_indices:
        Integers ``(...)``, each another: the rows of ``state``, then ``(S, D, N)`` for any S, that
        these are the steps of. The other rows stay as they are. Rows that there are not, such as
        -1, are padding: outputs are those of a state of 0, which is written nowhere.

    Returns
    -------
    ``(out, state)``, in the types of ``x`` and ``state``, and the latter in its shape.

    Raises
    ------
    ValueError, TypeError, NotImplementedError:
        As of :func:`selective_scan`.
    """
    call = "selective_state_update"
    softplus = arguments.flag(call, "dt_softplus", dt_softplus)
    given = Given(call, "x", ("D",), x, A)
    lead, channels = given.shape[:-1], given.shape[-1]
    state = given.typed("state", state, may_be_complex=True)
    if jnp.iscomplexobj(state) != jnp.iscomplexobj(given.a):
        expected = f"{given.a.dtype}, as 'A' is"
        arguments.refuse(call, "state", expected, state.dtype, TypeError)
    rows = state_batch_indices
    # Of what is held for other sequences, too, every number of rows will do.
    held = lead if rows is None else state.shape[:1]
    arguments.check_shape(call, "state", state.shape, (*held, channels, given.states), equal=True)
    if rows is not None:
        rows = _rows_of(call, rows, lead, state.shape[0])
    now = state if rows is None else state.at[rows].get(mode="fill", fill_value=0)
    arrays = {
        "u": given.first,
        "delta": given.same("dt", dt),
        "b": given.mixing("B", B, lead, of_channels=False),
        "c": given.mixing("C", C, lead, of_channels=False),
        **given.others(D, z, "dt_bias", dt_bias),
    }
    for name, axis in (("u", -2), ("delta", -2), ("z", -2), ("b", -3), ("c", -3)):
        if name in arrays:
            arrays[name] = jnp.expand_dims(arrays[name], axis)
    arrays |= {"a": given.a, "initial_state": now.astype(given.a.dtype)}
    out, final = _scan(arrays, lead, softplus, False, True)
    out, final = jax.lax.squeeze(out, (out.ndim - 2,)), final.astype(state.dtype)
    return out, final if rows is None else state.at[rows].set(final, mode="drop")


def _rows_of(call, rows, lead, held):
    """The rows of a state that is held for more sequences than these; padding is behind the
    last."""
    name = "state_batch_indices"
    if not isinstance(rows, jax.Array):
        rows = np.asarray(rows)
    if rows.dtype.name not in ("int32", "int64"):
        arguments.refuse(call, name, "int32 or int64", rows.dtype, TypeError)
    arguments.check_shape(call, name, rows.shape, lead, equal=True)
    if held < 1:
        arguments.refuse(call, "state", "1 row or more", held)
    if is_known(rows):
        found = [row for row in np.ravel(rows).tolist() if 0 <= row < held]
        if len(set(found)) < len(found):
            arguments.refuse(call, name, "every row of 'state' once at most", np.asarray(rows))
    return jnp.where(rows < 0, held, rows)  # below 0 JAX would count from the end


def _scan(arrays, lead, softplus, reverse, with_final):
    """(outputs, final state or None) of arrays with these axes in front."""
    batch = prod(lead)
    if len(lead) != 1:
        for name, x in arrays.items():
            rest = x.ndim - len(lead)
            if name in ("a", "skip", "delta_bias") or (name in ("b", "c") and x.ndim == 2):
                continue
            whole = all(n == 1 for n in x.shape[: len(lead)])
            arrays[name] = x.reshape(1 if whole else batch, *x.shape[x.ndim - rest :])
    problem = SelectiveProblem(softplus, reverse)
    wanted = ("out", "final_state") if with_final else ("out",)
    out = bind_selective("selective_scan", problem, varying_alike(arrays), wanted)
    if len(lead) != 1:
        out = {name: x.reshape(*lead, *x.shape[1:]) for name, x in out.items()}
    return out["out"], out.get("final_state")
