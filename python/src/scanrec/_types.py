# SPDX-License-Identifier: BSD-3-Clause
"""Types that calls and layers of several frameworks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

__all__ = ["Candidate", "Discretisation", "Memory", "Pool", "State"]

Candidate: TypeAlias = Literal["identity", "positive"]
Discretisation: TypeAlias = Literal["zero_order_hold", "bilinear"]
Memory: TypeAlias = Literal["store", "recompute"]
Pool: TypeAlias = Literal["f", "fo", "ifo"]

#: The state of a layer: an array, or a named tuple of arrays.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    State = _TypeVar("State", default=Any)
else:  # typing.TypeVar has no defaults before Python 3.13
    State = TypeVar("State")
