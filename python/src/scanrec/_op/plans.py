# SPDX-License-Identifier: BSD-3-Clause
"""Plans of calls that were checked before.

Checking arguments and computing strides for the native call would take most of the time of a small
call. Both depend only on types, shapes, strides and options, which are the key of a plan. A plan is
immutable and holds no arrays.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["Plans"]

Plan = TypeVar("Plan")


class Plans(dict[tuple[Any, ...], Plan]):
    """Plans by layouts and options. All plans are dropped when there are too many."""

    MOST = 256

    def keep(self, key: tuple[Any, ...], plan: Plan) -> Plan:
        """Keep a plan, and return it."""
        if len(self) >= self.MOST:
            self.clear()
        self[key] = plan
        return plan
