# SPDX-License-Identifier: BSD-3-Clause
"""An IIR filter with learned poles and weights predicts next year's sunspot number from all earlier years.

The model is a bank of resonators, x[t] = pole * x[t-1] + number[t], each with a complex pole. The
prediction is linear in their states. Poles stay within the unit circle. L-BFGS fits poles and
weights together, with gradients through the scan, on the years before 1920; later years are the test.
The model is compared with two predictions: this year's number, and a linear function of the last two years.

    pip install './python[jax]' scipy && python python/examples/learned_filter.py
"""

from __future__ import annotations

import argparse
import pathlib

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import scanrec.jax

jax.config.update("jax_enable_x64", True)
SERIES = pathlib.Path(__file__).resolve().parents[2] / "data" / "sunspots_yearly.csv"


def predictions(parameters, series):
    """The prediction for every year, from the years before it."""
    decay, angle, real, imaginary, level = parameters
    poles = jnp.exp(jax.lax.complex(-jnp.exp(decay), angle))
    states = scanrec.jax.linear_scan(poles, series[:, None] + jnp.zeros_like(poles))
    after = level + states.real @ real + states.imag @ imaginary
    return jnp.concatenate([level[None], after[:-1]])


def start(resonators):
    """Initial parameters: periods of 4 to 60 years, and a memory of 20 years."""
    angle = 2 * np.pi / np.geomspace(4, 60, resonators)
    return [np.full(resonators, np.log(1 / 20)), angle, *np.zeros((2, resonators)), np.zeros(())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resonators", type=int, default=4)
    parser.add_argument("--split", type=int, default=1920, help="first year of the test")
    args = parser.parse_args()
    year, number = np.loadtxt(SERIES, delimiter=",", skiprows=1, unpack=True)
    series = number / number.std()
    learned_from = year < args.split

    def loss(parameters):
        error = predictions(parameters, series) - series
        return jnp.mean(jnp.where(learned_from, error, 0) ** 2)

    flat, unflatten = jax.flatten_util.ravel_pytree(start(args.resonators))
    slope = jax.jit(jax.value_and_grad(lambda x: loss(unflatten(x))))
    found = minimize(slope, np.asarray(flat), jac=True, method="L-BFGS-B", options={"maxiter": 400})
    fitted = unflatten(found.x)

    lags = np.stack([np.ones_like(series), np.roll(series, 1), np.roll(series, 2)], 1)
    train = learned_from & (np.arange(len(year)) >= 2)
    weights = np.linalg.lstsq(lags[train], series[train], rcond=None)[0]
    for name, guess in (
        ("as this year", np.roll(series, 1)),
        ("from the last two years", lags @ weights),
        (f"{args.resonators} learned resonators", predictions(fitted, series)),
    ):
        error = (guess - series)[~learned_from] * number.std()
        print(f"{name:24} {np.sqrt(np.mean(error**2)):5.1f} sunspots off from {args.split} on")
    periods = 2 * np.pi / np.abs(fitted[1])
    print("periods found:", ", ".join(f"{p:.1f}" for p in np.sort(periods)), "years")


if __name__ == "__main__":
    main()
