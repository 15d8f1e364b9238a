# SPDX-License-Identifier: BSD-3-Clause
"""Types that calls and layers of several frameworks share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

__all__ = ["Candidate", "Discretisation", "Memory", "Pool", "State"]

Candidate: TypeAlias = Literal["identity", "positive"]
Discretisation: TypeAlias = Literal["zero_order_hold", "bilinear"]
Memory: TypeAlias = Literal["store", "recompute"]
Pool: TypeAlias = Literal["f", "fo", "ifo"]

#: What a layer goes on from: an array, or a named tuple of several.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    State = _TypeVar("State", default=Any)
else:  # before Python 3.13 without a default
    State = TypeVar("State")
