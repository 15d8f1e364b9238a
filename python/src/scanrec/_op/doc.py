# SPDX-License-Identifier: BSD-3-Clause
"""Docstrings that combine the text of an operation with the text of one of its bindings.

Both texts are numpydoc docstrings: opening paragraphs, then sections. Two rules combine them:

- Parameters and Raises consist of entries. An entry of the binding replaces the entry of the
  operation with the same name.
- All other text of the binding follows the text of the operation in the same section.

Parameters come in the order of the signature. Entries for names outside the signature are left out.

The documentation site loads this file by its path, so this file imports nothing from the package.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["compose", "documented", "entries", "sections"]

_ORDER = ("", "Parameters", "Returns", "Raises", "Notes")
_WITH_ENTRIES = ("Parameters", "Raises")

#: The errors of all calls.
_EVERY_CALL = """
Raises
------
ValueError, TypeError:
    An argument is invalid. The message gives its name, the expected value and the actual one. In a
    traced program, the error is raised during tracing.
"""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring by title. The title of the opening is empty."""
    parts = re.split(r"^(\w+)\n-{3,}$", inspect.cleandoc(text), flags=re.MULTILINE)
    return {title: body.strip("\n") for title, body in zip(["", *parts[1::2]], parts[::2])}


def entries(section: str) -> list[tuple[list[str], str]]:
    """Return the names and the indented text of each entry of a section."""
    parts = re.split(r"^(\S.*):$", section, flags=re.MULTILINE)
    return [(names.split(", "), text.strip("\n")) for names, text in zip(parts[1::2], parts[2::2])]


def compose(parameters: Iterable[str], *texts: str) -> str:
    """Return the docstring of a function with these parameters.

    Texts come in the order from general to specific: the operation first, then the binding.
    """
    found = [sections(text) for text in (_EVERY_CALL, *texts)]
    composed = []
    for title in _ORDER:
        bodies = [each[title] for each in found if each.get(title)]
        if title in _WITH_ENTRIES:
            text_of = {n: text for b in bodies for names, text in entries(b) for n in names}
            known = parameters if title == "Parameters" else text_of
            names_of: dict[str, list[str]] = {}
            for name in known:
                if name in text_of:
                    names_of.setdefault(text_of[name], []).append(name)
            bodies = ["\n".join(f"{', '.join(n)}:\n{text}" for text, n in names_of.items())]
        body = "\n\n".join(bodies)
        if body:
            composed.append(f"{title}\n{'-' * len(title)}\n{body}" if title else body)
    return "\n\n".join(composed)


def documented(*texts: str) -> Callable[[_Function], _Function]:
    """Compose the docstring of the decorated function from these texts and its own docstring.

    An overloaded function has the decorator on its implementation.
    """

    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters
        function.__doc__ = compose(parameters, *texts, function.__doc__ or "")
        return function

    return decorate
