# SPDX-License-Identifier: BSD-3-Clause
"""Scan functions of other packages, with their names, parameters and results, on scanrec's scans.

One module stands in for one package:

- PyTorch: ``accelerated_scan``, ``linrec``, ``mambapy``, ``minGRU_pytorch``, ``philtorch``,
  ``rl_games``, ``s5`` (s5-pytorch), ``torchlpc``, ``torchrl``
- JAX: ``memax``, ``recurrentgemma``, ``rlax``, ``s5`` (S5)

A name that a package has in several of its modules is in a namespace of that module's name, such as
``accelerated_scan.warp.scan``. Other names are at the top of the module.

None of these packages is needed, and a module imports no framework but its own. Docstrings and
``docs/compat.md`` say what differs from the originals.
"""
