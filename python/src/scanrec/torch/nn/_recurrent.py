# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the layers: stacking, directions, dropout, packed sequences and single steps."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree

from ... import _arguments as arguments
from ..._layers._spec import Spec, options_of
from ..._torch.tensors import marks
from ..._types import State
from . import _checks as checks
from ._initial import draw

__all__ = ["Leaves", "Recurrent", "Weights", "full_precision", "saved_by_name", "wide"]

Input = TypeVar("Input", Tensor, PackedSequence)
Kind = TypeVar("Kind", bound=type)
Leaves = tuple[Tensor, ...]  # the tensors of a state
Weights = dict[str, Tensor]  # of one layer and direction, by names without suffix


def wide(x: Tensor) -> Tensor:
    """Convert 16-bit tensors to float32, the type that scans compute in."""
    return x.float() if x.dtype.itemsize == 2 else x


def full_precision(x: Tensor) -> AbstractContextManager:
    """A context without autocast, for products that may not be rounded to 16 bits."""
    if checks.is_autocast(x.device):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()


def saved_by_name(kind: Kind) -> Kind:
    """Register a named tuple with torch.load, for ``weights_only``, and with torch.export.save.

    The registration with torch.export has no public name: its errors ask for this one, and
    ``torch.export.register_dataclass`` takes no named tuples.
    """
    torch.serialization.add_safe_globals([kind])
    _pytree._register_namedtuple(kind, serialized_type_name=f"scanrec.torch.nn.{kind.__name__}")
    return kind


class Recurrent(Spec, torch.nn.Module, Generic[State]):
    """Base class of all layers. A layer inherits from its description as well."""

    batch_first: bool

    #: A named tuple, for states of several tensors.
    _state_type: ClassVar[Any] = None
    #: Parameters that are drawn before the others, which are drawn in their order.
    _drawn_first: ClassVar[tuple[str, ...]] = ()

    def __init__(self, given: dict[str, Any]) -> None:
        """Check the arguments of a layer's constructor, its ``locals()``, and draw parameters."""
        super().__init__()
        options = options_of(given)
        device, dtype = options.pop("device"), options.pop("dtype")
        for name, value in options.items():
            self._keep(name, value)
        self._check_flags("batch_first")
        self._check_options()
        checks.check_dtype(self._name, dtype)
        self._names: list[dict[str, str]] = []  # of the parameters, with suffix, by place
        for place in self._places():
            layer, direction = divmod(place, self.num_directions)
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
        for place in self._places():
            weights = self._weights(place)
            parameters = self._parameter_specs(self._inputs(place // self.num_directions))
            for name in dict.fromkeys((*self._drawn_first, *parameters)):
                draw(weights[name], parameters[name].initial)

    def _places(self) -> range:
        """Layers and directions, the directions of a layer next to each other."""
        return range(self.num_layers * self.num_directions)

    def _weights(self, place: int) -> Weights:
        return {name: getattr(self, full) for name, full in self._names[place].items()}

    def _run(
        self,
        x: Tensor,
        weights: Weights,
        state: Leaves,
        axis: int,
        reverse: bool,
        begins: int,
        resets: Tensor | None,
    ) -> tuple[Tensor, Leaves]:
        """Run one direction of one layer over x, of three axes with time as `axis`, 0 or 1.

        The last `begins` sequences start here, and their state is 0. `resets` has the first two
        axes of x, with the same number of steps or one more.
        """
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
            padded: consecutive steps with equally many sequences are one batch.
        state:
            State that an earlier call returned, to continue its sequences. It is one tensor or a
            named tuple of tensors, ``(num_layers * num_directions, B, ...)``, without ``B`` if the
            input has no batch. It is converted to float32, or float64 in layers of float64, or to
            the complex type of that precision. With None the sequences begin.
        resets:
            Booleans that broadcast to the input's ``(T, B)``, ``(B, T)`` or ``(T,)``. True starts a
            new sequence, which sees no step before. The mask has all steps of the input, or one
            more, which is after the last step. It is None with a ``PackedSequence``.

        Returns
        -------
        ``(output, state)``: the outputs of all steps, with ``hidden_size * num_directions``
        channels, and the state after the last step. States of packed sequences are in the order of
        the sequences.

        Raises
        ------
        ValueError, TypeError:
            An argument does not fit. The message names it.
        """
        if isinstance(input, PackedSequence):
            if resets is not None:
                expected = "None beside a PackedSequence, whose lengths say where sequences end"
                arguments.refuse(self._name, "resets", expected, type(resets).__name__)
            return self._packed(input, state)
        self._check(input, "(T, B, I), (B, T, I) with batch_first, or (T, I)", (2, 3))
        is_batch = input.dim() == 3
        x = input if is_batch else input.unsqueeze(1)
        axis = 1 if is_batch and self.batch_first else 0
        if x.shape[axis] < 1:
            arguments.refuse(self._name, "input", "a step or more", f"shape {tuple(input.shape)}")
        batch = x.shape[1 - axis]
        begins = batch if state is None else 0
        leaves = self._leaves(state, batch, is_batch, x.device)
        resets = marks(self._name, resets, tuple(input.shape[:-1]), axis, x.device)
        if resets is not None and not is_batch:
            resets = resets.unsqueeze(1)

        def run(x, weights, state, reverse):
            return self._run(x, weights, state, axis, reverse, begins, resets)

        output, finals = self._stacked(x, leaves, run)
        if not is_batch:
            output, finals = output.squeeze(1), tuple(x.squeeze(1) for x in finals)
        return output, self._state(finals)

    if TYPE_CHECKING:

        def __call__(
            self, input: Input, state: State | None = None, resets: Tensor | None = None
        ) -> tuple[Input, State]: ...

    def step(self, input: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run a single step, with the results of :meth:`forward` on a sequence of this step.

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
            expected = "False, since the other direction begins at the end"
            arguments.refuse(call, "bidirectional", expected, True)
        self._check(input, "(B, I) or (I)", (1, 2), call)
        time = 1 if input.dim() == 2 and self.batch_first else 0
        output, state = self.forward(input.unsqueeze(time), state)
        return output.squeeze(time), state

    @torch.compiler.disable(reason="the lengths of packed sequences are numbers in a tensor")
    def _packed(self, packed, state):
        """Run over sequences of several lengths.

        The steps are consecutive in memory, each with the longest sequence first. So steps with
        equally many sequences are one batch. torch.compile would make a program for each set of
        lengths.
        """
        data, sizes, order, back = packed
        self._check(data, "a PackedSequence of steps (I)", (2,))
        counts = checks.batch_sizes(self._name, sizes, data.shape[0])
        begins = state is None
        leaves = self._leaves(state, counts[0], True, data.device)
        if order is not None:
            leaves = tuple(x.index_select(1, order) for x in leaves)
        shapes = [(len(list(steps)), rows) for rows, steps in groupby(counts)]

        def run(x, weights, state, reverse):
            parts = x.split([steps * rows for steps, rows in shapes])
            parts = [part.unflatten(0, shape) for part, shape in zip(parts, shapes)]
            along = self._backward if reverse else self._forward
            outputs, final = along(parts, weights, state, begins)
            return torch.cat([y.flatten(0, 1) for y in outputs]), final

        output, finals = self._stacked(data, leaves, run)
        if back is not None:
            finals = tuple(x.index_select(1, back) for x in finals)
        return PackedSequence(output, sizes, order, back), self._state(finals)

    def _forward(self, parts, weights, state, begins):
        """Run over parts with fewer and fewer sequences, the last of which end."""
        outputs, ended = [], []
        for x in parts:
            rows = x.shape[1]
            if outputs:
                ended.append(tuple(s[rows:] for s in state))
                state = tuple(s[:rows] for s in state)
            beginning = rows if begins and not outputs else 0
            y, state = self._run(x, weights, state, 0, False, beginning, None)
            outputs.append(y)
        ended.append(state)
        return outputs, tuple(torch.cat(s) for s in zip(*reversed(ended)))

    def _backward(self, parts, weights, state, begins):
        """Run over the parts from the end: sequences are added, and begin at their last steps."""
        outputs, now = [], tuple(s[:0] for s in state)
        for x in reversed(parts):
            held, rows = now[0].shape[0], x.shape[1]
            now = tuple(torch.cat([s, more[held:rows]]) for s, more in zip(now, state))
            y, now = self._run(x, weights, now, 0, True, rows - held if begins else 0, None)
            outputs.append(y)
        return outputs[::-1], now

    def _stacked(self, x, state, run):
        """Run all layers and directions, each by run(x, weights, state, reverse)."""
        finals = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self.num_directions):
                place = layer * self.num_directions + direction
                own = tuple(leaf[place] for leaf in state)
                y, final = run(x, self._weights(place), own, bool(direction))
                outputs.append(y)
                finals.append(tuple(new.to(old.dtype) for new, old in zip(final, own)))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        return x, tuple(torch.stack(leaf) for leaf in zip(*finals))

    def _check(self, x, axes, ranks, call=None):
        weight = next(iter(self._weights(0).values()))
        checks.check_input(call or self._name, x, axes, ranks, self.input_size, weight)

    def _leaves(self, state, batch, is_batch, device) -> Leaves:
        """The tensors of a state, with a batch axis. They are 0 if there is no state."""
        double = next(iter(self._weights(0).values())).dtype == torch.float64
        if self._complex_state:
            dtype = torch.complex128 if double else torch.complex64
        else:
            dtype = torch.float64 if double else torch.float32
        between = (len(self._places()), *((batch,) if is_batch else ()))
        shapes = {name: (*between, *shape) for name, shape in self._state_shapes().items()}
        if state is None:
            leaves = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes.values()]
        else:
            leaves = checks.state_leaves(self._name, state, shapes, dtype, device)
        return tuple(x if is_batch else x.unsqueeze(1) for x in leaves)

    def _state(self, leaves: Leaves) -> Any:
        return leaves[0] if len(leaves) == 1 else self._state_type(*leaves)
