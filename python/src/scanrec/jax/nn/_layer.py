# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the layers: configuration, parameters, stacking and directions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from ... import _arguments as arguments
from ..._jax.arrays import array_of, boundary_dtype, of_rank, reset_mask_of
from ..._jax.sharding import placed_as
from ..._jax.types import ArrayLike
from ..._layers import Spec
from ..._layers import _spec as spec
from ..._types import State

__all__ = ["Arrays", "Key", "Layer", "Parameters", "Result", "Time", "saved_by_name"]

#: Arrays by layer, then by direction, then by name:
#: ``params["layer_0"]["forward"]["weight"]``.
Parameters: TypeAlias = dict[str, dict[str, dict[str, jax.Array]]]
Arrays: TypeAlias = Mapping[str, jax.Array]
#: Outputs, and the arrays of the final state.
Result: TypeAlias = tuple[jax.Array, dict[str, jax.Array]]
#: A key of jax.random, or None if nothing is drawn.
Key: TypeAlias = jax.Array | None
Kind = TypeVar("Kind", bound=type)
Each = TypeVar("Each")

_WAYS = ("forward", "reverse")


def saved_by_name(kind: Kind) -> Kind:
    """Register a named tuple with jax.export, if the dependencies of jax.export are installed."""
    try:
        from jax.export import register_namedtuple_serialization as register
    except ImportError:
        return kind
    register(kind, serialized_name=f"scanrec.jax.nn.{kind.__name__}")
    return kind


class Time(NamedTuple):
    """The direction of time, and where sequences start."""

    reverse: bool
    #: Booleans that broadcast to ``(..., T)`` or ``(..., T + 1)``. A sequence starts where True.
    resets: jax.Array | None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments ``reverse`` and ``resets`` of a scan of ``(..., T, C)``."""
        resets = None if self.resets is None else self.resets[..., None]
        return {"reverse": self.reverse, "resets": resets}

    def begins(self, steps: int, fresh: bool) -> jax.Array | None:
        """Return a mask of the steps that do not continue a state.

        In reverse, a step continues the state of the step after it. `fresh` tells whether the first
        step (in reverse: the last) continues no state. The mask broadcasts to ``(..., T)``. None
        means that all steps continue a state.
        """
        found = None
        if self.resets is not None and not self.reverse:
            found = self.resets[..., :steps]
        elif self.resets is not None:
            widths = [(0, 0)] * (self.resets.ndim - 1) + [(0, 1)]
            found = jnp.pad(self.resets, widths)[..., 1 : steps + 1]
        if fresh:
            boundary = jnp.arange(steps) == (steps - 1 if self.reverse else 0)
            found = boundary if found is None else found | of_rank(boundary, found.ndim)
        return found

    def window(
        self, x: jax.Array, past: jax.Array | None, count: int
    ) -> tuple[list[jax.Array], jax.Array]:
        """Shift x by 0, 1, ... `count` - 1 steps, so that each step gets the steps before it.

        In reverse, each step gets the steps after it. Steps of other sequences are 0.

        Parameters
        ----------
        x:
            ``(..., T, C)``.
        past:
            ``(..., count - 1, C)``: the steps before the first step, in the order of time. In
            reverse they are after the last step. If None, they are 0.

        Returns
        -------
        `count` arrays of the shape of `x`, and the `past` of the next call.
        """
        reset_mask, reverse, steps, more = self.resets, self.reverse, x.shape[-2], count - 1
        before = (0, more) if reverse else (more, 0)
        if past is None:  # padding keeps the sharding of an array
            whole = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [before, (0, 0)])
        else:
            past = placed_as(past.astype(x.dtype), x)
            whole = jnp.concatenate([x, past] if reverse else [past, x], -2)
        begins = [k if reverse else more - k for k in range(count)]
        seen = [whole[..., k : k + steps, :] for k in begins]
        boundary = slice(None, more) if reverse else slice(steps, None)
        left = whole[..., boundary, :]
        if reset_mask is None:
            return seen, left
        reset_mask = reset_mask if reverse else reset_mask[..., :steps]
        reset_mask = jnp.pad(reset_mask, [(0, 0)] * (reset_mask.ndim - 1) + [before])[
            ..., : steps + more
        ]
        # The index of the sequence of each step.
        sequence = jnp.cumsum(reset_mask, -1, dtype=jnp.int32)[..., None]
        now = sequence[..., begins[0] : begins[0] + steps, :]
        for i, k in enumerate(begins[1:], 1):
            seen[i] = jnp.where(sequence[..., k : k + steps, :] == now, seen[i], 0)
        last = sequence[..., :1, :] if reverse else sequence[..., -1:, :]
        return seen, jnp.where(sequence[..., boundary, :] == last, left, 0)


@dataclass(frozen=True)
class Layer(Spec, Generic[State]):
    """A stack of ``num_layers`` layers. Each layer reads the outputs of the previous one.

    An object of this class holds only its configuration. The arrays are outside: :meth:`init`
    returns parameters, and :meth:`apply` returns states. Both methods are pure functions, which may
    be used in ``jit``, ``vmap``, ``grad``, ``lax.scan`` and ``checkpoint``. If the object is an
    argument of a function under ``jit``, each configuration is compiled separately.

    Parameters
    ----------
    input_size, hidden_size:
        Channels of inputs, and of the outputs of one direction.
    num_layers:
        Number of layers.
    bias:
        Whether the layers have biases.
    dropout:
        Probability of dropping an output of a layer, except in the last layer. It applies if a key
        is passed. The other outputs are scaled by ``1 / (1 - dropout)``.
    bidirectional:
        Whether layers run in both directions, each with its own parameters. The outputs are
        concatenated.
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    dropout: float = 0.0
    bidirectional: bool = False

    #: The class of states that consist of several arrays, a named tuple.
    _state_type: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        jax.tree_util.register_static(cls)  # it has no arrays

    def __post_init__(self) -> None:
        self._check_options()

    def _run(self, params: Arrays, x: jax.Array, first: Arrays, time: Time, key: Key) -> Result:
        """Run one direction of one layer from state `first`, which is empty if sequences start."""
        raise NotImplementedError

    # ---- calls -----------------------------------------------------------------------------------

    @property
    def output_size(self) -> int:
        """Channels of outputs: ``num_directions * hidden_size``."""
        return self.num_directions * self.hidden_size

    def init(self, key: jax.Array, dtype: DTypeLike = jnp.float32) -> Parameters:
        """Draw parameters from their initial distributions.

        Parameters
        ----------
        key:
            Key of ``jax.random``.
        dtype:
            Type of all parameters, which are real: float32, float64, float16 or bfloat16.

        Returns
        -------
        ``{"layer_0": {"forward": {"weight": ...}}}``. A bidirectional layer has ``"reverse"``
        besides ``"forward"``.
        """
        call, dtype = f"{self._name}.init", jnp.dtype(dtype)
        arguments.check_real(call, "dtype", dtype.name)
        keys = iter(_drawn(call, jax.random.split, key, self._directions))

        def init_one(parameters: spec.Parameters) -> dict[str, jax.Array]:
            own = dict(zip(self._draw_order, jax.random.split(next(keys), len(self._draw_order))))
            return {name: _draw(own.get(name), p, dtype) for name, p in parameters.items()}

        return self._of_each(init_one)

    def _of_each(self, call: Callable[[spec.Parameters], Each]) -> dict[str, dict[str, Each]]:
        """Return the results of a function of the parameter specs, by layer and direction."""
        return {
            f"layer_{i}": {
                way: call(self._parameter_specs(self._inputs(i)))
                for way in _WAYS[: self.num_directions]
            }
            for i in range(self.num_layers)
        }

    def initial_state(
        self, shape: int | Sequence[int] = (), dtype: DTypeLike = jnp.float32
    ) -> State:
        """Return a state of zeros, for instance as the carry of ``lax.scan``.

        Parameters
        ----------
        shape:
            Shape of the batch.
        dtype:
            Common type of inputs and parameters. The type of the state follows from it.
        """
        given = jnp.dtype(dtype)
        check = arguments.check_dtype if self._complex_state else arguments.check_real
        check(f"{self._name}.initial_state", "dtype", given.name)
        lead = (shape,) if isinstance(shape, (int, np.integer)) else shape
        kind = self._state_dtype(given)
        shapes = self._state_shapes().items()
        return self._of_arrays(
            {n: jnp.zeros((self._directions, *lead, *own), kind) for n, own in shapes}
        )

    def apply(
        self,
        params: Mapping[str, Any],
        input: ArrayLike,
        state: State | np.ndarray | None = None,
        *,
        resets: ArrayLike | None = None,
        key: jax.Array | None = None,
    ) -> tuple[jax.Array, State]:
        """Run over whole sequences.

        Parameters
        ----------
        params:
            Arrays with the structure that :meth:`init` returns.
        input:
            ``(..., T, input_size)``.
        state:
            State that an earlier call returned, to continue its sequences. For the reverse
            direction it is the state after the last step. If None, new sequences start.
        resets:
            Booleans that broadcast to ``(..., T)``. True starts a new sequence at its step. No
            state passes from one sequence to another, in either direction. The mask has all T
            steps, or one more after the last step.
        key:
            Key of ``jax.random`` for dropout and zoneout. If None, nothing is dropped, and zoneout
            scales the updates of the state instead.

        Returns
        -------
        ``(output, state)``. The output is ``(..., T, num_directions * hidden_size)``. The state is
        the one after the last step, or after the first step in the reverse direction. Its first
        axis is ``num_layers * num_directions``, with the directions of a layer next to each other.

        Raises
        ------
        ValueError, TypeError:
            An argument is invalid. The message names it.
        """
        call = f"{self._name}.apply"
        params, x = self._checked(call, params, input, ("T",))
        reset_mask = (
            None if resets is None else reset_mask_of(call, resets, x.shape[:-1], x.ndim - 2)
        )
        given = self._arrays(call, state, x.shape[:-2], x.dtype)
        left: list[dict[str, jax.Array]] = []
        for i in range(self.num_layers):
            outputs = []
            for way in _WAYS[: self.num_directions]:
                first = {name: array[len(left)] for name, array in given.items()}
                own = None if key is None else _drawn(call, jax.random.fold_in, key, len(left))
                time = Time(way == "reverse", reset_mask)
                y, final = self._run(params[f"layer_{i}"][way], x, first, time, own)
                outputs.append(y)
                left.append(final)
            x = jnp.concatenate(outputs, -1) if self.bidirectional else outputs[0]
            if key is not None and self.dropout and i + 1 < self.num_layers:
                own = jax.random.fold_in(key, self._directions + i)
                x = _dropped(own, x, self.dropout)
        return x, self._of_arrays({n: jnp.stack([one[n] for one in left]) for n in left[0]})

    def step(
        self,
        params: Mapping[str, Any],
        input: ArrayLike,
        state: State | np.ndarray | None = None,
    ) -> tuple[jax.Array, State]:
        """Run a single step. The results are those of :meth:`apply` on a sequence of one step.

        Parameters
        ----------
        params, state:
            As in :meth:`apply`.
        input:
            ``(..., input_size)``.

        Returns
        -------
        ``(output, state)``, with an output of shape ``(..., hidden_size)``. Dropout and zoneout are
        those of :meth:`apply` without a key.

        Raises
        ------
        ValueError, TypeError:
            An argument is invalid, as in :meth:`apply`, or the layer is bidirectional.
        """
        call = f"{self._name}.step"
        if self.bidirectional:
            arguments.refuse(call, "bidirectional", "False for single steps", True)
        params, x = self._checked(call, params, input, ())
        if state is not None:
            state = self._of_arrays(self._arrays(call, state, x.shape[:-1], x.dtype))
        output, state = self.apply(params, x[..., None, :], state)
        return output[..., 0, :], state

    # ---- arguments and states --------------------------------------------------------------------

    def _state_dtype(self, dtype: Any) -> Any:
        dtype = boundary_dtype(dtype)
        return np.result_type(dtype, np.complex64) if self._complex_state else dtype

    def _checked(
        self, call: str, params: object, input: ArrayLike, axes: tuple[str, ...]
    ) -> tuple[Any, jax.Array]:
        """Check parameters and inputs, and convert them to their common type."""
        params = _parameters(call, params, _shapes(self))
        x = array_of(call, "input", input)
        if x.ndim < 1 + len(axes) or x.shape[-1] != self.input_size:
            wanted = ", ".join(["...", *axes, str(self.input_size)])
            arguments.refuse(call, "input", f"shape ({wanted})", x.shape)
        dtype = jnp.result_type(x, *jax.tree.leaves(params))
        arguments.check_real(call, "input", dtype.name)
        return jax.tree.map(lambda p: p.astype(dtype), params), x.astype(dtype)

    def _arrays(
        self, call: str, state: Any, lead: tuple[int, ...], dtype: Any
    ) -> dict[str, jax.Array]:
        """The arrays of a state by name. The result is empty if there is no state."""
        if state is None:
            return {}
        fields = self._state_shapes()
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
            x = array_of(call, label, x)
            wanted = (self._directions, *lead, *own)
            if jnp.iscomplexobj(x) and not self._complex_state:
                arguments.refuse(call, label, "a real type", x.dtype, TypeError)
            arguments.check_shape(call, label, x.shape, wanted, equal=True)
            arrays.append(x.astype(self._state_dtype(dtype)))
        return dict(zip(fields, arrays))

    def _of_arrays(self, arrays: Mapping[str, Any]) -> State:
        """Return the state that consists of these named arrays."""
        state: State = self._state_type(**arrays) if len(arrays) > 1 else arrays["hidden"]
        return state


def _draw(key: Key, parameter: spec.Parameter, dtype: Any) -> jax.Array:
    """Draw a parameter, in float32 for 16-bit types. A constant parameter needs no key."""
    shape, initial = parameter
    if not isinstance(initial, (spec.Normal, spec.Uniform)):
        return jnp.broadcast_to(jnp.asarray(initial, dtype), shape)
    assert key is not None
    if isinstance(initial, spec.Uniform):
        x = jax.random.uniform(key, shape, boundary_dtype(dtype), initial.least, initial.most)
        x = x if initial.function is None else initial.function(jnp, x)
    else:
        drawn = shape if initial.product is None else initial.product.shape
        x = math.sqrt(initial.variance) * jax.random.normal(key, drawn, boundary_dtype(dtype))
        if initial.product is not None:
            basis = jnp.asarray(initial.product.basis, x.dtype)
            exact = jax.lax.Precision.HIGHEST
            x = jnp.einsum(initial.product.equation, basis, x, precision=exact).reshape(shape)
    return x.astype(dtype)


def _drawn(
    call: str, draw: Callable[[jax.Array, int], jax.Array], key: jax.Array, number: int
) -> jax.Array:
    """Derive keys from a key. Errors name the argument, unlike those of JAX."""
    try:
        return draw(key, number)
    except Exception as error:
        got = f"shape {key.shape}" if isinstance(key, jax.Array) else repr(key)
        expected = "a key of jax.random, such as jax.random.key(0)"
        raise TypeError(f"{call}: argument 'key': expected {expected}, got {got}") from error


def _dropped(key: jax.Array, x: jax.Array, share: float) -> jax.Array:
    """Drop this share of the elements, and scale the others."""
    if share == 1:
        return jnp.zeros_like(x)
    return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0)


@lru_cache(maxsize=256)
def _shapes(layer: Layer[Any]) -> dict[str, Any]:
    """The shapes of a layer's parameters."""
    return layer._of_each(lambda parameters: {name: p.shape for name, p in parameters.items()})


def _parameters(
    call: str, params: object, shapes: Mapping[str, Any], path: str = ""
) -> dict[str, Any]:
    """Return the parameters as arrays. Raises an error if names or shapes differ from `shapes`."""
    if not isinstance(params, Mapping):
        arguments.refuse(call, f"params{path}", "a dictionary", type(params).__name__, TypeError)
    if set(params) != set(shapes):
        got = sorted(map(str, params))
        arguments.refuse(call, f"params{path}", f"entries {sorted(shapes)}", got)
    found: dict[str, Any] = {}
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
