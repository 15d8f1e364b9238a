# SPDX-License-Identifier: BSD-3-Clause
"""Scan functions of other packages, with their names, parameters and results, on scanrec's scans.

One module stands in for one package:

- PyTorch: ``accelerated_scan``, ``linrec``, ``mambapy``, ``minGRU_pytorch``, ``philtorch``,
  ``rl_games``, ``s5`` (s5-pytorch), ``torchlpc``, ``torchrl``
- JAX: ``memax``, ``recurrentgemma``, ``rlax``, ``s5`` (S5)

If several modules of a package have a function of the same name, each is in a namespace with the
name of its module, such as ``accelerated_scan.warp.scan``. Other names are at the top level.

None of these packages needs to be installed, and a module imports only its own framework.
Docstrings and ``docs/compat.md`` describe the differences from the originals.
"""
