# SPDX-License-Identifier: BSD-3-Clause
"""Functions of other packages, with their names, arguments and results, on scanrec's scans: the
line that imports one is all that changes.

======================================= =========================================================
``scanrec.compat.``                     has
======================================= =========================================================
``accelerated_scan.warp``               ``scan``; and in ``scalar``, ``complex``, ``ref``
``linrec``                              ``linrec``
``mambapy.pscan``                       ``pscan``
``mambapy.mamba``                       ``selective_scan``, and blocks with it
``s5.s5_model`` (s5-pytorch)            ``apply_ssm``, ``apply_ssm_liquid``
``s5.ssm`` (S5, JAX)                    ``apply_ssm``
``minGRU_pytorch.minGRU``               ``heinsen_associative_scan_log``
``recurrentgemma.jax.scan``             ``linear_scan``
``memax.equinox.scans``                 ``semigroup_scan``; and in ``memax.linen.scans``
``torchlpc``                            ``sample_wise_lpc`` of order 1, ``linear_recurrence``
``torchlpc.recurrence``                 ``Recurrence.apply``
``philtorch.lti``                       ``linear_recurrence``, ``diag_state_space``, filters
``philtorch.lpv``                       ``linear_recurrence``; in ``._recur`` ``recurrence``
``rlax``                                returns, advantages, V-trace
``torchrl.objectives.value.functional`` advantages, returns, V-trace, rewards to go
``rl_games.common.a2c_common``          ``discount_values``, ``discount_values_masks``
======================================= =========================================================

None of these packages is needed, and no framework is imported before the module that is about it.
What differs is in the docstring of each function, and in docs/compat.md.
"""
