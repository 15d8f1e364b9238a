# SPDX-License-Identifier: BSD-3-Clause
"""Helper for public functions that share one body."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ABSENT", "named"]

Result = TypeVar("Result")

#: The value that a body gets for a parameter that its function lacks.
ABSENT: Any = object()


def named(
    name: str,
    body: Callable[..., Result],
    *,
    within: str = "",
    keyword_only: str = "",
    **fixed: Any,
) -> Callable[..., Result]:
    """Make the function ``name`` from a body whose first parameter is the name for errors.

    The function lacks the parameters that are ``fixed``. The parameter ``keyword_only`` is passed
    by name only. The function is an attribute of the module, or of the class ``within``.
    """
    whole = inspect.signature(body)
    parameters = [
        p.replace(kind=p.KEYWORD_ONLY) if p.name == keyword_only else p
        for p in list(whole.parameters.values())[1:]
        if p.name not in fixed
    ]
    signature = whole.replace(parameters=parameters)
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = {p.name for p in parameters}
    required = {p.name for p in parameters if p.default is p.empty}

    def function(*args: Any, **kwargs: Any) -> Result:
        first = dict(zip(by_position, args))
        given = first.keys() | kwargs.keys()
        if len(given) < len(args) + len(kwargs) or not required <= given <= names:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
        return body(name, **first, **fixed, **kwargs)

    function.__name__ = name
    function.__qualname__ = f"{within}.{name}" if within else name
    function.__module__, function.__doc__ = body.__module__, body.__doc__
    vars(function)["__signature__"] = signature
    return function
