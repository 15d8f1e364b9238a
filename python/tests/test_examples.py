# SPDX-License-Identifier: BSD-3-Clause
"""Tests that run the examples, some of them for fewer iterations than by default."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DOCS = EXAMPLES.parents[1] / "docs"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")


def run(name, *arguments, env=None):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def assert_shown(output, page, name, tolerance):
    """Check that the page shows the output after `<!-- output: name -->`.

    Numbers may differ by the relative or absolute tolerance. Numbers with an exponent, such as
    1e-06, are rounding errors, which may be up to 10 times as large.
    """
    blocks = re.findall(rf"<!-- output: {name} -->\n```text\n(.*?)```", page.read_text(), re.S)
    shown = "".join(blocks)
    assert NUMBER.sub("#", output) == NUMBER.sub("#", shown)
    for number, expected in zip(NUMBER.findall(output), NUMBER.findall(shown)):
        if "e" in expected:
            assert float(number) <= 10 * float(expected)
        else:
            assert float(number) == pytest.approx(float(expected), rel=tolerance, abs=tolerance)


def test_gae_prints_the_largest_difference():
    assert "largest difference" in run("gae.py", "--steps", "500")


def test_learned_filter_predicts_better_than_a_linear_function():
    pytest.importorskip("jax", reason="JAX is not installed")
    pytest.importorskip("scipy", reason="SciPy is not installed")
    lines = run("learned_filter.py").splitlines(keepends=True)[:3]
    off = [float(line.split(" sunspots")[0].split()[-1]) for line in lines]
    assert off[2] < off[1] < off[0]
    assert_shown("".join(lines), DOCS / "tutorial_filter_bank.md", "learned_filter.py", 0.05)


@pytest.mark.parametrize(
    "name, packages",
    [("text_model_jax.py", ("jax", "optax")), ("text_model_torch.py", ("torch",))],
)
def test_text_model_trains_and_plots(tmp_path, name, packages):
    for package in (*packages, "tqdm", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    few = ["--chunks", "4", "--batch", "2", "--steps", "32", "--channels", "16"]
    assert "characters per second" in run(name, *few, "--out", str(tmp_path))
    assert list(tmp_path.glob("*.png"))


def test_mamba_text_trains_two_models_and_writes_text(tmp_path):
    for package in ("torch", "tqdm", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    few = ["--chunks", "4", "--batch", "16", "--steps", "64", "--channels", "16", "--write", "20"]
    said = run("mamba_text.py", *few, "--out", str(tmp_path))
    assert said.count("chunks held out") == 2 and "us each" in said
    assert (tmp_path / "mamba_text.png").exists()


def test_mamba_text_in_chunks_and_steps_equals_the_whole_sequence(monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from mamba_text import MambaModel

    torch.manual_seed(1)
    model = MambaModel(7, 12, 2).double()
    text = torch.randint(7, (3, 20))
    with torch.no_grad():
        whole, _ = model(text, [None] * 2)
        first, carried = model(text[:, :9], [None] * 2)
        rest, _ = model(text[:, 9:], carried)
        torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=1e-11, atol=1e-12)
        for t in range(9, 20):
            step, carried = model.step(text[:, t], carried)
            torch.testing.assert_close(step, whole[:, t], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "program, packages, layers",
    [
        ("", ["torch"], ["LSTM", "QRNN", "MinGRU", "LRU", "S5", "RGLRU", "Mamba"]),
        ("_jax", ["jax", "optax"], ["LSTM", "LRU", "Mamba"]),  # each takes seconds to compile
    ],
)
def test_every_layer_trains_on_sequential_digits(program, packages, layers):
    for package in (*packages, "tqdm"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    few = ["--epochs", "1", "--channels", "8", "--blocks", "2", "--batch", "479"]
    table = run(f"sequential_digits{program}.py", *few, "--layers", *layers)
    assert [row.split(" | ")[0] for row in table.splitlines() if " of 360, " in row] == [
        f"| {layer}" for layer in layers
    ]


def test_losses_of_split_lru_do_not_depend_on_the_number_of_processes():
    for package in ("jax", "optax"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    few = ["--processes", "2", "--steps", "4096", "--states", "4", "--iterations", "3"]
    assert "equal" in run("split_lru.py", *few).splitlines()[-1].split(": ")


def test_equinox_layer_halves_its_error():
    """The task is to repeat the input of two steps ago."""
    for package in ("jax", "equinox", "optax"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    said = run("equinox_layer.py", "--iterations", "400")
    first, last = (float(line.split()[-1]) for line in said.splitlines())
    assert last < 0.5 * first


@pytest.mark.parametrize(
    "page, name, packages, tolerance",
    [
        ("jax", "adding_jax.py", ("jax", "optax"), 0.05),
        ("torch", "adding_torch.py", ("torch",), 0.05),
        ("porting", "port_associative_scan.py", ("jax",), 0.2),
        ("filter_bank", "filter_bank.py", ("jax", "optax"), 0.01),
    ],
)
def test_tutorials_show_the_output_of_their_programs(page, name, packages, tolerance):
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    output = run(name, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert_shown(output, DOCS / f"tutorial_{page}.md", name, tolerance)
