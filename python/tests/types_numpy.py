# SPDX-License-Identifier: BSD-3-Clause
"""Code for NumPy arrays that is only type-checked, never run: result types and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import scanrec


def results(x: NDArray[np.float32], with_final: bool) -> None:
    assert_type(scanrec.linear_scan(x, x), NDArray[Any])
    assert_type(scanrec.linear_scan(0.5, [[1.0], [2.0]], 1j, return_final=False), NDArray[Any])
    state, final = scanrec.linear_scan(x, x, axis=np.int64(0), resets=[True], return_final=True)
    assert_type(state, NDArray[Any])
    assert_type(final, NDArray[Any])
    either = scanrec.linear_scan(x, x, log_gate=True, return_final=with_final)
    assert_type(either, NDArray[Any] | tuple[NDArray[Any], NDArray[Any]])

    gradients = scanrec.linear_scan_vjp(x, state, state, wrt=["gate", "input"])
    assert_type(gradients, scanrec.Gradients)
    assert_type(gradients.gate, NDArray[Any] | Any)
    gradients.input.sum()

    assert_type(scanrec.linear_scan_jvp(x, state, x), NDArray[Any])
    tangents = scanrec.linear_scan_jvp(x, state, None, x, 0.0, return_final=True)
    assert_type(tangents, tuple[NDArray[Any], NDArray[Any]])
    either = scanrec.linear_scan_jvp(x, state, reverse=True, return_final=with_final)
    assert_type(either, NDArray[Any] | tuple[NDArray[Any], NDArray[Any]])

    assert_type(scanrec.show_config(), None)
    assert_type(scanrec.__version__, str)
    assert_type(scanrec.compat.__name__, str)


def mistakes(x: NDArray[np.float32]) -> None:
    scanrec.linear_scan(x)  # type: ignore[call-overload]
    scanrec.linear_scan(x, x, axes=0)  # type: ignore[call-overload]
    scanrec.linear_scan(x, x, axis="time")  # type: ignore[call-overload]
    scanrec.linear_scan(x, x, None, 0)  # type: ignore[call-overload]
    scanrec.linear_scan(x, object())  # type: ignore[call-overload]
    scanrec.linear_scan(x, x, return_final="yes")  # type: ignore[call-overload]
    scanrec.linear_scan(x, x, return_final=True).sum()  # type: ignore[attr-defined]
    scanrec.linear_scan_vjp(x, x, wrt="gate")  # type: ignore[arg-type]
    scanrec.linear_scan_vjp(x, x, wrt=["gates"])  # type: ignore[list-item]
    print(scanrec.linear_scan_vjp(x, x).gates)  # type: ignore[attr-defined]
    scanrec.linear_scan_jvp(x, x, log_gate=True)  # type: ignore[call-overload]
    print(scanrec.scan)  # type: ignore[attr-defined]
