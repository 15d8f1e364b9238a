# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the layers: stacking, directions, dropout, packed sequences and single steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree

from ... import _arguments as arguments
from ..._layers._spec import Initial, Normal, Spec, Uniform, options_of
from ..._torch.tensors import check_dense, reset_mask_of
from ..._types import State

__all__ = ["Leaves", "Recurrent", "Result", "Time", "Weights", "full_precision", "saved_by_name"]
__all__ += ["wide"]

Input = TypeVar("Input", Tensor, PackedSequence)
Kind = TypeVar("Kind", bound=type)
Leaves: TypeAlias = tuple[Tensor, ...]  # the tensors of a state
Weights: TypeAlias = dict[str, Tensor]  # of one layer and direction, by names without suffix
Result: TypeAlias = tuple[Tensor, Leaves]  # the outputs and the final state

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WEIGHTS = (torch.float64, *_NARROW)
_WEIGHT_NAMES = ", ".join(str(x).removeprefix("torch.") for x in _WEIGHTS)


@dataclass
class Time:
    """Time in tensors of three axes: its axis and direction, and where sequences start."""

    axis: int  #: 0 or 1; the other one is the batch
    reverse: bool
    begins: int  #: how many sequences have no state before them; they are last in the batch
    resets: Tensor | None  #: mask over the first two axes; it may have one step more

    @property
    def options(self) -> dict[str, Any]:
        """The arguments ``axis``, ``reverse`` and ``resets`` of a scan."""
        resets = None if self.resets is None else self.resets.unsqueeze(-1)
        return {"axis": self.axis, "reverse": self.reverse, "resets": resets}

    @property
    def batch_first(self) -> Time:
        """A copy of this object with time as axis 1."""
        resets = self.resets
        if self.axis == 0 and resets is not None:
            resets = resets.transpose(0, 1)
        return Time(1, self.reverse, self.begins, resets)

    def firsts(self, steps: int) -> Tensor | None:
        """Mask of the steps at which a reset starts a sequence, or None without resets.

        In reverse, these are the steps for which the mask is True at the next step in time.
        """
        reset_mask, axis = self.resets, self.axis
        if reset_mask is None or not self.reverse:
            return None if reset_mask is None else reset_mask.narrow(axis, 0, steps)
        if reset_mask.shape[axis] == steps:
            reset_mask = torch.cat(
                [reset_mask, torch.zeros_like(reset_mask.narrow(axis, 0, 1))], axis
            )
        return reset_mask.narrow(axis, 1, steps)


def wide(x: Tensor) -> Tensor:
    """Convert 16-bit tensors to float32, in which scans compute."""
    return x.float() if x.dtype.itemsize == 2 else x


def _is_autocast(device: torch.device) -> bool:
    """Whether autocast is enabled on a device, so that products are in 16 bits."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def full_precision(x: Tensor) -> AbstractContextManager[None]:
    """A context without autocast, for products that must not be rounded to 16 bits."""
    if _is_autocast(x.device):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()


def saved_by_name(kind: Kind) -> Kind:
    """Register a named tuple with torch.load, for ``weights_only``, and with torch.export.save.

    The function for torch.export is private, but errors of torch.export name it. The public
    ``torch.export.register_dataclass`` does not support named tuples.
    """
    torch.serialization.add_safe_globals([kind])
    _pytree._register_namedtuple(kind, serialized_type_name=f"scanrec.torch.nn.{kind.__name__}")
    return kind


def _draw(weight: Tensor, initial: Initial) -> None:
    """Draw a parameter in place. Functions and products of random numbers use float64."""
    match initial:
        case Normal(variance, product):
            if product is None:
                weight.normal_(0, variance**0.5)
            else:
                x = variance**0.5 * torch.randn(product.shape, dtype=torch.float64, device="cpu")
                x = torch.einsum(product.equation, torch.from_numpy(product.basis), x)
                weight.copy_(x.reshape(weight.shape))
        case Uniform(least, most, function):
            if function is None:
                weight.uniform_(least, most)
            else:
                x = torch.empty_like(weight, dtype=torch.float64).uniform_(least, most)
                weight.copy_(function(torch, x))
        case _:
            weight.copy_(torch.as_tensor(initial, device="cpu"))


class Recurrent(Spec, torch.nn.Module, Generic[State]):
    """Base class of all layers. Each also inherits from its description, such as ``QRNNSpec``."""

    batch_first: bool

    #: A named tuple, for states of several tensors.
    _state_type: ClassVar[Any] = None

    def __init__(self, given: dict[str, Any]) -> None:
        """Check `given`, the ``locals()`` of a layer's constructor, and draw the parameters."""
        super().__init__()
        options = options_of(given)
        device, dtype = options.pop("device"), options.pop("dtype")
        for name, value in options.items():
            self._keep(name, value)
        self._convert(arguments.flag, "batch_first")
        self._check_options()
        if dtype is not None and dtype not in _WEIGHTS:
            expected = f"one of {_WEIGHT_NAMES}"
            arguments.refuse(self._name, "dtype", expected, dtype, TypeError)
        # Names of the parameters with their suffixes, for each layer and direction. A position is
        # the index of a pair of layer and direction.
        self._names: list[dict[str, str]] = []
        for position in range(self._directions):
            layer, direction = divmod(position, self.num_directions)
            suffix, names = f"_l{layer}" + ("_reverse" if direction else ""), {}
            for name, parameter in self._parameter_specs(self._inputs(layer)).items():
                weight = torch.empty(parameter.shape, device=device, dtype=dtype)
                names[name] = name + suffix
                self.register_parameter(names[name], torch.nn.Parameter(weight))
            self._names.append(names)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters from their initial distributions."""
        for position in range(self._directions):
            weights = self._weights(position)
            parameters = self._parameter_specs(self._inputs(position // self.num_directions))
            for name in dict.fromkeys((*self._draw_order, *parameters)):
                if name in parameters:
                    _draw(weights[name], parameters[name].initial)

    def _weights(self, position: int) -> Weights:
        return {name: getattr(self, full) for name, full in self._names[position].items()}

    def _run(self, x: Tensor, weights: Weights, state: Leaves, time: Time) -> Result:
        """Run one direction of one layer over x, which has three axes."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Sizes, and options that differ from the defaults."""
        shown = [str(self.input_size), str(self.hidden_size)]
        for name, option in inspect.signature(type(self).__init__).parameters.items():
            value = getattr(self, name, option.default)  # device and dtype are no attributes
            if option.default is not option.empty and value != option.default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    # ---- calls ---------------------------------------------------------------------------------

    def forward(
        self, input: Input, state: State | None = None, resets: Tensor | None = None
    ) -> tuple[Input, State]:
        """Run over whole sequences.

        Parameters
        ----------
        input:
            ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, ``(T, input_size)``
            for one sequence without a batch, or a ``PackedSequence``. A ``PackedSequence`` is not
            padded: consecutive steps with the same number of sequences are one batch.
        state:
            State that an earlier call returned, to continue its sequences. It is one tensor or a
            named tuple of tensors, ``(num_layers * num_directions, B, ...)``, without ``B`` if the
            input has no batch. It is converted to float32, or float64 in layers of float64, or to
            the complex type of that precision. If None, new sequences start.
        resets:
            Booleans that broadcast to the input's ``(T, B)``, ``(B, T)`` or ``(T,)``. True starts a
            new sequence: no state passes between this step and the one before it, in either
            direction. The mask has all steps of the input, or one more after the last step. With a
            ``PackedSequence`` it must be None.

        Returns
        -------
        ``(output, state)``: the outputs of all steps, with ``hidden_size * num_directions``
        channels, and the final state: after the last step, or after the first step in the reverse
        direction. States of packed sequences are in the order before packing.

        Raises
        ------
        ValueError, TypeError:
            An argument is invalid. The message names it.
        """
        if isinstance(input, PackedSequence):
            if resets is not None:
                expected = "None with a PackedSequence, whose lengths define the sequences"
                arguments.refuse(self._name, "resets", expected, type(resets).__name__)
            result: tuple[PackedSequence, State] = self._packed(input, state)
            return result
        self._check(self._name, input, "(T, B, I), (B, T, I) with batch_first, or (T, I)", (2, 3))
        is_batch = input.dim() == 3
        x = input if is_batch else input.unsqueeze(1)
        axis = 1 if is_batch and self.batch_first else 0
        if x.shape[axis] < 1:
            arguments.refuse(self._name, "input", "at least 1 step", f"shape {tuple(input.shape)}")
        batch = x.shape[1 - axis]
        begins = batch if state is None else 0
        leaves = self._leaves(state, batch, is_batch, x.device)
        resets = reset_mask_of(self._name, resets, tuple(input.shape[:-1]), axis, x.device)
        if resets is not None and not is_batch:
            resets = resets.unsqueeze(1)

        def run(x: Tensor, weights: Weights, state: Leaves, reverse: bool) -> Result:
            return self._run(x, weights, state, Time(axis, reverse, begins, resets))

        output, finals = self._stacked(x, leaves, run)
        if not is_batch:
            output, finals = output.squeeze(1), tuple(x.squeeze(1) for x in finals)
        return output, self._state(finals)

    if TYPE_CHECKING:

        def __call__(
            self, input: Input, state: State | None = None, resets: Tensor | None = None
        ) -> tuple[Input, State]: ...

    def step(self, input: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run a single step. The results are those of :meth:`forward` on a sequence of one step.

        A bidirectional layer raises ValueError.

        Parameters
        ----------
        input:
            ``(B, input_size)``, or ``(input_size,)`` without a batch.
        state:
            As in :meth:`forward`.

        Returns
        -------
        ``(output, state)``, with an output of shape ``(B, hidden_size)``.
        """
        call = f"{self._name}.step"
        if self.bidirectional:
            expected = "False for single steps"
            arguments.refuse(call, "bidirectional", expected, True)
        self._check(call, input, "(B, I) or (I)", (1, 2))
        time = 1 if input.dim() == 2 and self.batch_first else 0
        output, state = self.forward(input.unsqueeze(time), state)
        return output.squeeze(time), state

    @torch.compiler.disable(  # type: ignore[no-untyped-call,untyped-decorator]
        reason="the lengths of packed sequences are numbers in a tensor"
    )
    def _packed(self, packed: PackedSequence, state: State | None) -> tuple[PackedSequence, State]:
        """Run over sequences of several lengths.

        The steps are consecutive in memory, each with the longest sequence first. Consecutive
        steps with the same number of sequences are therefore one batch. The function is not
        compiled: torch.compile would make a program for each set of lengths.
        """
        data, sizes, order, back = packed
        self._check(self._name, data, "a PackedSequence of steps (I)", (2,))
        counts = _batch_sizes(self._name, sizes, data.shape[0])
        leaves = self._leaves(state, counts[0], True, data.device)
        if order is not None:
            leaves = tuple(x.index_select(1, order) for x in leaves)
        shapes = [(len(list(steps)), rows) for rows, steps in groupby(counts)]

        def run(x: Tensor, weights: Weights, initial: Leaves, reverse: bool) -> Result:
            parts = torch.split(x, [steps * rows for steps, rows in shapes])
            now, outputs, ended = tuple(s[:0] for s in initial), [], []
            for part, shape in list(zip(parts, shapes))[:: -1 if reverse else 1]:
                held, rows = now[0].shape[0], shape[1]
                if rows < held:  # in the forward direction, the shortest sequences end
                    ended.append(tuple(s[rows:] for s in now))
                    now = tuple(s[:rows] for s in now)
                elif rows > held:  # in reverse, sequences start at their last steps
                    now = tuple(torch.cat([s, more[held:rows]]) for s, more in zip(now, initial))
                time = Time(0, reverse, max(rows - held, 0) if state is None else 0, None)
                y, now = self._run(torch.unflatten(part, 0, shape), weights, now, time)
                outputs.append(y.flatten(0, 1))
            final = tuple(torch.cat(s) for s in zip(now, *reversed(ended)))
            return torch.cat(outputs[::-1] if reverse else outputs), final

        output, finals = self._stacked(data, leaves, run)
        if back is not None:
            finals = tuple(x.index_select(1, back) for x in finals)
        return PackedSequence(output, sizes, order, back), self._state(finals)

    def _stacked(
        self, x: Tensor, state: Leaves, run: Callable[[Tensor, Weights, Leaves, bool], Result]
    ) -> Result:
        """Run all layers and directions, each by run(x, weights, state, reverse)."""
        finals = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self.num_directions):
                position = layer * self.num_directions + direction
                own = tuple(leaf[position] for leaf in state)
                y, final = run(x, self._weights(position), own, bool(direction))
                outputs.append(y)
                finals.append(tuple(new.to(old.dtype) for new, old in zip(final, own)))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        return x, tuple(torch.stack(leaf) for leaf in zip(*finals))

    # ---- arguments and states --------------------------------------------------------------------

    @property
    def _first_weight(self) -> Tensor:
        return next(iter(self._weights(0).values()))

    def _check(self, call: str, x: Tensor, axes: str, ranks: tuple[int, ...]) -> None:
        """Check the axes of an input, the size of the last one, and the device and type."""
        name, size, weight = "input", self.input_size, self._first_weight
        check_dense(call, name, x)
        if x.dim() not in ranks or x.shape[-1] != size:
            arguments.refuse(call, name, f"{axes} of I = {size}", f"shape {tuple(x.shape)}")
        if x.device != weight.device:
            expected = f"a tensor on {weight.device}, like the weights"
            arguments.refuse(call, name, expected, x.device)
        if weight.dtype not in _WEIGHTS:
            expected = f"weights in one of {_WEIGHT_NAMES}"
            arguments.refuse(call, name, expected, weight.dtype, TypeError)
        if _is_autocast(x.device) and x.dtype in _NARROW and weight.dtype in _NARROW:
            return
        if x.dtype != weight.dtype:
            arguments.refuse(call, name, f"{weight.dtype}, like the weights", x.dtype, TypeError)

    def _leaves(self, state: object, batch: int, is_batch: bool, device: torch.device) -> Leaves:
        """Return the tensors of a state, with a batch axis. They are 0 if the state is None."""
        least = torch.complex64 if self._complex_state else torch.float32
        dtype = torch.promote_types(self._first_weight.dtype, least)
        shapes, lead = self._state_shapes(), (self._directions, batch)
        if state is None:
            sizes = ((*lead, *shape) for shape in shapes.values())
            return tuple(torch.zeros(size, dtype=dtype, device=device) for size in sizes)
        given = state if len(shapes) > 1 else (state,)
        if not isinstance(given, tuple) or len(given) != len(shapes):
            expected = f"a tuple of {', '.join(shapes)}"
            got = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
            arguments.refuse(self._name, "state", expected, got, TypeError)
        for (name, shape), x in zip(shapes.items(), given):
            name = f"state.{name}" if len(shapes) > 1 else "state"
            check_dense(self._name, name, x)
            wanted = (*(lead if is_batch else lead[:1]), *shape)
            arguments.check_shape(self._name, name, x.shape, wanted, equal=True)
            if x.is_complex() != dtype.is_complex or not (x.is_complex() or x.is_floating_point()):
                kind = "a complex type" if dtype.is_complex else "a real floating type"
                arguments.refuse(self._name, name, kind, x.dtype, TypeError)
            if x.device != device:
                expected = f"a tensor on {device}, like 'input'"
                arguments.refuse(self._name, name, expected, x.device)
        return tuple(x.to(dtype) if is_batch else x.to(dtype).unsqueeze(1) for x in given)

    def _state(self, leaves: Leaves) -> Any:
        return leaves[0] if len(leaves) == 1 else self._state_type(*leaves)


def _batch_sizes(call: str, sizes: Tensor, rows: int) -> list[int]:
    """The number of sequences at each step of a PackedSequence with this number of rows."""
    found = sizes.tolist() if sizes.dim() == 1 and sizes.dtype == torch.int64 else []
    falls = bool(found) and found[-1] > 0 and found == sorted(found, reverse=True)
    if not falls or sum(found) != rows:
        expected = "a PackedSequence with int64 batch_sizes, at least 1 and not increasing, that "
        expected += f"add up to its {rows} rows"
        got = f"{found}" if 0 < len(found) < 10 else f"shape {tuple(sizes.shape)}, {sizes.dtype}"
        arguments.refuse(call, "input", expected, got)
    return found
