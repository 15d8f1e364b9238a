# SPDX-License-Identifier: BSD-3-Clause
"""What all modules share: a layer, its parameters, and what is drawn in calls."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Generic

import jax
import numpy as np
from flax import nnx
from numpy.typing import DTypeLike

from ... import _arguments as arguments
from ..._types import State
from .._types import ArrayLike
from ..nn import Layer

__all__ = ["Module", "SignatureOfInit"]


class SignatureOfInit:
    """What help and completion see of a class. Without it that would be the ``__call__`` of its
    metaclass, ``(*args, **kwargs)``."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:  # which is called otherwise
            raise AttributeError("__signature__")
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(parameters)


class Parameters(nnx.Module):
    """Parameters, or more of these, by name."""

    def __init__(self, params: dict[str, Any]) -> None:
        for name, x in params.items():
            setattr(self, name, Parameters(x) if isinstance(x, dict) else nnx.Param(x))


class Module(nnx.Module, Generic[State]):
    """A layer, and parameters in the places where ``layer.init`` has them:
    ``layer_0.forward.weight``.

    Parameters
    ----------
    layer:
        That of :mod:`scanrec.jax.nn`.
    dtype:
        Of all parameters.
    rngs:
        Draws parameters from the stream ``params``, and, where ``dropout`` or ``zoneout`` is not 0,
        forks the stream ``dropout`` for calls that drop.

    ``deterministic``, set by ``eval()`` and ``train()``, says whether nothing is dropped.
    """

    __signature__: ClassVar[SignatureOfInit] = SignatureOfInit()

    layer: Any  #: of each kind of module its own
    deterministic: bool
    rngs: nnx.RngStream

    def __init__(self, layer: Layer[Any], dtype: DTypeLike, rngs: nnx.Rngs) -> None:
        if not isinstance(rngs, nnx.Rngs):
            call = type(self).__name__
            arguments.refuse(call, "rngs", "flax.nnx.Rngs", type(rngs).__name__, TypeError)
        self.layer = layer
        for name, x in layer.init(rngs.params(), dtype).items():
            setattr(self, name, Parameters(x))
        self.deterministic = False
        self._draws = layer.dropout > 0 or getattr(layer, "zoneout", 0) > 0
        if self._draws:
            self.rngs = rngs.dropout.fork()

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as ``layer.apply`` takes them."""
        names = [f"layer_{i}" for i in range(self.layer.num_layers)]
        return {name: _arrays(getattr(self, name)) for name in names}

    def __call__(
        self,
        input: ArrayLike,
        state: State | np.ndarray | None = None,
        resets: ArrayLike | None = None,
    ) -> tuple[jax.Array, State]:
        """``layer.apply`` with these parameters: outputs, and the state after them."""
        draws = self._draws and not self.deterministic
        key = self.rngs() if draws else None
        return self.layer.apply(self.params, input, state, resets=resets, key=key)

    def step(
        self, input: ArrayLike, state: State | np.ndarray | None = None
    ) -> tuple[jax.Array, State]:
        """``layer.step`` with these parameters, of which nothing is dropped."""
        return self.layer.step(self.params, input, state)


def _arrays(module):
    """Those of a module in dictionaries."""
    return {
        name: _arrays(x) if isinstance(x, Parameters) else x[...]
        for name, x in vars(module).items()
        if isinstance(x, (Parameters, nnx.Param))
    }
