# SPDX-License-Identifier: BSD-3-Clause
"""Scan functions of other packages, with their names, parameters and results.

They run scanrec's scans. Each module stands in for the package of its name, and ``s5`` for
two packages:

- PyTorch: ``accelerated_scan``, ``linrec``, ``mambapy``, ``minGRU_pytorch``, ``philtorch``,
  ``rl_games``, ``s5`` (s5-pytorch), ``torchlpc``, ``torchrl``
- JAX: ``memax``, ``recurrentgemma``, ``rlax``, ``s5`` (S5)

If functions of several modules of a package have one name, each is in a namespace with the name of
its module, such as ``accelerated_scan.warp.scan``. Most other functions are at the top level.

These packages need not be installed, except mambapy for its classes. A module imports only the
framework that its functions use.
Docstrings and ``docs/compat.md`` describe the differences from the originals.
"""
