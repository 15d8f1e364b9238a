# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the tensors of selective scans."""

from __future__ import annotations

import torch

from ... import _arguments as arguments
from ..._torch.tensors import check_dense
from .torch_rules import real_type

__all__ = ["Checked"]

_STORED = {
    torch.float32: (torch.float32, torch.bfloat16, torch.float16),
    torch.float64: (torch.float64,),
}


class Checked:
    """Checks of the arguments of a call against the first of them and A."""

    def __init__(self, call, name, first, a, rank):
        self.call, self.first, self.name = call, first, name
        self.tensor(name, first)
        if first.dim() != rank:
            axes = "(B, D, L)" if rank == 3 else "(B, D)"
            arguments.refuse(call, name, f"a tensor {axes}", f"shape {tuple(first.shape)}")
        if first.device.type not in ("cpu", "cuda", "meta"):
            expected = "a tensor on a CPU or a GPU"
            arguments.refuse(call, name, expected, first.device, NotImplementedError)
        self.tensor("A", a)
        if a.dtype not in (*_STORED, torch.complex64, torch.complex128):
            expected = "float32 or float64, or complex of them"
            arguments.refuse(call, "A", expected, a.dtype, TypeError)
        self.a, self.channels = a, first.shape[1]
        if a.dim() != 2 or a.shape[0] != self.channels or a.shape[1] < 1:
            arguments.refuse(
                call, "A", f"shape ({self.channels}, N), N of 1 or more", tuple(a.shape)
            )
        self.type(name, first)

    def tensor(self, name, x):
        """Refuses values that are no tensors on the device of the first."""
        check_dense(self.call, name, x)
        if x.device != self.first.device:
            expected = f"a tensor on {self.first.device} as '{self.name}' is"
            arguments.refuse(self.call, name, expected, x.device)

    def type(self, name, x, also=()):
        """Refuses types that do not compute in the real one of A."""
        self.tensor(name, x)
        stored = (*_STORED[real_type(self.a.dtype)], *also)
        if x.dtype not in stored:
            names = " or ".join(str(of).removeprefix("torch.") for of in stored)
            own = str(self.a.dtype).removeprefix("torch.")
            arguments.refuse(self.call, name, f"{names}, as 'A' is {own}", x.dtype, TypeError)

    def state_type(self, name, x):
        """Refuses types that do not compute in that of A."""
        self.type(name, x, (self.a.dtype,) if self.a.is_complex() else ())

    def same(self, name, x):
        """Refuses another shape than the first has."""
        self.type(name, x)
        arguments.check_shape(self.call, name, x.shape, self.first.shape, equal=True)

    def weight(self, name, x):
        """One number per channel in the type of A, or None."""
        if x is None:
            return None
        self.type(name, x)
        arguments.check_shape(self.call, name, x.shape, (self.channels,), equal=True)
        return x.to(real_type(self.a.dtype))

    def mixing(self, name, x, shape, *, of_channels=True):
        """B or C with an axis of groups, given the shape without; or of every channel (D, N).
        Complex ones of every step by their parts, twice as many."""
        self.state_type(name, x)
        got, own = tuple(x.shape), tuple(self.a.shape)
        if of_channels and len(got) == 2 and got == own:
            return x.to(self.a.dtype)
        others = [own] if of_channels else []
        if x.is_complex():
            whole = (x if of_channels else x.unsqueeze(-1)).resolve_conj()
            parts = torch.view_as_real(whole).flatten(-2)
            steps = (*shape[:-1], 2 * shape[-1]) if of_channels else (*shape, 2)
            return self.grouped(name, parts, steps, got, shape, others)
        if self.a.is_complex():
            shape = (*shape[:-1], 2 * shape[-1]) if of_channels else (*shape, 2)
        return self.grouped(name, x, shape, got, shape, others)

    def grouped(self, name, x, shape, got, said, others):
        """A tensor of every step with an axis of groups; errors speak of its shape as the call has
        it."""
        if tuple(x.shape) == shape:
            return x.unsqueeze(1)
        if x.dim() == len(shape) + 1 and (x.shape[0], *x.shape[2:]) == shape:
            if x.shape[1] >= 1 and self.channels % x.shape[1] == 0:
                return x
        batch, *rest = said
        grouped = f"({batch}, G, {', '.join(map(str, rest))})"
        known = ", ".join(map(str, (*others, said)))
        expected = f"shape {known} or {grouped} of G groups of which "
        expected += f"{self.channels} channels are a multiple"
        arguments.refuse(self.call, name, expected, got)
