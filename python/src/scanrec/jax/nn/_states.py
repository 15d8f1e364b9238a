# SPDX-License-Identifier: BSD-3-Clause
"""Registration of named tuples of states with jax.export."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["saved_by_name"]

Kind = TypeVar("Kind", bound=type)


def saved_by_name(kind: Kind) -> Kind:
    """A named tuple that exported programs are serialized with, where jax.export is there."""
    try:
        from jax.export import register_namedtuple_serialization
    except ImportError:  # a package that it needs is missing
        return kind
    return register_namedtuple_serialization(
        kind, serialized_name=f"scanrec.jax.nn.{kind.__name__}"
    )
