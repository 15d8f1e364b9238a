# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the tensors of selective scans."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import _arguments as arguments
from ..._torch.tensors import check_dense
from .arguments import Checks, types_of

__all__ = ["Checked"]


class Checked(Checks):
    types = types_of(lambda name: getattr(torch, name))
    converted = staticmethod(Tensor.to)
    expanded = staticmethod(Tensor.unsqueeze)

    def __init__(self, call: str, name: str, first: Any, a: object, axes: str) -> None:
        check_dense(call, name, first)
        if first.device.type not in ("cpu", "cuda", "meta"):
            expected = "a tensor on a CPU or a GPU"
            arguments.refuse(call, name, expected, first.device, NotImplementedError)
        self.device, self.name = first.device, name
        super().__init__(call, name, first, a, 1, axes)

    def array(self, name: str, x: Any, expected: str = "a tensor") -> Any:
        check_dense(self.call, name, x, expected)
        if x.device != self.device:
            expected = f"a tensor on {self.device} as '{self.name}' is"
            arguments.refuse(self.call, name, expected, x.device)
        return x
