# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the descriptions of layers, and the distributions of initial parameters."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from .. import _arguments as arguments

__all__ = ["Initial", "Normal", "Parameter", "Parameters", "Product", "Shapes", "Spec", "Uniform"]
__all__ += ["options_of", "uniform_linear"]

# Distributions of initial values. The layers of each framework draw numbers from them.


class Product(NamedTuple):
    """An einsum of a fixed real basis and random numbers. ``shape`` is the shape of the numbers."""

    equation: str
    basis: np.ndarray
    shape: tuple[int, ...]


class Normal(NamedTuple):
    """Normal numbers of mean 0. If there is a product, they are its random numbers."""

    variance: float
    product: Product | None = None


class Uniform(NamedTuple):
    """Uniform numbers between two bounds. If there is a function, the initial values are
    ``function(xp, numbers)``, where ``xp`` is a module with the functions of NumPy."""

    least: float
    most: float
    function: Callable[[Any, Any], Any] | None = None


#: The initial value of a parameter: a number, an array that broadcasts, or a distribution.
Initial: TypeAlias = float | np.ndarray | Normal | Uniform


class Parameter(NamedTuple):
    """A parameter of one direction of one layer."""

    shape: tuple[int, ...]
    initial: Initial


Parameters: TypeAlias = dict[str, Parameter]
Shapes: TypeAlias = dict[str, tuple[int, ...]]


def uniform_linear(inputs: int) -> Uniform:
    """Uniform in +-1 / sqrt(inputs), as in torch.nn.Linear and torch.nn.Conv1d."""
    most = 1 / math.sqrt(inputs)
    return Uniform(-most, most)


def options_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Select the options among the local variables at the start of a constructor."""
    return {name: x for name, x in arguments.items() if name not in ("self", "__class__")}


class Spec:
    """Base class of the descriptions, with the options that all layers share.

    The public annotated attributes are the options. Their defaults are in the constructors of the
    layers.
    """

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    dropout: float
    bidirectional: bool

    #: Whether states are complex.
    _complex_state: ClassVar[bool] = False
    #: The parameters with random initial values, in the order in which they are drawn.
    _draw_order: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Append the docstring of the description to the docstring of a layer."""
        super().__init_subclass__()
        for base in cls.__bases__:
            is_described = base is not Spec and base.__module__.startswith(f"{__package__}.")
            if is_described and not cls.__module__.startswith(f"{__package__}."):
                docs = (cls.__doc__ or "", base.__doc__ or "")
                cls.__doc__ = "\n\n".join(map(inspect.cleandoc, docs))

    # ---- defined by each description -----------------------------------------------------------

    def _check_own(self) -> None:
        """Check and convert the options that the layers do not share."""

    def _parameter_specs(self, inputs: int) -> Parameters:
        """Parameters of one direction of one layer, in the order of their registration."""
        raise NotImplementedError

    def _state_shapes(self) -> Shapes:
        """Shape of each array of a state, for one sequence, layer and direction."""
        return {"hidden": (self.hidden_size,)}

    # ---- derived -------------------------------------------------------------------------------

    @property
    def num_directions(self) -> int:
        """2 in a bidirectional layer, otherwise 1."""
        return 2 if self.bidirectional else 1

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _directions(self) -> int:
        """The extent of the first axis of states. The directions of a layer are adjacent."""
        return self.num_layers * self.num_directions

    def _inputs(self, layer: int) -> int:
        """Input size of a layer of the stack."""
        return self.num_directions * self.hidden_size if layer else self.input_size

    # ---- checks --------------------------------------------------------------------------------

    def _check_options(self) -> None:
        """Check and convert all options."""
        self._convert(arguments.count, "input_size", "hidden_size", "num_layers")
        self._convert(arguments.flag, "bias", "bidirectional")
        self._check_number("dropout", "a number from 0 to 1", lambda p: 0 <= p <= 1)
        if self.dropout and self.num_layers == 1:
            message = f"{self._name}: dropout is between layers, and there is only one layer"
            warnings.warn(message, stacklevel=4)  # at the call of the constructor
        self._check_own()

    def _keep(self, name: str, value: object) -> None:
        """Set an option, also of a frozen dataclass."""
        object.__setattr__(self, name, value)

    def _convert(self, converted: Callable[[str, str, object], object], *names: str) -> None:
        for name in names:
            self._keep(name, converted(self._name, name, getattr(self, name)))

    def _check_number(self, name: str, expected: str, holds: Callable[[float], bool]) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            arguments.refuse(self._name, name, expected, repr(value), TypeError)
        if not holds(value):
            arguments.refuse(self._name, name, expected, value)
        self._keep(name, float(value))

    def _check_choice(self, name: str, known: tuple[Any, ...]) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or value not in known:
            arguments.refuse(self._name, name, "one of " + ", ".join(map(repr, known)), repr(value))
        self._keep(name, known[known.index(value)])
