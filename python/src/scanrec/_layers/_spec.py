# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the descriptions, and the distributions of initial parameters."""

from __future__ import annotations

import inspect
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from .. import _arguments as arguments

__all__ = [
    *("Constant", "GateDecay", "HippoInput", "HippoOutput", "LogIntegers", "LogUniform"),
    *(
        "Normal",
        "Parameter",
        "RingAngle",
        "RingRadius",
        "Spec",
        "StepBias",
        "Uniform",
        "options_of",
    ),
]

# Distributions of initial values. The bindings draw them.

#: A number, or an array of the shape of the parameter.
Constant = namedtuple("Constant", "value")
#: Normal, of mean 0 and variance 1 / inputs.
Normal = namedtuple("Normal", "inputs")
#: Uniform in +-1 / sqrt(inputs), as in torch.nn.Linear and torch.nn.Conv1d.
Uniform = namedtuple("Uniform", "inputs")
#: Logarithms of numbers that are log-uniform between two bounds.
LogUniform = namedtuple("LogUniform", "least most")
#: log 1, log 2, ... along the last axis.
LogIntegers = namedtuple("LogIntegers", "")
#: log(-log(r)) of radii r whose squares are uniform between those of two bounds.
RingRadius = namedtuple("RingRadius", "least most")
#: Logarithms of angles that are uniform between 0 and a bound.
RingAngle = namedtuple("RingAngle", "most")
#: Numbers x such that exp(-c softplus(x)) is uniform between two bounds.
GateDecay = namedtuple("GateDecay", "least most c")
#: Numbers whose softplus is log-uniform between two bounds.
StepBias = namedtuple("StepBias", "least most")
#: Parts of b, (blocks * P, inputs, 2): in each block b is basis^H x, with a basis of shape (2 P, P)
#: and x normal of variance 1 / inputs.
HippoInput = namedtuple("HippoInput", "basis blocks")
#: Parts of c, (outputs, blocks * P, 2): in each block c is x basis, with x normal of variance
#: 1 / (2 P blocks).
HippoOutput = namedtuple("HippoOutput", "basis blocks")


class Parameter(NamedTuple):
    """Shape and initial distribution of a parameter."""

    shape: tuple[int, ...]
    initial: Any


def options_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Options among the local variables at the start of a constructor."""
    return {name: x for name, x in arguments.items() if name not in ("self", "__class__")}


class Spec:
    """Base class of the descriptions, with the options that all layers share.

    Annotated attributes are the options. The constructors of the bindings have their defaults.
    """

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    dropout: float
    bidirectional: bool

    #: Whether states are complex.
    _complex_state: ClassVar[bool] = False
    #: Parameters that are drawn from a random key of JAX, in the order of the keys.
    _key_order: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Add the docstring of its description to that of a layer."""
        super().__init_subclass__()
        is_own = lambda kind: kind.__module__.startswith(f"{__package__}.")
        for base in () if is_own(cls) else cls.__bases__:
            if is_own(base) and base is not Spec and cls.__doc__ and base.__doc__:
                cls.__doc__ = "\n\n".join(inspect.cleandoc(x.__doc__) for x in (cls, base))

    # ---- defined by each description -----------------------------------------------------------

    def _check_own(self) -> None:
        """Check and convert the options that the layers do not share."""

    def _parameter_specs(self, inputs: int) -> dict[str, Parameter]:
        """Parameters of one direction of one layer, in the order of their registration."""
        raise NotImplementedError

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
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

    def _inputs(self, layer: int) -> int:
        """Input size of a layer of the stack."""
        return self.num_directions * self.hidden_size if layer else self.input_size

    # ---- checks --------------------------------------------------------------------------------

    def _check_options(self) -> None:
        """Check and convert all options."""
        self._check_counts("input_size", "hidden_size", "num_layers")
        self._check_flags("bias", "bidirectional")
        self._check_number("dropout", "a number from 0 to 1", lambda p: 0 <= p <= 1)
        if self.dropout and self.num_layers == 1:
            message = f"{self._name}: dropout is between layers, and there is only one layer"
            warnings.warn(message, stacklevel=4)  # at the call of the constructor
        self._check_own()

    def _keep(self, name: str, value: object) -> None:
        """Set an option, also of a frozen dataclass."""
        object.__setattr__(self, name, value)

    def _check_counts(self, *names: str) -> None:
        for name in names:
            self._keep(name, arguments.count(self._name, name, getattr(self, name)))

    def _check_flags(self, *names: str) -> None:
        for name in names:
            self._keep(name, arguments.flag(self._name, name, getattr(self, name)))

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
