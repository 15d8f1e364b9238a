# SPDX-License-Identifier: BSD-3-Clause
"""What the layers share, in the habits of torch.nn.LSTM: stacking, directions, dropout, sequences
of several lengths, and single steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ... import _arguments as arguments
from ..._types import State
from .._tensors import marks
from . import _checks as checks

__all__ = ["Leaves", "Recurrent", "Weights", "full_precision", "wide"]

_DEFAULTS = {
    "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
}  # fmt: skip
Input = TypeVar("Input", Tensor, PackedSequence)
Leaves = tuple[Tensor, ...]  # the tensors of a state
Weights = dict[str, Tensor]  # of one layer and direction, by names without these


def wide(x: Tensor) -> Tensor:
    """A tensor in the type that scans compute in: float32 instead of 16 bits."""
    return x.float() if x.dtype.itemsize == 2 else x


def full_precision(x: Tensor) -> AbstractContextManager:
    """A context without autocast, for products that may not be rounded to 16 bits."""
    if checks.is_autocast(x.device):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()


class Recurrent(torch.nn.Module, Generic[State]):
    """The base of all layers. One of them says which weights and states it has, what it starts
    from, and how one layer and direction of it runs over sequences of one length."""

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool

    _own: dict[str, Any] = {}  #: options of the layer's own, and their defaults
    _state_type: Callable[..., Any] | None = None  #: a named tuple; None: a tensor
    _complex_state = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
    ):
        super().__init__()
        self.input_size = self._count("input_size", input_size)
        self.hidden_size = self._count("hidden_size", hidden_size)
        self.num_layers = self._count("num_layers", num_layers)
        self.bias = arguments.flag(self._name, "bias", bias)
        self.batch_first = arguments.flag(self._name, "batch_first", batch_first)
        self.dropout = self._number("dropout", dropout, 0, 1)
        self.bidirectional = arguments.flag(self._name, "bidirectional", bidirectional)
        if self.dropout and self.num_layers == 1:
            said = "dropout is between layers, of which there is one"
            warnings.warn(f"{self._name}: {said}", stacklevel=3)

    # ---- of each layer -------------------------------------------------------------------------

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Weights of a layer with so many inputs."""
        raise NotImplementedError

    def _reset(self, weights: Weights, inputs: int) -> None:
        """Draws them, in place."""
        raise NotImplementedError

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of each tensor of a state, what one sequence has of it."""
        return {"state": (self.hidden_size,)}

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
        """One direction of one layer over x, whose time is `axis`, 0 or 1 of three. The last
        `begins` sequences begin here, and their state is 0; others start where `resets`, of the
        first two axes with one step more or without, says so."""
        raise NotImplementedError

    # ---- construction --------------------------------------------------------------------------

    def _build(self, device, dtype) -> None:
        checks.check_dtype(self._name, dtype)
        for place in self._places():
            for name, shape in self._shapes(self._inputs(place)).items():
                weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                self.register_parameter(name + self._suffix(place), weight)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws all weights anew, as the class says."""
        for place in self._places():
            self._reset(self._weights(place), self._inputs(place))

    @property
    def num_directions(self) -> int:
        """2 where it is bidirectional."""
        return 2 if self.bidirectional else 1

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _places(self) -> range:
        """Layers and directions, the latter side by side."""
        return range(self.num_layers * self.num_directions)

    def _inputs(self, place: int) -> int:
        first = place < self.num_directions
        return self.input_size if first else self.hidden_size * self.num_directions

    def _suffix(self, place: int) -> str:
        layer, direction = divmod(place, self.num_directions)
        return f"_l{layer}" + ("_reverse" if direction else "")

    def _weights(self, place: int) -> Weights:
        suffix = self._suffix(place)
        return {name: getattr(self, name + suffix) for name in self._shapes(self._inputs(place))}

    def _count(self, name: str, value: object) -> int:
        return arguments.count(self._name, name, value)

    def _number(self, name: str, value: object, least: float, most: float) -> float:
        return checks.number(self._name, name, value, least, most)

    def extra_repr(self) -> str:
        """Sizes, and options that are not the defaults."""
        others = {**_DEFAULTS, **self._own}
        said = [f"{n}={getattr(self, n)!r}" for n, x in others.items() if getattr(self, n) != x]
        return ", ".join([str(self.input_size), str(self.hidden_size), *said])

    # ---- calls ---------------------------------------------------------------------------------

    def forward(
        self, input: Input, state: State | None = None, resets: Tensor | None = None
    ) -> tuple[Input, State]:
        """The outputs of all steps, and the state after the last.

        Parameters
        ----------
        input:
            ``(T, B, input_size)``, ``(B, T, input_size)`` with ``batch_first``, ``(T, input_size)``
            for one sequence without a batch; or a ``PackedSequence``, whose steps are all that is
            computed: those with as many sequences each, at once, where they lie.
        state:
            What the sequences go on from, as an earlier call returned it: one tensor, or a named
            tuple of several, ``(num_layers * num_directions, B, ...)``, without ``B`` where the
            input has no batch. float32, or float64 in layers of float64, and complex ones of these;
            others are converted. None: sequences begin.
        resets:
            Booleans that broadcast to the input's ``(T, B)``, ``(B, T)`` or ``(T,)``, with all of
            its steps: where one is set a sequence starts, and sees nothing of those before. There
            may be one step more of them, whose mark is behind the last step. None beside a
            ``PackedSequence``.

        Returns
        -------
        ``(output, state)``, the former like the input with ``hidden_size * num_directions`` numbers
        at each step. States of packed sequences are in the order of the sequences.

        Raises
        ------
        ValueError, TypeError:
            Names the argument, what was expected and what came.
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
        """One step of a stream: the output and the state after it, those of :meth:`forward` on a
        sequence of this step. Not of a bidirectional layer.

        Parameters
        ----------
        input:
            ``(B, input_size)``, or ``(input_size,)`` without a batch.
        state:
            As in :meth:`forward`.

        Returns
        -------
        ``(output, state)``, the former ``(B, hidden_size)``.
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
        """Sequences of several lengths: steps lie behind one another, the longest sequence first in
        each, so that those with as many sequences each are a whole batch. Not compiled: there would
        be a program for each set of lengths."""
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
        """Parts with fewer and fewer sequences: the last of them end."""
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
        """The same from the end: more and more sequences, which begin at their last steps."""
        outputs, now = [], tuple(s[:0] for s in state)
        for x in reversed(parts):
            held, rows = now[0].shape[0], x.shape[1]
            now = tuple(torch.cat([s, more[held:rows]]) for s, more in zip(now, state))
            y, now = self._run(x, weights, now, 0, True, rows - held if begins else 0, None)
            outputs.append(y)
        return outputs[::-1], now

    def _stacked(self, x, state, run):
        """All layers and directions, by run(x, weights, state, reverse) of one."""
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
        """The tensors of a state, with an axis of the batch; zeros where there is none."""
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
            several = self._state_type is not None
            leaves = checks.state_leaves(self._name, state, several, shapes, dtype, device)
        return tuple(x if is_batch else x.unsqueeze(1) for x in leaves)

    def _state(self, leaves: Leaves) -> Any:
        return leaves[0] if self._state_type is None else self._state_type(*leaves)
