# SPDX-License-Identifier: BSD-3-Clause
"""Registration of named tuples of states with what saves and loads them."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch.utils import _pytree

__all__ = ["saved_by_name"]

Kind = TypeVar("Kind", bound=type)


def saved_by_name(kind: Kind) -> Kind:
    """A named tuple that torch.load takes with ``weights_only`` and torch.export.save writes.

    The registration with torch.export has no public name: its errors ask for this one, and
    ``torch.export.register_dataclass`` takes no named tuples.
    """
    torch.serialization.add_safe_globals([kind])
    _pytree._register_namedtuple(kind, serialized_type_name=f"scanrec.torch.nn.{kind.__name__}")
    return kind
