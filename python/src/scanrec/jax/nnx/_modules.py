# SPDX-License-Identifier: BSD-3-Clause
"""The layers as modules of flax.nnx, and their base class."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import DTypeLike

from ... import _arguments as arguments
from ..._jax.types import ArrayLike
from ..._layers._spec import options_of
from ..._types import Candidate, Discretisation, Memory, Pool, State
from .. import nn

__all__ = ["LRU", "Mamba", "MinGRU", "Module", "QRNN", "RGLRU", "S5", "SignatureOfInit"]

Layer = TypeVar("Layer", bound=nn.Layer[Any])


class SignatureOfInit:
    """Descriptor for the signature of a class in help and completion.

    Without it, they show the ``__call__`` of the metaclass, ``(*args, **kwargs)``.
    """

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:  # then inspect.signature takes that of __call__
            raise AttributeError("__signature__")
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(parameters)


class Parameters(nnx.Module):
    """Parameters by name, possibly nested."""

    def __init__(self, params: dict[str, Any]) -> None:
        for name, x in params.items():
            setattr(self, name, Parameters(x) if isinstance(x, dict) else nnx.Param(x))


class Module(nnx.Module, Generic[Layer, State]):
    """A layer and its parameters.

    The parameters are attributes, such as ``layer_0.forward.weight``, with the structure that
    ``layer.init`` returns.

    The options are those of the layer and two more. ``dtype`` is the type of all parameters.
    ``rngs`` has the stream ``params``, from which parameters are drawn. If ``dropout`` or
    ``zoneout`` is not 0, the module forks the stream ``dropout`` for its calls. ``eval()`` and
    ``train()`` set the attribute ``deterministic``. If it is True, no random numbers are drawn, as
    without a key in :meth:`scanrec.jax.nn.Layer.apply`.
    """

    __signature__: ClassVar[SignatureOfInit] = SignatureOfInit()

    layer: Layer
    deterministic: bool
    rngs: nnx.RngStream

    def __init__(self, kind: type[Layer], given: dict[str, Any]) -> None:
        """Make a layer of class ``kind``. ``given`` is the ``locals()`` of a constructor."""
        options = options_of(given)
        dtype, rngs = options.pop("dtype"), options.pop("rngs")
        layer = kind(**options)
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
        """Call ``layer.apply`` with the parameters of the module."""
        key = self.rngs() if self._draws and not self.deterministic else None
        result: tuple[jax.Array, State]
        result = self.layer.apply(self.params, input, state, resets=resets, key=key)
        return result

    def step(
        self, input: ArrayLike, state: State | np.ndarray | None = None
    ) -> tuple[jax.Array, State]:
        """Call ``layer.step`` with the parameters of the module. It draws no random numbers."""
        result: tuple[jax.Array, State] = self.layer.step(self.params, input, state)
        return result


def _arrays(module: nnx.Module) -> dict[str, Any]:
    """Return the parameters of a module as nested dictionaries of arrays."""
    return {
        name: _arrays(x) if isinstance(x, Parameters) else x[...]
        for name, x in vars(module).items()
        if isinstance(x, (Parameters, nnx.Param))
    }


class QRNN(Module[nn.QRNN[State], State]):
    """Flax module of :class:`scanrec.jax.nn.QRNN`."""

    @overload
    def __init__(
        self: QRNN[jax.Array], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        kernel_size: Literal[1] = 1, pool: Pool = "fo", zoneout: float = 0.0,
        memory: Memory = "store", *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs,
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: QRNN[nn.QRNNState], input_size: int, hidden_size: int, num_layers: int = 1,
        bias: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        *, kernel_size: Literal[2], pool: Pool = "fo", zoneout: float = 0.0,
        memory: Memory = "store", dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs,
    ) -> None: ...  # fmt: skip
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        kernel_size: Literal[1, 2] = 1,
        pool: Pool = "fo",
        zoneout: float = 0.0,
        memory: Memory = "store",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.QRNN, locals())


class MinGRU(Module[nn.MinGRU, jax.Array]):
    """Flax module of :class:`scanrec.jax.nn.MinGRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        candidate: Candidate = "identity",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.MinGRU, locals())


class LRU(Module[nn.LRU, jax.Array]):
    """Flax module of :class:`scanrec.jax.nn.LRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 64,
        r_min: float = 0.9,
        r_max: float = 0.999,
        max_phase: float = 2 * math.pi,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.LRU, locals())


class S5(Module[nn.S5, jax.Array]):
    """Flax module of :class:`scanrec.jax.nn.S5`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 64,
        blocks: int = 1,
        discretisation: Discretisation = "zero_order_hold",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.S5, locals())


class RGLRU(Module[nn.RGLRU, jax.Array]):
    """Flax module of :class:`scanrec.jax.nn.RGLRU`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        heads: int = 1,
        c: float = 8.0,
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.RGLRU, locals())


class Mamba(Module[nn.Mamba, nn.MambaState]):
    """Flax module of :class:`scanrec.jax.nn.Mamba`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        state_size: int = 16,
        conv: int = 4,
        expand: int = 2,
        dt_rank: int | Literal["auto"] = "auto",
        *,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ) -> None:
        super().__init__(nn.Mamba, locals())
