# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch and JAX on a GPU: random arrays, copies, and the time of a call."""

import importlib
import os
import time


class Absent(Exception):
    """A peer cannot be measured; the message is the reason."""


def import_or_absent(*names):
    """Import the first of these modules that can be imported."""
    for name in names:
        try:
            return importlib.import_module(name)
        except Exception as error:  # importing a package that builds itself may raise anything
            why = f"{name} does not import: {short(error)}"
    raise Absent(why)


def short(error):
    first = (str(error).strip().splitlines() or [""])[0]
    return first if isinstance(error, Absent) else f"{type(error).__name__}: {first}"[:160]


class Torch:
    def __init__(self):
        self.module = torch = import_or_absent("torch")
        if not torch.cuda.is_available():
            raise Absent("PyTorch sees no GPU")
        self.device = "cuda"
        torch.manual_seed(1)
        properties = torch.cuda.get_device_properties(0)
        cache = getattr(properties, "L2_cache_size", 0) or 64 << 20
        self.flushed = [torch.zeros(2 * cache, dtype=torch.uint8, device="cuda") for _ in range(2)]

    def uniform(self, shape, low, high, is_complex):
        torch = self.module
        x = torch.rand(shape, device=self.device) * (high - low) + low
        return torch.complex(0.9 * x, 0.3 * x) if is_complex else x

    def copy(self, x):
        y = self.module.empty_like(x)
        return lambda: y.copy_(x)

    def seconds(self, call):
        torch = self.module
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed[0].zero_()
        self.flushed[1].max()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)


class Jax:
    def __init__(self):
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        self.module = jax = import_or_absent("jax")
        if jax.default_backend() != "gpu":
            raise Absent("JAX sees no GPU")
        self.key = jax.random.key(1)

    def uniform(self, shape, low, high, is_complex):
        self.key, key = self.module.random.split(self.key)
        x = self.module.random.uniform(key, shape, minval=low, maxval=high)
        return (0.9 + 0.3j) * x if is_complex else x

    def copy(self, x):
        return lambda: self.module.numpy.copy(x)

    def seconds(self, call):
        start = time.perf_counter()
        self.module.block_until_ready(call())
        return time.perf_counter() - start
