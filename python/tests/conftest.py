# SPDX-License-Identifier: BSD-3-Clause
"""What the tests share: the recurrence as a loop, and random problems."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

WIDE = {"f": np.longdouble, "c": np.clongdouble}


def loop(gate, input, initial_state=None, *, axis=-2, reverse=False, resets=None):
    """States and final state, step by step in long double."""
    kind = WIDE["c" if np.iscomplexobj(gate) or np.iscomplexobj(input) else "f"]
    shape = np.shape(input)
    steps_first = lambda x: np.moveaxis(np.broadcast_to(x, shape), axis, 0)
    gate, input = (steps_first(np.asarray(x, kind)) for x in (gate, input))
    cut = steps_first(np.zeros(shape, bool) if resets is None else resets)
    state = np.zeros(input.shape[1:], kind)
    if initial_state is not None:
        state[...] = np.asarray(initial_state, kind)
    steps = range(len(input))
    out = np.empty_like(input)
    for t in reversed(steps) if reverse else steps:
        # A mark cuts the link between t - 1 and t, whichever way the scan goes.
        mark = t + 1 if reverse else t
        carried = gate[t] * state
        if mark < len(input):
            carried = np.where(cut[mark], 0, carried)
        state = out[t] = carried + input[t]
    return np.moveaxis(out, 0, axis), state


def pooled(pre, initial_state=None, *, reverse=False, resets=None, zoneout=None):
    """Outputs, states and final state of QRNN pooling of (..., T, C), in long double."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    candidate, forget, *others = (np.asarray(x, np.longdouble) for x in pre)
    gate = np.broadcast_to(sigmoid(forget), candidate.shape)
    input = (sigmoid(others[1]) if len(others) > 1 else sigmoid(-forget)) * np.tanh(candidate)
    if zoneout is not None:
        gate, input = np.where(zoneout, 1, gate), np.where(zoneout, 0, input)
    state, final = loop(gate, input, initial_state, reverse=reverse, resets=resets)
    return (sigmoid(others[0]) * state if others else state), state, final


def run_alone(module, call):
    """Runs a call of a test module in an interpreter of its own: threads of other libraries, JAX
    above all, may not survive a fork."""
    code = f"import {module}; {module}.{call}"
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)


class Random:
    """Arrays from a fixed seed."""

    def __init__(self, seed=0):
        self.generator = np.random.default_rng(seed)

    def __call__(self, *shape, dtype=np.float64, scale=1.0):
        dtype = np.dtype(dtype)
        x = self.generator.uniform(-scale, scale, shape)
        if dtype.kind == "c":
            x = x + 1j * self.generator.uniform(-scale, scale, shape)
        return np.asarray(x).astype(dtype)

    def marks(self, *shape):
        return self.generator.random(shape) < 0.2


@pytest.fixture
def random():
    return Random()
