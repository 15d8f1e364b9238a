# SPDX-License-Identifier: BSD-3-Clause
"""Code for JAX and Flax that is only type-checked, never run: result types and mistakes."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from typing_extensions import assert_type

import scanrec
from scanrec.jax import nn
from scanrec.jax import nnx as modules

Two = tuple[Array, Array]


def results(x: Array, param: nnx.Param[Array], with_final: bool) -> None:
    linear_scan = scanrec.jax.linear_scan
    assert_type(linear_scan(0.5, [[1.0], [2.0]]), Array)
    assert_type(linear_scan(param, np.ones((9, 3)), x, axis=0, return_final=False), Array)
    assert_type(linear_scan(x, x, 1j, resets=[True, False], return_final=True), Two)
    assert_type(linear_scan(x, x, log_gate=True, return_final=with_final), Array | Two)
    assert_type(linear_scan(x, x, axis_name=("batch", "time")), Array)

    qrnn_pool = scanrec.jax.qrnn_pool
    assert_type(qrnn_pool(x), Array)
    assert_type(qrnn_pool([x, x], pool="f", memory="recompute", axis_name="time"), Array)
    assert_type(qrnn_pool((x, 0.5, param), zoneout=x, return_final=True), Two)
    assert_type(qrnn_pool(x, forget_bias=1, return_final=with_final), Array | Two)

    s5, lru = scanrec.jax.s5, scanrec.jax.lru
    assert_type(s5(x, x, x, x), Array)
    assert_type(s5(x, x, x, x, x, x, 0, discretisation="bilinear", return_final=True), Two)
    assert_type(s5(x, x, x, x, intervals=x, return_final=with_final), Array | Two)
    assert_type(lru(x, x, x, x, x), Array)
    assert_type(lru(x, x, x, x, x, x, x, reverse=True, return_final=True), Two)
    assert_type(lru(x, x, x, x, x, return_final=with_final), Array | Two)

    selective_scan = scanrec.jax.selective_scan
    assert_type(selective_scan(x, x, x, x, x, delta_softplus=True), Array)
    assert_type(selective_scan(x, x, x, x, x, x, x, x, return_final=True), Two)
    assert_type(selective_scan(x, x, x, x, x, return_final=with_final), Array | Two)
    assert_type(scanrec.jax.selective_state_update(x, x, x, x, x, x, state_batch_indices=[0]), Two)


def parts(rngs: nnx.Rngs) -> None:
    assert_type(scanrec.jax.nn.MinGRU(8, 16), nn.MinGRU)
    assert_type(scanrec.jax.nnx.MinGRU(8, 16, rngs=rngs), modules.MinGRU)


def layers(x: Array, key: Array) -> None:
    for layer in (
        nn.LRU(8, 16, state_size=32),
        nn.MinGRU(8, 16, 2, candidate="positive"),
        nn.RGLRU(8, 16, heads=4),
        nn.S5(8, 16, discretisation="bilinear"),
        nn.QRNN(8, 16, pool="ifo", zoneout=0.1),
    ):
        params = layer.init(key, jnp.bfloat16)
        output, state = layer.apply(params, x, resets=x, key=key)
        assert_type(output, Array)
        assert_type(state, Array)
    mamba, qrnn = nn.Mamba(8, 16, dt_rank=4), nn.QRNN(8, 16, kernel_size=2)
    assert_type(qrnn, nn.QRNN[nn.QRNNState])
    assert_type(mamba.initial_state((2,), "float32"), nn.MambaState)
    assert_type(mamba.initial_state(2), nn.MambaState)
    assert_type(mamba.step({}, x, mamba.initial_state()), tuple[Array, nn.MambaState])
    assert_type(mamba.step({}, x)[1].conv, Array)
    assert_type(qrnn.apply({}, x)[1].before, Array)
    assert_type(mamba.expand, int)
    assert_type(nn.S5(8, 16).output_size, int)


def layers_of_flax(x: Array, rngs: nnx.Rngs, with_carry: bool) -> None:
    for layer in (
        modules.LRU(8, 16, state_size=32, rngs=rngs),
        modules.MinGRU(8, 16, 2, candidate="positive", rngs=rngs),
        modules.RGLRU(8, 16, heads=4, dtype=jnp.float32, rngs=rngs),
        modules.S5(8, 16, discretisation="bilinear", rngs=rngs),
        modules.QRNN(8, 16, pool="ifo", zoneout=0.1, rngs=rngs),
    ):
        output, state = layer(x, None, x)
        assert_type(output, Array)
        assert_type(state, Array)
    mamba, qrnn = modules.Mamba(8, 16, rngs=rngs), modules.QRNN(8, 16, kernel_size=2, rngs=rngs)
    assert_type(mamba(x), tuple[Array, nn.MambaState])
    assert_type(mamba.step(x), tuple[Array, nn.MambaState])
    assert_type(qrnn(x)[1].before, Array)
    assert_type(mamba.layer, nn.Mamba)
    assert_type(qrnn.layer.pool, Literal["f", "fo", "ifo"])
    rnn = modules.RNN(mamba)
    assert_type(rnn(x, return_carry=True), tuple[nn.MambaState, Array])
    assert_type(rnn(x, seq_lengths=[1, 2], return_carry=False), Array)
    assert_type(rnn(x, return_carry=with_carry), Array | Any)


def mistakes(x: Array, rngs: nnx.Rngs) -> None:
    scanrec.jax.linear_scan(x)  # type: ignore[call-overload]
    scanrec.jax.linear_scan(x, object())  # type: ignore[call-overload]
    scanrec.jax.linear_scan(x, x, group="time")  # type: ignore[call-overload]
    scanrec.jax.linear_scan(x, x, return_final=True).sum()  # type: ignore[attr-defined]
    scanrec.jax.qrnn_pool(x, pool="of")  # type: ignore[call-overload]
    scanrec.jax.s5(x, x, x, x, discretisation="zoh")  # type: ignore[call-overload]
    scanrec.jax.lru(x, x, x, x)  # type: ignore[call-overload]
    scanrec.jax.selective_scan(x, x, x, x, x, return_last_state=True)  # type: ignore[call-overload]
    nn.MinGRU(8)  # type: ignore[call-arg]
    nn.MinGRU(8, 16, candidate="relu")  # type: ignore[arg-type]
    nn.QRNN(8, 16, kernel_size=3)  # type: ignore[call-overload]
    nn.LRU(8, 16)(x)  # type: ignore[operator]
    print(nn.LRU(8, 16).apply({}, x)[0].hidden)  # type: ignore[attr-defined]
    modules.Mamba(8, 16)  # type: ignore[call-arg]
    modules.Mamba(8, 16, convolution=4, rngs=rngs)  # type: ignore[call-arg]
    modules.RNN(nn.LRU(8, 16))  # type: ignore[arg-type]
    jax.jit(scanrec.jax.scan)  # type: ignore[attr-defined]
