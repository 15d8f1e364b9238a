# SPDX-License-Identifier: BSD-3-Clause
"""Public functions that share one body."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ABSENT", "named"]

Result = TypeVar("Result")

#: The value of a parameter that a function lacks, where its body has no other one for it.
ABSENT: Any = object()


def named(
    name: str, body: Callable[..., Result], *, keyword_only: str = "", **fixed: Any
) -> Callable[..., Result]:
    """Make the function ``name`` from a body whose first parameter is the name for errors.

    The function lacks the parameters that are ``fixed``, and takes ``keyword_only`` by name alone.
    """
    parameters = [
        p.replace(kind=p.KEYWORD_ONLY) if p.name == keyword_only else p
        for p in list(inspect.signature(body).parameters.values())[1:]
        if p.name not in fixed
    ]
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    def function(*args: Any, **kwargs: Any) -> Result:
        if len(args) > len(by_position):
            most, got = len(by_position), len(args)
            raise TypeError(f"{name}: expected at most {most} positional arguments, got {got}")
        return body(name, **dict(zip(by_position, args)), **fixed, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = body.__module__, body.__doc__
    function.__signature__ = inspect.signature(body).replace(parameters=parameters)
    return function
