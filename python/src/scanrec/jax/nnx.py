# SPDX-License-Identifier: BSD-3-Clause
"""The layers of scanrec.jax.nn as modules of flax.nnx, and what calls them as its RNN is called.

    layer = scanrec.jax.nnx.MinGRU(8, 16, num_layers=2, rngs=nnx.Rngs(0))
    output, state = layer(input)                   # (..., T, 8) to (..., T, 16)
    output, state = layer.step(next_input, state)

Needs Flax, which nothing else here does.
"""

from __future__ import annotations

from typing import Any, ClassVar

try:
    from flax import nnx as _nnx
except ImportError as error:
    raise ImportError("scanrec.jax.nnx needs Flax: pip install 'scanrec[flax]'") from error

import jax
import jax.numpy as jnp

from .. import _arguments as arguments
from . import nn as _nn
from ._arrays import array_of as _array_of
from .nn import MambaState, QRNNState

__all__ = ["LRU", "Mamba", "MambaState", "MinGRU", "QRNN", "QRNNState", "RGLRU", "RNN", "S5"]


class _Parameters(_nnx.Module):
    """Parameters, or more of these, by name."""

    def __init__(self, params: dict[str, Any]) -> None:
        for name, x in params.items():
            setattr(self, name, _Parameters(x) if isinstance(x, dict) else _nnx.Param(x))


class _Module(_nnx.Module):
    """A layer, and parameters in the places where ``layer.init`` has them: ``layer_0.forward.weight``.

    Parameters
    ----------
    sizes, options:
        Those of the layer of this name in :mod:`scanrec.jax.nn`, which is the attribute ``layer``.
    dtype:
        Of all parameters.
    rngs:
        Draws parameters from the stream ``params``, and, where ``dropout`` or ``zoneout`` is not 0,
        forks the stream ``dropout`` for calls that drop.

    ``deterministic``, set by ``eval()`` and ``train()``, says whether nothing is dropped.
    """

    _kind: ClassVar[type[_nn.Layer]]

    def __init__(self, *sizes: int, dtype: Any = jnp.float32, rngs: _nnx.Rngs, **options: Any):
        if not isinstance(rngs, _nnx.Rngs):
            call = type(self).__name__
            arguments.refuse(call, "rngs", "flax.nnx.Rngs", type(rngs).__name__, TypeError)
        self.layer = self._kind(*sizes, **options)
        for name, x in self.layer.init(rngs.params(), dtype).items():
            setattr(self, name, _Parameters(x))
        self.deterministic = False
        self._draws = self.layer.dropout > 0 or getattr(self.layer, "zoneout", 0) > 0
        if self._draws:
            self.rngs = rngs.dropout.fork()

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as ``layer.apply`` takes them."""
        names = [f"layer_{i}" for i in range(self.layer.num_layers)]
        return {name: _arrays(getattr(self, name)) for name in names}

    def __call__(self, input: Any, state: Any = None, resets: Any = None) -> tuple[jax.Array, Any]:
        """``layer.apply`` with these parameters: outputs, and the state after them."""
        draws = self._draws and not self.deterministic
        key = self.rngs() if draws else None
        return self.layer.apply(self.params, input, state, resets=resets, key=key)

    def step(self, input: Any, state: Any = None) -> tuple[jax.Array, Any]:
        """``layer.step`` with these parameters, of which nothing is dropped."""
        return self.layer.step(self.params, input, state)


def _arrays(module):
    """Those of a module in dictionaries."""
    return {
        name: _arrays(x) if isinstance(x, _Parameters) else x[...]
        for name, x in vars(module).items()
        if isinstance(x, (_Parameters, _nnx.Param))
    }


class QRNN(_Module):
    """Layers of a quasi-recurrent network: :class:`scanrec.jax.nn.QRNN`, with ``dtype`` and ``rngs``."""

    _kind = _nn.QRNN


class MinGRU(_Module):
    """Layers of minimal gated recurrent units: :class:`scanrec.jax.nn.MinGRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.MinGRU


class LRU(_Module):
    """Layers of linear recurrent units: :class:`scanrec.jax.nn.LRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.LRU


class S5(_Module):
    """Layers of diagonal state spaces: :class:`scanrec.jax.nn.S5`, with ``dtype`` and ``rngs``."""

    _kind = _nn.S5


class RGLRU(_Module):
    """Layers of real-gated linear recurrent units: :class:`scanrec.jax.nn.RGLRU`, with ``dtype`` and ``rngs``."""

    _kind = _nn.RGLRU


class Mamba(_Module):
    """Layers of selective state spaces: :class:`scanrec.jax.nn.Mamba`, with ``dtype`` and ``rngs``."""

    _kind = _nn.Mamba


class RNN(_nnx.Module):
    """A layer in the calls of ``flax.nnx.RNN``, which runs a cell step by step::

        rnn = RNN(MinGRU(8, 16, rngs=rngs))                   # nnx.RNN(nnx.GRUCell(8, 16, rngs=rngs))
        outputs = rnn(inputs)                                 # (..., T, 8) to (..., T, 16)
        carry, outputs = rnn(inputs, seq_lengths=lengths, return_carry=True)

    also in ``flax.nnx.Bidirectional``. A carry is a state of the layer.

    Parameters
    ----------
    layer:
        A module of this file whose layers run forward.
    time_major, return_carry, reverse, keep_order:
        Of calls that do not say otherwise.
    """

    def __init__(
        self,
        layer: Any,
        *,
        time_major: bool = False,
        return_carry: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
    ):
        if not isinstance(layer, _Module):
            expected = "a module of scanrec.jax.nnx"
            arguments.refuse("RNN", "layer", expected, type(layer).__name__, TypeError)
        if layer.layer.bidirectional:
            expected = "one that runs forward alone (of flax.nnx.Bidirectional two)"
            arguments.refuse("RNN", "layer", expected, "a bidirectional one")
        self.layer = layer
        self.time_major = arguments.flag("RNN", "time_major", time_major)
        self.return_carry = arguments.flag("RNN", "return_carry", return_carry)
        self.reverse = arguments.flag("RNN", "reverse", reverse)
        self.keep_order = arguments.flag("RNN", "keep_order", keep_order)

    def __call__(
        self,
        inputs: Any,
        *,
        initial_carry: Any = None,
        seq_lengths: Any = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        rngs: Any = None,
    ) -> Any:
        """Runs over sequences.

        Parameters
        ----------
        inputs:
            ``(..., T, input_size)``; ``(T, ..., input_size)`` with ``time_major``.
        initial_carry:
            The state that sequences go on from. None: they begin.
        seq_lengths:
            Integers ``...``, from 1 to T: the steps of each sequence, behind which there is padding.
            Outputs there are of no meaning. Where a carry is returned too, sequences begin.
        return_carry:
            Returns ``(carry, outputs)``: the state after the last step of each sequence.
        time_major:
            Whether time is the first axis.
        reverse, keep_order:
            Whether sequences are run from their ends, and then whether outputs are in the order of
            the inputs, and not in that in which they were computed.
        rngs:
            What ``flax.nnx.Bidirectional`` draws carries with: here none is drawn.

        Returns
        -------
        The outputs, laid out as the inputs.

        Raises
        ------
        ValueError, TypeError:
            Names the argument, what was expected and what came.
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
        x = _array_of("RNN", "inputs", inputs)
        if x.ndim < 2:
            axes = "(T, ..., I)" if time_major else "(..., T, I)"
            arguments.refuse("RNN", "inputs", f"shape {axes}", x.shape)
        x = jnp.moveaxis(x, 0, -2) if time_major else x
        lengths = None if seq_lengths is None else _lengths(seq_lengths, x.shape[:-2])
        aligns = lengths is not None and return_carry
        if aligns and initial_carry is not None:
            expected = "None where 'seq_lengths' are given and a carry is returned"
            arguments.refuse("RNN", "initial_carry", expected, "a state")
        if reverse:
            x = _turned(x, lengths)
        resets = None
        if aligns:  # sequences end at the last step, where the state is
            begin = x.shape[-2] - lengths[..., None]
            x, resets = _rolled(x, -begin), jnp.arange(x.shape[-2]) == begin
        y, carry = self.layer(x, initial_carry, resets)
        y = _rolled(y, begin) if aligns else y
        if reverse and keep_order:
            y = _turned(y, lengths)
        y = jnp.moveaxis(y, -2, 0) if time_major else y
        return (carry, y) if return_carry else y


def _lengths(value, batch):
    """Of sequences of a batch of this shape."""
    lengths = _array_of("RNN", "seq_lengths", value)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        arguments.refuse("RNN", "seq_lengths", "integers", lengths.dtype, TypeError)
    arguments.check_shape("RNN", "seq_lengths", lengths.shape, batch, equal=True)
    return lengths


def _rolled(x, by):
    """Step t is what step t + by was, around the end."""
    steps = x.shape[-2]
    return jnp.take_along_axis(x, ((jnp.arange(steps) + by) % steps)[..., None], -2)


def _turned(x, lengths):
    """Sequences from their ends, with what is behind them behind them."""
    if lengths is None:
        return x[..., ::-1, :]
    return _rolled(x[..., ::-1, :], -lengths[..., None])
