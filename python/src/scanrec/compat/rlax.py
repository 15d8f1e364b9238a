# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for RLax's returns, advantages and V-trace.

As in RLax, a call has one sequence, and ``jax.vmap`` makes a batch of calls. Arrays are ``(T,)``
unless a docstring says otherwise. T may be 0, for which most of the original's functions raise.
With ``stop_target_gradients`` no gradients flow through the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from scanrec import _arguments as arguments
from scanrec._jax.arrays import array_of
from scanrec.jax import linear_scan

from ._calls import named
from ._jax import array

__all__ = [
    "discounted_returns",
    "general_off_policy_returns_from_action_values",
    "general_off_policy_returns_from_q_and_v",
    "importance_corrected_td_errors",
    "lambda_returns",
    "leaky_vtrace",
    "leaky_vtrace_td_error_and_advantage",
    "truncated_generalized_advantage_estimation",
    "vtrace",
    "vtrace_td_error_and_advantage",
]


class VTraceOutput(NamedTuple):
    """Errors, policy gradient advantages, and estimates of action values."""

    errors: jax.Array
    pg_advantage: jax.Array
    q_estimate: jax.Array


def lambda_returns(
    r_t: Any,
    discount_t: Any,
    v_t: Any,
    lambda_: Any = 1.0,
    stop_target_gradients: bool = False,
) -> jax.Array:
    """Compute ``G[t] = r[t] + discount[t] * ((1 - lambda_) * v[t] + lambda_ * G[t+1])``.

    The last element of ``v_t`` takes the place of ``G[T]``. ``lambda_`` may be a number.
    """
    call = "lambda_returns"
    r_t, discount_t, v_t = _sequences(call, r_t=r_t, discount_t=discount_t, v_t=v_t)
    lambda_ = _mixing(call, lambda_, r_t)
    mixed = r_t + discount_t * (1 - lambda_) * v_t
    returns = linear_scan(discount_t * lambda_, mixed, _last(v_t), axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, returns)


def discounted_returns(
    r_t: Any, discount_t: Any, v_t: Any, stop_target_gradients: bool = False
) -> jax.Array:
    """Compute ``G[t] = r[t] + discount[t] * G[t+1]``.

    The last element of ``v_t``, or ``v_t`` itself if it is a number, takes the place of ``G[T]``.
    """
    call = "discounted_returns"
    r_t, discount_t = _sequences(call, r_t=r_t, discount_t=discount_t)
    last = _last(jnp.broadcast_to(_mixing(call, v_t, r_t, "v_t"), r_t.shape))
    returns = linear_scan(discount_t, r_t, last, axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, returns)


def importance_corrected_td_errors(
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any,
    values: Any,
    stop_target_gradients: bool = False,
) -> jax.Array:
    """Compute ``rho[t] * E[t]``.

    ``E[t]`` is ``delta[t] + discount[t] * rho[t+1] * lambda_ * E[t+1]``, with the ``delta`` and
    ``values`` of :func:`truncated_generalized_advantage_estimation`. With
    ``stop_target_gradients``, only ``values[:-1]`` has gradients.
    """
    call = "importance_corrected_td_errors"
    r_t, discount_t, rho = _sequences(call, r_t=r_t, discount_t=discount_t, rho_tm1=rho_tm1)
    values = array(call, "values", values, shape=(r_t.shape[0] + 1,))
    v_tm1 = values[:-1]
    delta = r_t + discount_t * values[1:] - v_tm1
    ahead = jnp.concatenate((rho[1:], jnp.ones_like(rho[:1])))
    gate = discount_t * ahead * _mixing(call, lambda_, r_t)
    errors = rho * linear_scan(gate, delta, axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, errors, v_tm1)


def truncated_generalized_advantage_estimation(
    r_t: Any,
    discount_t: Any,
    lambda_: Any,
    values: Any,
    stop_target_gradients: bool = False,
) -> jax.Array:
    """Compute ``A[t] = delta[t] + discount[t] * lambda_ * A[t+1]``.

    ``delta[t]`` is ``r[t] + discount[t] * values[t+1] - values[t]``. ``values`` is ``(T + 1,)``.
    """
    call = "truncated_generalized_advantage_estimation"
    r_t, discount_t = _sequences(call, r_t=r_t, discount_t=discount_t)
    values = array(call, "values", values, shape=(r_t.shape[0] + 1,))
    delta = r_t + discount_t * values[1:] - values[:-1]
    gate = discount_t * _mixing(call, lambda_, r_t)
    advantages = linear_scan(gate, delta, axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, advantages)


def general_off_policy_returns_from_action_values(
    q_t: Any,
    a_t: Any,
    r_t: Any,
    discount_t: Any,
    c_t: Any,
    pi_t: Any,
    stop_target_gradients: bool = False,
) -> jax.Array:
    """Compute :func:`general_off_policy_returns_from_q_and_v` from action values.

    ``q_t`` and the policies ``pi_t`` are ``(K, A)``, and the actions ``a_t`` and ``c_t`` are
    ``(K,)``. The last element of ``c_t`` is not used.
    """
    call = "general_off_policy_returns_from_action_values"
    q_t = array(call, "q_t", q_t, axes="(K, A)")
    pi_t = array(call, "pi_t", pi_t, shape=q_t.shape)
    a_t = array_of(call, "a_t", a_t)
    if not jnp.issubdtype(a_t.dtype, jnp.integer):
        arguments.refuse(call, "a_t", "integers", a_t.dtype, TypeError)
    arguments.check_shape(call, "a_t", a_t.shape, q_t.shape[:1], equal=True)
    chosen = jnp.take_along_axis(q_t, a_t[:, None], axis=-1)[:, 0]
    c_t = array(call, "c_t", c_t, shape=q_t.shape[:1])
    return _off_policy(
        call, chosen[:-1], (pi_t * q_t).sum(-1), r_t, discount_t, c_t[:-1], stop_target_gradients
    )


def general_off_policy_returns_from_q_and_v(
    q_t: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    c_t: Any,
    stop_target_gradients: bool = False,
) -> jax.Array:
    """Compute ``G[t] = r[t] + discount[t] * (v[t] - c[t] * q[t] + c[t] * G[t+1])``.

    The last return is ``r + discount * v``. ``q_t`` and ``c_t`` are ``(K - 1,)``, the others
    ``(K,)``.
    """
    call = "general_off_policy_returns_from_q_and_v"
    return _off_policy(call, q_t, v_t, r_t, discount_t, c_t, stop_target_gradients)


def _vtrace(
    call: str,
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha_: Any = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> jax.Array:
    """Compute ``E[t] = delta[t] + discount * clip(1) * lambda_ * E[t+1]``.

    ``delta`` is ``clip(clip_rho_threshold) * (r + discount * v_t - v_tm1)``. ``clip(x)`` is
    ``min(x, rho)``, or ``(1 - alpha_) * rho + alpha_ * min(x, rho)`` in the leaky functions. Where
    ``sample_mask`` is False the error is that of the next step. With ``stop_target_gradients``,
    only ``v_tm1`` has gradients.
    """
    array_of(call, "alpha_" if call == "leaky_vtrace" else "alpha", alpha_)
    array_of(call, "clip_rho_threshold", clip_rho_threshold)
    v_tm1, v_t, r_t, discount_t, rho = _sequences(
        call, v_tm1=v_tm1, v_t=v_t, r_t=r_t, discount_t=discount_t, rho_tm1=rho_tm1
    )
    gate = discount_t * (_clipped(rho, 1.0, alpha_) * _mixing(call, lambda_, v_tm1))
    input = _clipped(rho, clip_rho_threshold, alpha_) * (r_t + discount_t * v_t - v_tm1)
    if sample_mask is not None:
        mask = array_of(call, "sample_mask", sample_mask)
        if mask.dtype != jnp.bool_:
            arguments.refuse(call, "sample_mask", "booleans", mask.dtype, TypeError)
        arguments.check_shape(call, "sample_mask", mask.shape, v_tm1.shape, equal=True)
        gate, input = jnp.where(mask, gate, 1), jnp.where(mask, input, 0)
    errors = linear_scan(gate, input, axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, errors, v_tm1)


def _vtrace_and_advantage(
    call: str,
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha: Any = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> VTraceOutput:
    """Compute :func:`vtrace`, the action values that its targets estimate, and their advantages."""
    array_of(call, "clip_pg_rho_threshold", clip_pg_rho_threshold)
    given = v_tm1, v_t, r_t, discount_t, rho_tm1
    options = alpha, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    errors = _vtrace(call, *given, *options)
    v_tm1, v_t, r_t, discount_t, rho = map(jnp.asarray, given)
    mixing = jnp.broadcast_to(_mixing(call, lambda_, v_tm1), v_tm1.shape)[:-1]
    targets = errors + v_tm1
    ahead = mixing * targets[1:] + (1 - mixing) * v_tm1[1:]
    q_estimate = r_t + discount_t * jnp.concatenate((ahead, v_t[-1:]))
    advantage = _clipped(rho, clip_pg_rho_threshold, alpha) * (q_estimate - v_tm1)
    return VTraceOutput(errors=errors, pg_advantage=advantage, q_estimate=q_estimate)


vtrace: Callable[..., jax.Array] = named("vtrace", _vtrace, alpha_=1.0)
leaky_vtrace: Callable[..., jax.Array] = named("leaky_vtrace", _vtrace)
vtrace_td_error_and_advantage: Callable[..., VTraceOutput] = named(
    "vtrace_td_error_and_advantage", _vtrace_and_advantage, alpha=1.0
)
leaky_vtrace_td_error_and_advantage: Callable[..., VTraceOutput] = named(
    "leaky_vtrace_td_error_and_advantage", _vtrace_and_advantage
)


def _sequences(call, **given):
    """Return real arrays of one axis and one length."""
    arrays, shape = [], None
    for name, value in given.items():
        x = array(call, name, value, axes="(T,)", shape=shape)
        if jnp.iscomplexobj(x):
            arguments.refuse(call, name, "a real type", x.dtype.name, TypeError)
        arrays.append(x)
        shape = x.shape
    return arrays


def _mixing(call, value, sequence, name="lambda_"):
    """Return a number, or one of each step."""
    dtype = None if isinstance(value, jax.Array) else sequence.dtype
    array_of(call, name, value)
    value = jnp.asarray(value, dtype)
    if value.ndim:
        arguments.check_shape(call, name, value.shape, sequence.shape, equal=True)
    return value


def _last(x):
    """Return the last element, or 0 if T is 0."""
    return x[-1] if x.shape[0] else jnp.zeros((), x.dtype)


def _clipped(rho, threshold, alpha):
    clipped = jnp.minimum(threshold, rho)
    if isinstance(alpha, float) and alpha == 1.0:
        return clipped
    return (1 - alpha) * rho + alpha * clipped


def _stopped(call, stop, x, values=None):
    """Stop the gradients of ``x + values``, or of ``x``, if ``stop``, which may be an array."""
    if values is None:
        stopped = jax.lax.stop_gradient(x)
    else:
        stopped = jax.lax.stop_gradient(x + values) - values
    if isinstance(stop, bool):
        return stopped if stop else x
    return jnp.where(array_of(call, "stop_target_gradients", stop).astype(bool), stopped, x)


def _off_policy(call, q_t, v_t, r_t, discount_t, c_t, stop):
    v_t, r_t, discount_t = _sequences(call, v_t=v_t, r_t=r_t, discount_t=discount_t)
    short = (max(0, v_t.shape[0] - 1),)
    q_t, c_t = (array(call, name, x, shape=short) for name, x in (("q_t", q_t), ("c_t", c_t)))
    last = r_t[-1:] + discount_t[-1:] * v_t[-1:]
    input = r_t[:-1] + discount_t[:-1] * (v_t[:-1] - c_t * q_t)
    returns = linear_scan(discount_t[:-1] * c_t, input, _last(last), axis=0, reverse=True)
    return _stopped(call, stop, jnp.concatenate((returns, last)))
