# SPDX-License-Identifier: BSD-3-Clause
"""What all layers share: configuration, parameters, a stack of layers that run one way or both."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from ... import _arguments as arguments
from ..._types import State
from .._arrays import array_of, marks_of
from .._primitives import edge_dtype
from .._types import ArrayLike

__all__ = ["Layer", "Parameters", "check_between"]

#: Arrays by name, in dictionaries by direction, by layer:
#: ``params["layer_0"]["forward"]["weight"]``.
Parameters = dict[str, dict[str, dict[str, jax.Array]]]

_WAYS = ("forward", "reverse")


def check_between(call: str, name: str, value: object, expected: str, holds: Any) -> None:
    """Refuses a number of which a condition does not hold, and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        arguments.refuse(call, name, expected, repr(value), TypeError)
    if not holds(value):
        arguments.refuse(call, name, expected, value)


@dataclass(frozen=True)
class Layer(Generic[State]):
    """A stack of ``num_layers`` layers, each of which reads the outputs of the one before.

    The configuration alone: parameters and states are arrays that :meth:`init` and :meth:`apply`
    return. Pure functions of them, for ``jit``, ``vmap``, ``grad``, ``lax.scan`` and
    ``checkpoint``; to these a layer may be an argument as well, of which a program is compiled for
    each.

    Parameters
    ----------
    input_size, hidden_size:
        Channels of inputs, and of the outputs of one direction.
    num_layers:
        Layers.
    bias:
        Whether there are biases.
    dropout:
        The share of outputs of each layer but the last that are dropped, if there is a key to draw
        them with; the others are scaled by ``1 / (1 - dropout)``.
    bidirectional:
        Whether layers run both ways, with parameters of their own, and put their outputs side by
        side.
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    dropout: float = 0.0
    bidirectional: bool = False

    #: A named tuple, if states are more than one array.
    _state_type: ClassVar[Any] = None
    _complex_state: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        jax.tree_util.register_static(cls)  # no arrays in it

    def __post_init__(self) -> None:
        call = type(self).__name__
        self._keep_counts("input_size", "hidden_size", "num_layers")
        for name in ("bias", "bidirectional"):
            self._keep(name, arguments.flag(call, name, getattr(self, name)))
        check_between(call, "dropout", self.dropout, "a number from 0 to 1", lambda p: 0 <= p <= 1)
        if self.dropout and self.num_layers == 1:
            message = f"{call}: dropout is between layers, and there is one"
            warnings.warn(message, stacklevel=4)

    def _keep(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # it is frozen

    def _keep_counts(self, *names: str) -> None:
        """Those of the configuration as integers of Python, which have a hash."""
        for name in names:
            self._keep(name, arguments.count(type(self).__name__, name, getattr(self, name)))

    # ---- what a kind of layer says ---------------------------------------------------------------

    def _init_one(self, key: jax.Array, inputs: int, dtype: Any) -> dict[str, jax.Array]:
        """The parameters of one direction of one layer with so many inputs."""
        raise NotImplementedError

    def _run(
        self,
        params: Mapping[str, jax.Array],
        x: jax.Array,
        first: Mapping[str, jax.Array],
        marks: jax.Array | None,
        reverse: bool,
        key: jax.Array | None,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """One direction of one layer: outputs, and the arrays of the state. There are no first ones
        where a sequence begins, and no key where nothing is to be drawn."""
        raise NotImplementedError

    def _fields(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a state, of one sequence in one layer and direction."""
        return {"hidden": (self.hidden_size,)}

    # ---- calls -----------------------------------------------------------------------------------

    @property
    def num_directions(self) -> int:
        """2 where layers run both ways, otherwise 1."""
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Channels of outputs: ``num_directions * hidden_size``."""
        return self.num_directions * self.hidden_size

    def _inputs(self, at: int) -> int:
        return self.output_size if at else self.input_size

    def init(self, key: jax.Array, dtype: DTypeLike = jnp.float32) -> Parameters:
        """Draws parameters.

        Parameters
        ----------
        key:
            Of ``jax.random``.
        dtype:
            Of all parameters, which are real: float32, float64, float16 or bfloat16.

        Returns
        -------
        ``{"layer_0": {"forward": {"weight": ...}}}``, with ``"reverse"`` beside ``"forward"`` where
        layers run both ways.
        """
        call, count = f"{type(self).__name__}.init", self.num_layers * self.num_directions
        dtype = jnp.dtype(dtype)
        arguments.check_real(call, "dtype", dtype.name)
        keys = iter(_drawn(call, jax.random.split, key, count))
        return {
            f"layer_{i}": {
                way: self._init_one(next(keys), self._inputs(i), dtype)
                for way in _WAYS[: self.num_directions]
            }
            for i in range(self.num_layers)
        }

    def initial_state(
        self, shape: int | Sequence[int] = (), dtype: DTypeLike = jnp.float32
    ) -> State:
        """A state of zeros, as ``lax.scan`` wants it to carry: of a batch of this shape, and of
        inputs and parameters of this type."""
        dtype = jnp.dtype(dtype)
        check = arguments.check_dtype if self._complex_state else arguments.check_real
        check(f"{type(self).__name__}.initial_state", "dtype", dtype.name)
        lead = (shape,) if isinstance(shape, (int, np.integer)) else shape
        count, dtype = self.num_layers * self.num_directions, self._state_dtype(dtype)
        zeros = {n: jnp.zeros((count, *lead, *own), dtype) for n, own in self._fields().items()}
        return self._of_arrays(zeros)

    def apply(
        self,
        params: Mapping[str, Any],
        input: ArrayLike,
        state: State | np.ndarray | None = None,
        *,
        resets: ArrayLike | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, State]:
        """Runs over sequences.

        Parameters
        ----------
        params:
            What :meth:`init` returned, or arrays in their places.
        input:
            ``(..., T, input_size)``.
        state:
            What a call returned that these inputs go on from, of the same shape ``...``. None is 0.
            Of layers that run both ways the half that runs in reverse starts behind the last step.
        resets:
            Booleans that broadcast to ``(..., T)``, with all of its steps: where one is set a
            sequence starts, and sees nothing of those before. There may be one step more of them,
            whose mark is behind the last step.
        key:
            Of ``jax.random``, to draw what is dropped. None drops nothing.

        Returns
        -------
        ``(output, state)``: ``(..., T, num_directions * hidden_size)``, and states after the last
        step (in reverse: after the first), ``(num_layers * num_directions, ..., hidden_size)`` with
        the directions of a layer one after the other, unless the layer says otherwise.

        Raises
        ------
        ValueError, TypeError:
            Names the argument, what was expected and what came.
        """
        call = f"{type(self).__name__}.apply"
        params, x = self._checked(call, params, input, ("T",))
        marks = resets
        if resets is not None:
            marks = marks_of(call, resets, x.shape[:-1], x.ndim - 2)
        given = self._arrays(call, state, x.shape[:-2], x.dtype)
        left: list[dict[str, jax.Array]] = []
        for i in range(self.num_layers):
            outputs = []
            for way in _WAYS[: self.num_directions]:
                first = {name: array[len(left)] for name, array in given.items()}
                draw = None if key is None else _drawn(call, jax.random.fold_in, key, len(left))
                reverse = way == "reverse"
                y, final = self._run(params[f"layer_{i}"][way], x, first, marks, reverse, draw)
                outputs.append(y)
                left.append(final)
            x = jnp.concatenate(outputs, -1) if self.bidirectional else outputs[0]
            if key is not None and self.dropout and i + 1 < self.num_layers:
                draw = jax.random.fold_in(key, self.num_layers * self.num_directions + i)
                x = _dropped(draw, x, self.dropout)
        return x, self._of_arrays({n: jnp.stack([one[n] for one in left]) for n in left[0]})

    def step(
        self,
        params: Mapping[str, Any],
        input: ArrayLike,
        state: State | np.ndarray | None = None,
    ) -> tuple[jax.Array, State]:
        """One step of time: what :meth:`apply` gives for a chunk of one.

        Parameters
        ----------
        params, state:
            As of :meth:`apply`.
        input:
            ``(..., input_size)``.

        Returns
        -------
        ``(output, state)``, the former ``(..., hidden_size)``. Nothing is dropped.

        Raises
        ------
        ValueError, TypeError:
            As :meth:`apply`; and of layers that run both ways, which have no steps.
        """
        call = f"{type(self).__name__}.step"
        if self.bidirectional:
            arguments.refuse(call, "bidirectional", "a layer that runs forward alone", True)
        params, x = self._checked(call, params, input, ())
        if state is not None:
            state = self._of_arrays(self._arrays(call, state, x.shape[:-1], x.dtype))
        output, state = self.apply(params, x[..., None, :], state)
        return output[..., 0, :], state

    # ---- arguments and states --------------------------------------------------------------------

    def _state_dtype(self, dtype: Any) -> Any:
        dtype = edge_dtype(dtype)
        return np.result_type(dtype, np.complex64) if self._complex_state else dtype

    def _checked(self, call, params, input, axes):
        """Parameters and inputs in their common type."""
        params = _parameters(call, params, _shapes(self))
        x = array_of(call, "input", input)
        if x.ndim < 1 + len(axes) or x.shape[-1] != self.input_size:
            wanted = ", ".join(["...", *axes, str(self.input_size)])
            arguments.refuse(call, "input", f"shape ({wanted})", x.shape)
        dtype = jnp.result_type(x, *jax.tree.leaves(params))
        arguments.check_real(call, "input", dtype.name)
        return jax.tree.map(lambda p: p.astype(dtype), params), x.astype(dtype)

    def _arrays(self, call, state, lead, dtype):
        """Those of a state by name; none where there is no state."""
        if state is None:
            return {}
        fields = self._fields()
        if len(fields) == 1:
            given = {"state": (state, *fields.values())}
        elif isinstance(state, tuple) and len(state) == len(fields):
            given = {f"state.{n}": (x, own) for x, (n, own) in zip(state, fields.items())}
        else:
            expected = f"{self._state_type.__name__}({', '.join(fields)})"
            arguments.refuse(call, "state", expected, type(state).__name__, TypeError)
        arrays = []
        for label, (x, own) in given.items():
            if isinstance(x, (tuple, list, dict)):
                arguments.refuse(call, label, "an array", type(x).__name__, TypeError)
            x, wanted = (
                array_of(call, label, x),
                (self.num_layers * self.num_directions, *lead, *own),
            )
            if jnp.iscomplexobj(x) and not self._complex_state:
                arguments.refuse(call, label, "a real type", x.dtype, TypeError)
            arguments.check_shape(call, label, x.shape, wanted, equal=True)
            arrays.append(x.astype(self._state_dtype(dtype)))
        return dict(zip(fields, arrays))

    def _of_arrays(self, arrays):
        """A state of arrays by name."""
        return self._state_type(**arrays) if len(arrays) > 1 else arrays["hidden"]


def _drawn(call, draw, key, number):
    """Keys drawn from one. JAX says of what is none that it is none, but not of which argument."""
    try:
        return draw(key, number)
    except Exception as error:
        got = f"shape {key.shape}" if isinstance(key, jax.Array) else repr(key)
        expected = "a key of jax.random, as jax.random.key(0) is one"
        raise TypeError(f"{call}: argument 'key': expected {expected}, got {got}") from error


def _dropped(key, x, share):
    """Without this share of its numbers, the others scaled."""
    if share == 1:
        return jnp.zeros_like(x)
    return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0)


@lru_cache(maxsize=256)
def _shapes(layer: Layer) -> dict[str, Any]:
    """The shapes of a layer's parameters."""
    drawn = jax.eval_shape(lambda: layer.init(jax.random.key(0)))
    return jax.tree.map(lambda x: tuple(x.shape), drawn)


def _parameters(call, params, shapes, path=""):
    """Arrays in dictionaries, if they are of these shapes."""
    if not isinstance(params, Mapping):
        arguments.refuse(call, f"params{path}", "a dictionary", type(params).__name__, TypeError)
    if set(params) != set(shapes):
        got = sorted(map(str, params))
        arguments.refuse(call, f"params{path}", f"entries {sorted(shapes)}", got)
    found = {}
    for name, inner in shapes.items():
        at = f"{path}[{name!r}]"
        if isinstance(inner, dict):
            found[name] = _parameters(call, params[name], inner, at)
        else:
            x = found[name] = array_of(call, f"params{at}", params[name])
            arguments.check_shape(call, f"params{at}", x.shape, inner, equal=True)
            if jnp.iscomplexobj(x):
                arguments.refuse(call, f"params{at}", "a real type", x.dtype, TypeError)
    return found
