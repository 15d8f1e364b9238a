# SPDX-License-Identifier: BSD-3-Clause
"""The type of a mutation of the sources, and helpers to define mutations."""

import typing


class Mutation(typing.NamedTuple):
    file: str
    edits: tuple  # pairs of old and new text
    why: str  # the error that it introduces
    test: str = ""  # test that should fail: target or Python file (default: TEST of the list)
    cases: str = ""  # the part of the test to run, as a Catch2 filter or for -k of pytest
    unseen: str = ""  # why no test can detect it


def mutation(file, old, new, why, **more):
    return Mutation(file, ((old, new),), why, **more)


def without(file, what, context, why, **more):
    """A mutation that removes `what` from `context`."""
    assert context.count(what) == 1, context
    return mutation(file, context, context.replace(what, ""), why, **more)
