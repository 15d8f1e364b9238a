# SPDX-License-Identifier: BSD-3-Clause
"""Code for PyTorch that is only type-checked, never run: result types and mistakes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import assert_type

import scanrec
from scanrec.torch import nn

Two = tuple[Tensor, Tensor]


def results(x: Tensor, with_final: bool, group: ProcessGroup, mesh: DeviceMesh) -> None:
    linear_scan = scanrec.torch.linear_scan
    assert_type(linear_scan(0.5, x), Tensor)
    assert_type(linear_scan(x, x, 1j, axis=0, return_final=False), Tensor)
    assert_type(linear_scan(x, x, resets=x, return_final=True), Two)
    assert_type(linear_scan(x, x, x, log_input=True, return_final=with_final), Tensor | Two)
    ranges = [[(0, 2), (6, 8)], [(2, 4), (4, 6)]]
    assert_type(linear_scan(x, x, group=group, ranges=ranges), Tensor)
    assert_type(linear_scan(x, x, group=mesh), Tensor)

    qrnn_pool = scanrec.torch.qrnn_pool
    assert_type(qrnn_pool(x), Tensor)
    assert_type(qrnn_pool([x, 0.5], x, pool="f", memory="recompute"), Tensor)
    assert_type(qrnn_pool((x, x, x, x), pool="ifo", zoneout=x, return_final=True), Two)
    assert_type(qrnn_pool(x, return_final=with_final), Tensor | Two)

    s5, lru = scanrec.torch.s5, scanrec.torch.lru
    assert_type(s5(x, x, x, x), Tensor)
    assert_type(s5(x, x, x, x, x, x, 0, discretisation="bilinear", return_final=True), Two)
    assert_type(s5(x, x, x, x, group=mesh, return_final=with_final), Tensor | Two)
    assert_type(lru(x, x, x, x, x), Tensor)
    assert_type(lru(x, x, x, x, x, x, x, reverse=True, return_final=True), Two)
    assert_type(lru(x, x, x, x, x, return_final=with_final), Tensor | Two)

    selective_scan = scanrec.torch.selective_scan
    assert_type(selective_scan(x, x, x, x, x), Tensor)
    assert_type(selective_scan(x, x, x, x, x, x, x, x, True), Tensor)
    assert_type(selective_scan(x, x, x, x, x, x, x, x, True, False, intervals=x), Tensor)
    assert_type(selective_scan(x, x, x, x, x, None, None, x, True, True, resets=x), Two)
    assert_type(selective_scan(x, x, x, x, x, z=x, return_last_state=True), Two)
    assert_type(selective_scan(x, x, x, x, x, return_last_state=with_final), Tensor | Two)
    assert_type(scanrec.torch.selective_state_update(x, x, x, x, x, x, dt_softplus=True), Tensor)
    assert_type(scanrec.torch.resets_from_cu_seqlens(x, 9), Tensor)

    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    assert_type(scanrec.torch.integrations.apply_to(model), torch.nn.Sequential)
    assert_type(scanrec.torch.integrations.restore(model), torch.nn.Sequential)


def layers(x: Tensor, packed: PackedSequence) -> None:
    for layer in (
        nn.LRU(8, 16, state_size=32, device="cpu", dtype=torch.float64),
        nn.MinGRU(8, 16, 2, candidate="positive"),
        nn.RGLRU(8, 16, heads=4),
        nn.S5(8, 16, discretisation="bilinear"),
        nn.QRNN(8, 16, pool="ifo", zoneout=0.1),
    ):
        output, state = layer(x)
        assert_type(output, Tensor)
        assert_type(state, Tensor)
    mamba, qrnn = nn.Mamba(8, 16, dt_rank=4), nn.QRNN(8, 16, kernel_size=2)
    assert_type(qrnn, nn.QRNN[nn.QRNNState])
    assert_type(mamba(x, None, x), tuple[Tensor, nn.MambaState])
    assert_type(mamba(packed), tuple[PackedSequence, nn.MambaState])
    assert_type(mamba.forward(x), tuple[Tensor, nn.MambaState])
    output, last = mamba.step(x)
    assert_type(mamba.step(x, last), tuple[Tensor, nn.MambaState])
    assert_type(last.conv, Tensor)
    assert_type(qrnn(x)[1].before, Tensor)
    assert_type(mamba.to("cpu").num_directions, int)
    assert_type(mamba.expand, int)
    assert_type(nn.S5(8, 16).hidden_size, int)


def mistakes(x: Tensor) -> None:
    scanrec.torch.linear_scan([0.5], x)  # type: ignore[call-overload]
    scanrec.torch.linear_scan(x, 1.0)  # type: ignore[call-overload]
    scanrec.torch.linear_scan(x, x, return_last=True)  # type: ignore[call-overload]
    scanrec.torch.linear_scan(x, x, return_final=True).sum()  # type: ignore[attr-defined]
    scanrec.torch.linear_scan(x, x, group="gloo")  # type: ignore[call-overload]
    scanrec.torch.qrnn_pool(x, pool="of")  # type: ignore[call-overload]
    scanrec.torch.qrnn_pool(x, memory="keep")  # type: ignore[call-overload]
    scanrec.torch.s5(x, x, x, x, discretisation="zoh")  # type: ignore[call-overload]
    scanrec.torch.lru(x, x, x, x)  # type: ignore[call-overload]
    scanrec.torch.selective_scan(x, x, x, x, x, return_final=True)  # type: ignore[call-overload]
    scanrec.torch.integrations.apply_to(x)  # type: ignore[type-var]
    nn.MinGRU(8)  # type: ignore[call-arg]
    nn.MinGRU(8, 16, candidate="relu")  # type: ignore[arg-type]
    nn.QRNN(8, 16, kernel_size=3)  # type: ignore[call-overload]
    nn.LRU(8, 16, states=32)  # type: ignore[call-arg]
    print(nn.LRU(8, 16)(x)[0].hidden)  # type: ignore[attr-defined]
    nn.Mamba(8, 16)(x, x)  # type: ignore[arg-type]
    nn.GRU(8, 16)  # type: ignore[attr-defined]
