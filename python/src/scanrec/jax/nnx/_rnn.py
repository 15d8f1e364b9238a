# SPDX-License-Identifier: BSD-3-Clause
"""A wrapper of modules with the interface of flax.nnx.RNN."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ... import _arguments as arguments
from ..._jax.arrays import array_of, given, is_known, of_rank
from ..._jax.types import ArrayLike
from ..._types import State
from ._modules import Module, SignatureOfInit

__all__ = ["RNN"]


class RNN(nnx.Module, Generic[State]):
    """A layer with the interface of ``flax.nnx.RNN``, for instance in ``flax.nnx.Bidirectional``::

        rnn = RNN(MinGRU(8, 16, rngs=rngs))        # nnx.RNN(nnx.GRUCell(8, 16, rngs=rngs))
        outputs = rnn(inputs)                      # (..., T, 8) to (..., T, 16)
        carry, outputs = rnn(inputs, seq_lengths=lengths, return_carry=True)

    A carry is a state of the layer.

    Parameters
    ----------
    layer:
        A module of this package that is not bidirectional.
    time_major, return_carry, reverse, keep_order:
        Defaults of the arguments of the same names in a call.
    """

    __signature__: ClassVar[SignatureOfInit] = SignatureOfInit()

    time_major: bool
    return_carry: bool
    reverse: bool
    keep_order: bool

    def __init__(
        self,
        layer: Module[Any, State],
        *,
        time_major: bool = False,
        return_carry: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
    ) -> None:
        if not isinstance(layer, Module):
            expected = "a module of scanrec.jax.nnx"
            arguments.refuse("RNN", "layer", expected, type(layer).__name__, TypeError)
        if layer.layer.bidirectional:
            expected = "a layer of one direction (flax.nnx.Bidirectional combines two)"
            arguments.refuse("RNN", "layer", expected, "a bidirectional layer")
        self.layer = layer
        self.time_major = arguments.flag("RNN", "time_major", time_major)
        self.return_carry = arguments.flag("RNN", "return_carry", return_carry)
        self.reverse = arguments.flag("RNN", "reverse", reverse)
        self.keep_order = arguments.flag("RNN", "keep_order", keep_order)

    @overload
    def __call__(
        self, inputs: ArrayLike, *, initial_carry: State | np.ndarray | None = None,
        seq_lengths: ArrayLike | None = None, return_carry: Literal[True],
        time_major: bool | None = None, reverse: bool | None = None,
        keep_order: bool | None = None, rngs: Any = None,
    ) -> tuple[State, jax.Array]: ...  # fmt: skip
    @overload
    def __call__(
        self, inputs: ArrayLike, *, initial_carry: State | np.ndarray | None = None,
        seq_lengths: ArrayLike | None = None, return_carry: Literal[False],
        time_major: bool | None = None, reverse: bool | None = None,
        keep_order: bool | None = None, rngs: Any = None,
    ) -> jax.Array: ...  # fmt: skip
    @overload
    def __call__(
        self, inputs: ArrayLike, *, initial_carry: State | np.ndarray | None = None,
        seq_lengths: ArrayLike | None = None, return_carry: bool | None = None,
        time_major: bool | None = None, reverse: bool | None = None,
        keep_order: bool | None = None, rngs: Any = None,
    ) -> jax.Array | Any: ...  # fmt: skip
    def __call__(
        self,
        inputs: ArrayLike,
        *,
        initial_carry: State | np.ndarray | None = None,
        seq_lengths: ArrayLike | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        rngs: Any = None,
    ) -> jax.Array | tuple[State, jax.Array] | Any:
        """Run over whole sequences.

        Parameters
        ----------
        inputs:
            ``(..., T, input_size)``; ``(T, ..., input_size)`` with ``time_major``.
        initial_carry:
            Initial state. If None, new sequences start.
        seq_lengths:
            The number of steps of each sequence: integers from 1 to T (0 if T is 0), with the batch
            axes ``...`` of the inputs as their shape. Later steps are padding, and their outputs
            are meaningless. Other integers raise ValueError. If the integers are traced or on a
            GPU, their values are not read, and invalid ones are clipped.
        return_carry:
            Whether to return ``(carry, outputs)``. The carry is the state after the last step of
            each sequence, in the order of computation. With ``seq_lengths``, ``return_carry`` needs
            ``initial_carry=None``.
        time_major:
            Whether time is the first axis.
        reverse, keep_order:
            ``reverse``: whether to run sequences from their ends. ``keep_order``: whether outputs
            are then in the order of the inputs instead of the order of computation.
        rngs:
            Ignored. ``flax.nnx.Bidirectional`` passes it to draw carries.

        Returns
        -------
        The outputs, with the axes of the inputs, or ``(carry, outputs)``.

        Raises
        ------
        ValueError, TypeError:
            An argument is invalid. The message names it.
        """
        del rngs
        given = {
            "return_carry": return_carry, "time_major": time_major, "reverse": reverse,
            "keep_order": keep_order,
        }  # fmt: skip
        return_carry, time_major, reverse, keep_order = (
            getattr(self, name) if value is None else arguments.flag("RNN", name, value)
            for name, value in given.items()
        )
        x = array_of("RNN", "inputs", inputs)
        if x.ndim < 2:
            axes = "(T, ..., I)" if time_major else "(..., T, I)"
            arguments.refuse("RNN", "inputs", f"shape {axes}", x.shape)
        x = jnp.moveaxis(x, 0, -2) if time_major else x
        lengths = None if seq_lengths is None else _lengths(seq_lengths, x)
        begin = resets = None
        if reverse:
            x = _turned(x, lengths)
        if lengths is not None and return_carry:
            if initial_carry is not None:
                expected = "None with 'seq_lengths' and 'return_carry'"
                arguments.refuse("RNN", "initial_carry", expected, "a state")
            # Move each sequence so that it ends at the last step, whose state is returned.
            begin = x.shape[-2] - lengths[..., None]
            x, resets = _rolled(x, -begin), _steps_of(x, begin.ndim) == begin
        y, carry = self.layer(x, initial_carry, resets)
        y = y if begin is None else _rolled(y, begin)
        if reverse and keep_order:
            y = _turned(y, lengths)
        y = jnp.moveaxis(y, -2, 0) if time_major else y
        return (carry, y) if return_carry else y


def _lengths(value: ArrayLike, x: jax.Array) -> jax.Array:
    """Check the lengths of the sequences of an array. Clip them if they cannot be read."""
    *batch, steps = x.shape[:-1]
    lengths = given("RNN", "seq_lengths", value)
    if not isinstance(lengths, jax.Array):
        lengths = np.asarray(lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        arguments.refuse("RNN", "seq_lengths", "integers", lengths.dtype, TypeError)
    arguments.check_shape("RNN", "seq_lengths", lengths.shape, batch, equal=True)
    least = min(1, steps)
    if is_known(lengths) and lengths.size:
        known = np.asarray(lengths)
        for length in (known.min(), known.max()):
            if not least <= length <= steps:
                expected = f"integers from {least} to {steps}"
                arguments.refuse("RNN", "seq_lengths", expected, length)
    return jnp.clip(jnp.asarray(lengths, jnp.int32), least, steps)


def _steps_of(x: jax.Array, ndim: int) -> jax.Array:
    """Indices of the steps of x, along the last of `ndim` axes."""
    return of_rank(jnp.arange(x.shape[-2], dtype=jnp.int32), ndim)


def _rolled(x: jax.Array, by: jax.Array) -> jax.Array:
    """Move step t + by of x to step t, cyclically."""
    steps = (_steps_of(x, by.ndim) + by) % x.shape[-2]
    return jnp.take_along_axis(x, steps[..., None], -2)


def _turned(x: jax.Array, lengths: jax.Array | None) -> jax.Array:
    """Reverse each sequence and keep its padding at the end."""
    turned: jax.Array = x[..., ::-1, :]
    return turned if lengths is None else _rolled(turned, -lengths[..., None])
