# SPDX-License-Identifier: BSD-3-Clause
"""One break of the sources, and the ways to write it down."""

import typing


class Mutation(typing.NamedTuple):
    file: str
    edits: tuple  # pairs of old and new text
    why: str  # what is wrong with it
    test: str = ""  # which should notice it, if not TEST of its list: a target, or a Python file
    cases: str = ""  # the part of the test that is run: as Catch2, or -k of pytest, takes it
    unseen: str = ""  # why no test can notice it


def mutation(file, old, new, why, **more):
    return Mutation(file, ((old, new),), why, **more)


def without(file, what, context, why, **more):
    """Leaves `what` out of `context`."""
    assert context.count(what) == 1, context
    return mutation(file, context, context.replace(what, ""), why, **more)
