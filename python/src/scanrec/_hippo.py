# SPDX-License-Identifier: BSD-3-Clause
"""What the layers of S5 start from, whatever their framework."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["legs_normal_part"]


@lru_cache(maxsize=16)
def legs_normal_part(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the normal part of HiPPO-LegS of n states, n even,

        A[i][j] = -1/2 on the diagonal, -s / 2 below it, s / 2 above,  s = sqrt((2 i + 1) (2 j + 1))

    the eigenvalues with positive imaginary part, which all have -1/2 as the real one, and their
    eigenvectors, a column each: imaginary parts ``(n / 2,)``, ``(n, n / 2)``.
    """
    root = np.sqrt(2.0 * np.arange(n) + 1)
    below = np.tril(np.outer(root, root) / 2, -1)
    # -i times the part that is skew, which is Hermitian.
    frequencies, vectors = np.linalg.eigh(1j * (below - below.T))
    return frequencies[n // 2 :], vectors[:, n // 2 :]
