# SPDX-License-Identifier: BSD-3-Clause
"""The shared parts of the operations in JAX: primitives, derivatives, sharding, arguments."""
