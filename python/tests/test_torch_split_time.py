# SPDX-License-Identifier: BSD-3-Clause
"""Tests of time split over processes in PyTorch: results equal those of the whole sequence.

Every case is a function that all processes of a group run, each on its part of the whole problem.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
dist = pytest.importorskip("torch.distributed", reason="PyTorch without torch.distributed")
if not (dist.is_available() and dist.is_gloo_available()):
    pytest.skip("PyTorch without gloo", allow_module_level=True)

import scanrec.torch
from scanrec.torch import nn

linear_scan = scanrec.torch.linear_scan
BATCH, CHANNELS = 2, 3
#: The number of ranks: the number of steps of each rank.
PARTS = {2: (9, 7), 3: (6, 0, 10)}


class Here:
    """This process: its group, and its part of the whole tensors, in one or several pieces."""

    def __init__(self, ranges=None):
        self.rank, count = dist.get_rank(), dist.get_world_size()
        ends = [int(end) for end in np.cumsum(PARTS[count])]
        self.steps, self.ranges, self.group = ends[-1], ranges, dist.group.WORLD
        in_order = [[(end - n, end)] for end, n in zip(ends, PARTS[count])]
        self.own = (ranges or in_order)[self.rank]

    def part(self, x, axis=-2, more=0):
        """Return the steps of x in this process, or x itself if it is constant in time."""
        if x is None or x.shape[axis] < self.steps:
            return x
        pieces = [x.narrow(axis, begin, end - begin + more) for begin, end in self.own]
        return torch.cat(pieces, axis)

    @property
    def split(self):
        return {"group": self.group, "ranges": self.ranges}


#: Pieces in zig-zag order. The last of 3 ranks has one piece, the others two.
ZIG_ZAG = {
    2: [[(0, 4), (11, 16)], [(4, 8), (8, 11)]],
    3: [[(14, 16), (0, 2)], [(2, 5), (9, 14)], [(5, 9)]],
}


def close(got, want, **tolerance):
    assert got.shape == want.shape and got.dtype == want.dtype
    torch.testing.assert_close(got, want, **{"rtol": 1e-11, "atol": 1e-11, **tolerance})


def loss_of(*results):
    """Return a number to which every element contributes with its own weight."""
    return sum(
        (x.abs() ** 2 * torch.cos(torch.arange(x.numel()).reshape(x.shape))).sum() for x in results
    )


def check(here, gate, input, first, reset_mask, reverse):
    """Check values, gradients, and gradients of a function of the gradients."""
    whole = [None if x is None else x.clone().requires_grad_() for x in (gate, input, first)]
    mine = [None if x is None else x.clone().requires_grad_() for x in (gate, input, first)]
    options = {"reverse": reverse, "return_final": True}
    state, final = linear_scan(*whole, resets=reset_mask, **options)
    weights = torch.cos(torch.arange(state.numel())).reshape(state.shape)
    own = linear_scan(
        here.part(mine[0]), here.part(mine[1]), mine[2],
        resets=here.part(reset_mask), **here.split, **options,
    )  # fmt: skip
    close(own[0], here.part(state))
    close(own[1], final)
    # Every rank has the final state. Only rank 0 adds its loss.
    share = 1.0 if here.rank == 0 else 0.0
    loss = (state.abs() ** 2 * weights).sum() + (final.abs() ** 4).sum()
    part = (own[0].abs() ** 2 * here.part(weights)).sum() + share * (own[1].abs() ** 4).sum()
    given = [i for i, x in enumerate(whole) if x is not None]
    want = torch.autograd.grad(loss, [whole[i] for i in given], create_graph=True)
    got = torch.autograd.grad(part, [mine[i] for i in given], create_graph=True)
    is_split = lambda x: x.shape[-2] == here.steps
    for x, y in zip(got, want, strict=True):
        close(here.part(x) if is_split(y) else summed(x), here.part(y))
    # Check a function of the gradients. Only rank 0 adds the loss of shared gradients.
    second = torch.autograd.grad(loss_of(*want), [whole[i] for i in given])
    terms = []
    for x, y in zip(got, want, strict=True):
        wave = torch.cos(torch.arange(y.numel())).reshape(y.shape)
        if is_split(y):
            terms.append((here.part(x).abs() ** 2 * here.part(wave)).sum())
        else:
            terms.append(share * (_Sum.apply(x).abs() ** 2 * wave).sum())
    again = torch.autograd.grad(sum(terms), [mine[i] for i in given])
    for x, y in zip(again, second, strict=True):
        close(here.part(x) if is_split(y) else summed(x), here.part(y))


class _Sum(torch.autograd.Function):
    """Sum over processes. The gradient is also summed over processes."""

    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, grad):
        return summed(grad)


def summed(x):
    x = x.detach().clone()
    real = torch.view_as_real(x) if x.is_complex() else x
    dist.all_reduce(real)
    return x


def problem(here, dtype, constant=False, seed=0):
    random = Random(seed)
    of = lambda *shape, scale=1.0: torch.from_numpy(random(*shape, dtype=dtype, scale=scale))
    gate = of(BATCH, 1 if constant else here.steps, CHANNELS, scale=0.8)
    reset_mask = torch.from_numpy(random.booleans(BATCH, here.steps, 1))
    reset_mask[:, PARTS[dist.get_world_size()][0]] = True  # the first step of a part
    return gate, of(BATCH, here.steps, CHANNELS), of(BATCH, CHANNELS), reset_mask


# ---- cases ---------------------------------------------------------------------------------------


def all_modes(here):
    for dtype in ("float64", "complex128"):
        for reverse in (False, True):
            for constant in (False, True):
                gate, input, first, reset_mask = problem(here, dtype, constant)
                check(here, gate, input, first, reset_mask, reverse)
                check(here, gate, input, None, None, reverse)


def zig_zag(here):
    all_modes(Here(ZIG_ZAG[dist.get_world_size()]))


def dtensors(here):
    """Check that DTensors give the values and gradients of whole tensors for every placement."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for reverse in (False, True):
        for placement in (Shard(1), Shard(0), Shard(2), Replicate()):
            gate, input, first, reset_mask = problem(here, "float64")
            for shared in (gate, gate[:1, :1], gate[0, 0]):
                whole = [x.clone().requires_grad_() for x in (shared, input, first)]
                want = linear_scan(*whole, resets=reset_mask, reverse=reverse, return_final=True)
                spread = [Replicate(), placement, Replicate()]
                mine = [
                    distribute_tensor(x.detach(), mesh, [p]).requires_grad_()
                    for x, p in zip(whole, spread)
                ]
                resets = distribute_tensor(reset_mask, mesh, [Replicate()])
                got = linear_scan(*mine, resets=resets, reverse=reverse, return_final=True)
                assert got[0].placements == (placement,)
                for x, y in zip(got, want, strict=True):
                    close(x.full_tensor(), y)
                loss = lambda state, final: (state**2).sum() + (final**4).sum()
                want = torch.autograd.grad(loss(*want), whole)
                got = torch.autograd.grad(loss(*got), mine)
                for x, y in zip(got, want, strict=True):
                    close(x.full_tensor(), y)
    partial = DTensor.from_local(input, mesh, [Partial()])
    close(linear_scan(0.5, partial).full_tensor(), linear_scan(0.5, dist.get_world_size() * input))
    split = distribute_tensor(input, mesh, [Shard(1)])
    close(linear_scan(0.5, split, axis=-1).full_tensor(), linear_scan(0.5, input, axis=-1))
    with pytest.raises(TypeError, match="'gate': expected a DTensor"):
        linear_scan(input, split)
    with pytest.raises(TypeError, match="'input': expected a DTensor"):
        linear_scan(split, input)
    more = distribute_tensor(torch.zeros(here.steps + 1, 1, dtype=torch.bool), mesh, [Replicate()])
    with pytest.raises(ValueError, match="'resets'"):
        linear_scan(0.5, split, resets=more)
    close(
        linear_scan(0.5, distribute_tensor(input, mesh, [Shard(0)]), resets=more).full_tensor(),
        linear_scan(0.5, input),
    )
    with pytest.raises(ValueError, match="'gate'"):
        linear_scan(distribute_tensor(gate[..., :2].contiguous(), mesh, [Shard(1)]), split)


def layers_of_dtensors(here):
    """Check that MinGRU accepts DTensors, although linear_scan rejects them with log arguments."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    layer, x = nn.MinGRU(3, 4, dtype=torch.float64), torch.randn(6, 6, 3, dtype=torch.float64)
    first = torch.randn(1, 6, 4, dtype=torch.float64)
    want = [result.detach() for result in layer(x, first)]
    distribute_module(layer, mesh)
    for placement in (Shard(0), Shard(1)):
        state = distribute_tensor(first, mesh, [Replicate()])
        got = layer(distribute_tensor(x, mesh, [placement]), state)
        for a, b in zip(got, want, strict=True):
            close(a.detach().full_tensor(), b)


def meshes_of_two_axes(here):
    """Split the batch over one axis of a mesh, and time over the other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1, dist.get_world_size()))
    gate, input, first, _ = problem(here, "float64")
    spread = [distribute_tensor(x, mesh, [Shard(0), Shard(1)]) for x in (gate, input)]
    got = linear_scan(*spread, distribute_tensor(first, mesh, [Shard(0), Shard(1)]))
    close(got.full_tensor(), linear_scan(gate, input, first))
    twice = distribute_tensor(input, mesh, [Shard(1), Shard(1)])
    with pytest.raises(ValueError, match="over one mesh dimension"):
        linear_scan(0.5, twice)


def bits_and_types(here):
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        gate, input, first, reset_mask = problem(
            here, "complex128" if dtype.is_complex else "float64"
        )
        gate, input = gate.to(dtype), input.to(dtype)
        run = lambda gate=gate, input=input, reset_mask=reset_mask: linear_scan(
            here.part(gate), here.part(input), resets=here.part(reset_mask), group=here.group,
            return_final=True,
        )  # fmt: skip
        got, want = run(), linear_scan(gate, input, resets=reset_mask, return_final=True)
        close(got[0], here.part(want[0]), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6)
        assert got[1].dtype == want[1].dtype
        assert all(torch.equal(x, y) for x, y in zip(got, run(), strict=True))


def not_finite(here):
    """Check that a reset stops infinity, and that 0 stays 0 if products of gates overflow."""
    gate, input, _, _ = problem(here, "float64")
    reset_mask = torch.zeros(BATCH, here.steps, 1, dtype=torch.bool)
    input[:, 2], reset_mask[:, here.steps - 2] = torch.inf, True
    got = linear_scan(
        here.part(gate), here.part(input), resets=here.part(reset_mask), group=here.group
    )
    want = here.part(linear_scan(gate, input, resets=reset_mask))
    assert torch.equal(got.isfinite(), want.isfinite())
    gate, input = torch.full_like(gate, 1e100), torch.zeros_like(input)
    input[:, -1] = 1
    assert torch.equal(
        linear_scan(here.part(gate), here.part(input), group=here.group), here.part(input)
    )


def wide_products(here):
    """Check gate products that float32 would flush to 0, although the final state is not 0."""
    gate, input = torch.full((here.steps, 1), 2.0**-10), torch.zeros(here.steps, 1)
    input[0] = 2.0**120
    got = linear_scan(here.part(gate), here.part(input), group=here.group)
    assert torch.equal(got, here.part(linear_scan(gate, input)))


def edges_and_meshes(here):
    """Check a reverse scan with a reset after the last step in time, and a mesh as the group."""
    gate, input, first, reset_mask = problem(here, "float64")
    reset_mask = torch.cat([reset_mask, torch.ones(BATCH, 1, 1, dtype=torch.bool)], 1)
    want = linear_scan(gate, input, first, resets=reset_mask, reverse=True)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    got = linear_scan(
        here.part(gate),
        here.part(input),
        first,
        resets=here.part(reset_mask, more=1),
        reverse=True,
        group=mesh,
    )
    close(got, here.part(want))


def state_spaces(here):
    random = Random(3)
    of = lambda *shape, dtype="float64": torch.from_numpy(random(*shape, dtype=dtype))
    u = of(BATCH, here.steps, 3)
    for twice in (1, 2):
        b, c = of(4, 3, dtype="complex128"), of(3, 4 * twice, dtype="complex128")
        nu, theta = of(4), of(4)
        got = scanrec.torch.lru(here.part(u), nu, theta, b, c, group=here.group)
        close(got, here.part(scanrec.torch.lru(u, nu, theta, b, c)))
        diagonal = torch.complex(-nu.exp(), theta)
        for at in (here, Here(ZIG_ZAG[dist.get_world_size()])):
            for reverse in (False, True)[: 3 - twice]:
                got = scanrec.torch.s5(at.part(u), diagonal, b, c, reverse=reverse, **at.split)
                close(got, at.part(scanrec.torch.s5(u, diagonal, b, c, reverse=reverse)))


def compiled(here):
    gate, input, first, _ = problem(here, "float64")
    call = torch.compile(lambda *x: 2 * linear_scan(*x, group=here.group), backend="eager")
    got = call(here.part(gate), here.part(input), first)
    close(got, here.part(2 * linear_scan(gate, input, first)))


def refusals(here):
    """Check errors, and that no rank waits for a rank that cannot take part."""
    gate, input, first, _ = problem(here, "float64")
    gate, input = here.part(gate), here.part(input)
    count = dist.get_world_size()
    last = here.rank == count - 1
    want = linear_scan(gate, input, group=here.group)
    with pytest.raises(
        ValueError if last else RuntimeError, match="'gate'" if last else "cannot take part"
    ):
        linear_scan(gate[..., :2] if last else gate, input, group=here.group)
    with pytest.raises(RuntimeError, match="differ between ranks"):
        linear_scan(
            gate.float() if last else gate, input.float() if last else input, group=here.group
        )
    with pytest.raises(RuntimeError, match="differ between ranks"):
        linear_scan(gate, input.requires_grad_(last), group=here.group)
    input.requires_grad_(False)
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(lambda x: linear_scan(gate, x, group=here.group), (input,), (input,))
    u, nu = input, torch.zeros(4)
    b, c = torch.zeros(4, 3 - last, dtype=torch.complex64), torch.zeros(3, 4, dtype=torch.complex64)
    with pytest.raises(
        ValueError if last else RuntimeError, match="'b'" if last else "cannot take part"
    ):
        scanrec.torch.lru(u, nu, nu, b, c, group=here.group)
    for ranges, message in (
        ([[(0, 4)]], "ranges of"),
        ([[(0, 4)]] * count, "step from step 4"),
        ([[(0, 4)], *[[(4, 4)]] * (count - 1)], "a range of at least one step"),
        ([[(0, 4)], *[[]] * (count - 1)], "none for rank 1"),
        ([[(4 * r, 4 * r + 4)] for r in range(count)], "4 steps, as in this rank's 'ranges'"),
    ):
        with pytest.raises(ValueError, match=message):
            linear_scan(0.5, input, group=here.group, ranges=ranges)
    with pytest.raises(TypeError, match="'ranges': expected a list of pairs"):
        linear_scan(0.5, input, group=here.group, ranges=[3, 4])
    with pytest.raises(ValueError, match="'ranges': expected None without 'group'"):
        linear_scan(0.5, input, ranges=[[(0, 4)]])
    with pytest.raises(TypeError, match="'group': expected a ProcessGroup"):
        linear_scan(gate, input, group="time")
    close(linear_scan(gate, input, group=here.group), want)


CASES = (
    *(all_modes, zig_zag, dtensors, layers_of_dtensors, meshes_of_two_axes),
    *(bits_and_types, not_finite, wide_products),
    *(edges_and_meshes, state_spaces, compiled, refusals),
)


def run(rank, count, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    for case in CASES:
        case(Here())
        os.write(1, f"{case.__name__}\n".encode())  # one write, so that lines of ranks do not mix
    dist.destroy_process_group()
    os._exit(0)  # remaining threads can crash while the interpreter exits


def run_groups(folder):
    """Run the groups one after another, in forked processes where possible, to import only once."""
    import torch._dynamo
    import torch.distributed.tensor  # noqa: F401

    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    for count in PARTS:
        store = str(Path(folder) / f"store{count}")
        group = [context.Process(target=run, args=(rank, count, store)) for rank in range(count)]
        for one in group:
            one.start()
        try:
            for one in group:
                one.join(240)
                assert one.exitcode == 0, (count, one.exitcode)
        finally:
            for one in group:
                one.kill()


def test_groups_of_2_and_3_processes_equal_one_process(tmp_path):
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)]),
    }
    code = f"import test_torch_split_time as t; t.run_groups({str(tmp_path)!r})"
    with open(tmp_path / "output", "w+") as output:
        command = [sys.executable, "-c", code]
        ran = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=500
        )
        output.seek(0)
        said = output.read()
    assert ran.returncode == 0, said
    for case in CASES:
        assert said.splitlines().count(case.__name__) == sum(PARTS), said
