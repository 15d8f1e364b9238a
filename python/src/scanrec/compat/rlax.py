# SPDX-License-Identifier: BSD-3-Clause
"""Stands in for RLax's returns, advantages and V-trace.

As in RLax, a call processes one sequence, and ``jax.vmap`` makes a batch of calls. Arrays are
``(T,)`` unless a docstring says otherwise. T may be 0. Most of the original's functions raise then.
With ``stop_target_gradients`` no gradients flow through the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from scanrec import _arguments as arguments
from scanrec._jax.arrays import array_of
from scanrec._jax.types import ArrayLike
from scanrec.jax import linear_scan

from ._calls import ABSENT, named
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

_Function: TypeAlias = Callable[..., Array]


class VTraceOutput(NamedTuple):
    """Errors, policy gradient advantages, and estimates of action values."""

    errors: Array
    pg_advantage: Array
    q_estimate: Array


def _returns(
    call: str,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
) -> Array:
    """Compute ``G[t] = r[t] + discount[t] * ((1 - lambda_) * v[t] + lambda_ * G[t+1])``.

    ``G[T]`` is the last element of ``v_t``. ``lambda_`` may be a number. In ``discounted_returns``
    it is 1, and ``v_t`` may be a number too.
    """
    r, discount = _sequences(call, r_t=r_t, discount_t=discount_t)
    if lambda_ is ABSENT:
        v = jnp.broadcast_to(_mixing(call, v_t, r, "v_t"), r.shape)
        gate, input = discount, r
    else:
        v, mixing = array(call, "v_t", v_t, shape=r.shape, real=True), _mixing(call, lambda_, r)
        gate, input = discount * mixing, r + discount * (1 - mixing) * v
    returns = linear_scan(gate, input, _last(v), axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, returns)


lambda_returns: _Function = named("lambda_returns", _returns)
discounted_returns: _Function = named("discounted_returns", _returns, lambda_=ABSENT)


def _corrected(
    call: str,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike,
    values: ArrayLike,
    stop_target_gradients: bool = False,
) -> Array:
    """Compute ``A[t] = delta[t] + discount[t] * rho[t+1] * lambda_ * A[t+1]``.

    ``delta[t]`` is ``r[t] + discount[t] * values[t+1] - values[t]``. ``values`` is ``(T + 1,)``.
    ``importance_corrected_td_errors`` returns ``rho * A``. With ``stop_target_gradients``, this
    result has gradients with respect to ``values[:-1]`` only.

    ``truncated_generalized_advantage_estimation`` returns ``A`` for weights ``rho`` of 1. With
    ``stop_target_gradients``, it has no gradients.
    """
    r, discount = _sequences(call, r_t=r_t, discount_t=discount_t)
    v = array(call, "values", values, shape=(r.shape[0] + 1,))
    gate, delta = discount * _mixing(call, lambda_, r), r + discount * v[1:] - v[:-1]
    if rho_tm1 is ABSENT:
        advantages = linear_scan(gate, delta, axis=0, reverse=True)
        return _stopped(call, stop_target_gradients, advantages)
    rho = array(call, "rho_tm1", rho_tm1, shape=r.shape, real=True)
    gate = gate * jnp.concatenate((rho[1:], jnp.ones_like(rho[:1])))
    errors = rho * linear_scan(gate, delta, axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, errors, v[:-1])


importance_corrected_td_errors: _Function = named("importance_corrected_td_errors", _corrected)
truncated_generalized_advantage_estimation: _Function = named(
    "truncated_generalized_advantage_estimation", _corrected, rho_tm1=ABSENT
)


def general_off_policy_returns_from_action_values(
    q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    pi_t: ArrayLike,
    stop_target_gradients: bool = False,
) -> Array:
    """Compute the returns of :func:`general_off_policy_returns_from_q_and_v` from action values.

    ``q_t`` and the policies ``pi_t`` are ``(K, A)``. The other arrays are ``(K,)``. ``a_t`` has the
    actions. The last elements of ``a_t`` and ``c_t`` are not used.
    """
    call = "general_off_policy_returns_from_action_values"
    q = array(call, "q_t", q_t, axes="(K, A)")
    pi = array(call, "pi_t", pi_t, shape=q.shape)
    actions = array_of(call, "a_t", a_t)
    if not jnp.issubdtype(actions.dtype, jnp.integer):
        arguments.refuse(call, "a_t", "integers", actions.dtype, TypeError)
    arguments.check_shape(call, "a_t", actions.shape, q.shape[:1], equal=True)
    chosen = jnp.take_along_axis(q, actions[:, None], axis=-1)[:-1, 0]
    c = array(call, "c_t", c_t, shape=q.shape[:1])[:-1]
    return _off_policy(call, chosen, (pi * q).sum(-1), r_t, discount_t, c, stop_target_gradients)


def _off_policy(
    call: str,
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    stop_target_gradients: bool = False,
) -> Array:
    """Compute ``G[t] = r[t] + discount[t] * (v[t] - c[t] * q[t] + c[t] * G[t+1])``.

    The last return is ``r + discount * v``. ``q_t`` and ``c_t`` are ``(K - 1,)``, the others
    ``(K,)``.
    """
    v, r, discount = _sequences(call, v_t=v_t, r_t=r_t, discount_t=discount_t)
    short = (max(0, v.shape[0] - 1),)
    q, c = array(call, "q_t", q_t, shape=short), array(call, "c_t", c_t, shape=short)
    last = r[-1:] + discount[-1:] * v[-1:]
    input = r[:-1] + discount[:-1] * (v[:-1] - c * q)
    returns = linear_scan(discount[:-1] * c, input, _last(last), axis=0, reverse=True)
    return _stopped(call, stop_target_gradients, jnp.concatenate((returns, last)))


general_off_policy_returns_from_q_and_v: _Function = named(
    "general_off_policy_returns_from_q_and_v", _off_policy
)


def _vtrace(
    call: str,
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha_: ArrayLike = 1.0,
    alpha: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
) -> Any:
    """Compute ``E[t] = delta[t] + discount * clip(1) * lambda_ * E[t+1]``.

    ``delta`` is ``clip(clip_rho_threshold) * (r + discount * v_t - v_tm1)``. ``clip(x)`` is
    ``min(x, rho)``, or ``(1 - alpha) * rho + alpha * min(x, rho)`` in the leaky functions. In
    ``leaky_vtrace`` the name of ``alpha`` is ``alpha_``. Where ``sample_mask`` is False, the error
    equals that of the next step. With ``stop_target_gradients``, ``E`` has gradients with respect
    to ``v_tm1`` only.

    ``vtrace`` and ``leaky_vtrace`` return ``E``. The other functions return a
    :class:`VTraceOutput`, whose ``errors`` are ``E``. Its ``q_estimate`` has estimates of action
    values from the targets ``E + v_tm1``. Its ``pg_advantage`` is
    ``clip(clip_pg_rho_threshold) * (q_estimate - v_tm1)``.
    """
    name, leak = ("alpha", alpha) if alpha_ is ABSENT else ("alpha_", alpha_)
    array_of(call, name, leak)
    array_of(call, "clip_rho_threshold", clip_rho_threshold)
    before, after, r, discount, rho = _sequences(
        call, v_tm1=v_tm1, v_t=v_t, r_t=r_t, discount_t=discount_t, rho_tm1=rho_tm1
    )
    mixing = _mixing(call, lambda_, before)
    gate = discount * (_clipped(rho, 1.0, leak) * mixing)
    input = _clipped(rho, clip_rho_threshold, leak) * (r + discount * after - before)
    if sample_mask is not None:
        mask = array(call, "sample_mask", sample_mask, shape=before.shape, boolean=True)
        gate, input = jnp.where(mask, gate, 1), jnp.where(mask, input, 0)
    errors = linear_scan(gate, input, axis=0, reverse=True)
    errors = _stopped(call, stop_target_gradients, errors, before)
    if clip_pg_rho_threshold is ABSENT:
        return errors
    array_of(call, "clip_pg_rho_threshold", clip_pg_rho_threshold)
    mixing, targets = jnp.broadcast_to(mixing, before.shape)[:-1], errors + before
    ahead = mixing * targets[1:] + (1 - mixing) * before[1:]
    q_estimate = r + discount * jnp.concatenate((ahead, after[-1:]))
    advantage = _clipped(rho, clip_pg_rho_threshold, leak) * (q_estimate - before)
    return VTraceOutput(errors=errors, pg_advantage=advantage, q_estimate=q_estimate)


vtrace: _Function = named("vtrace", _vtrace, alpha_=ABSENT, alpha=1.0, clip_pg_rho_threshold=ABSENT)
leaky_vtrace: _Function = named("leaky_vtrace", _vtrace, alpha=ABSENT, clip_pg_rho_threshold=ABSENT)
vtrace_td_error_and_advantage: Callable[..., VTraceOutput] = named(
    "vtrace_td_error_and_advantage", _vtrace, alpha_=ABSENT, alpha=1.0
)
leaky_vtrace_td_error_and_advantage: Callable[..., VTraceOutput] = named(
    "leaky_vtrace_td_error_and_advantage", _vtrace, alpha_=ABSENT
)


def _sequences(call: str, **given: ArrayLike) -> list[Array]:
    """Return the values as real arrays of one axis, which have equal lengths."""
    arrays: list[Array] = []
    for name, value in given.items():
        shape = arrays[0].shape if arrays else None
        arrays.append(array(call, name, value, axes="(T,)", shape=shape, real=True))
    return arrays


def _mixing(call: str, value: ArrayLike, sequence: Array, name: str = "lambda_") -> Array:
    """Return a number, or a vector with one number per step."""
    x = array_of(call, name, value)
    if jnp.iscomplexobj(x):
        arguments.refuse(call, name, "a real type", x.dtype.name, TypeError)
    if not isinstance(value, Array):
        x = x.astype(sequence.dtype)
    if x.ndim:
        arguments.check_shape(call, name, x.shape, sequence.shape, equal=True)
    return x


def _last(x: Array) -> Array:
    """Return the last element, or 0 if T is 0."""
    return x[-1] if x.shape[0] else jnp.zeros((), x.dtype)


def _clipped(rho: Array, threshold: Any, alpha: Any) -> Array:
    clipped = jnp.minimum(threshold, rho)
    if isinstance(alpha, float) and alpha == 1.0:
        return clipped
    mixed: Array = (1 - alpha) * rho + alpha * clipped
    return mixed


def _stopped(call: str, stop: Any, x: Array, values: Array | None = None) -> Array:
    """Stop the gradients of ``x`` if ``stop``, a boolean or an array, is true.

    If ``values`` are given, the gradients of ``x + values`` are stopped instead.
    """
    if values is None:
        stopped = jax.lax.stop_gradient(x)
    else:
        stopped = jax.lax.stop_gradient(x + values) - values
    if isinstance(stop, bool):
        return stopped if stop else x
    return jnp.where(array_of(call, "stop_target_gradients", stop).astype(bool), stopped, x)
