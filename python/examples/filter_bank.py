# SPDX-License-Identifier: BSD-3-Clause
"""A bank of resonators learns its poles from the input and the noisy output of an unknown filter.

    state[t] = pole * state[t-1] + input[t]        output[t] = sum of real part of weight * state[t]

The unknown filter consists of three resonators of this form, so learned poles can be compared with
true ones.
docs/tutorial_filter_bank.md explains the program.

    pip install './python[jax]' optax && python python/examples/filter_bank.py
"""

# [filter_bank_model]
import jax
import jax.numpy as jnp
import numpy as np
import optax

import scanrec.jax


def poles(params):
    """Poles inside the unit circle, for any parameters."""
    return jnp.exp(jax.lax.complex(-jnp.exp(params["log_decay"]), params["angle"]))


def bank(poles, real, imaginary, inputs):
    """Map inputs (T,) to outputs (T,)."""
    states = scanrec.jax.linear_scan(poles, jnp.outer(inputs, jnp.ones_like(poles)))  # (T, K)
    return states.real @ real + states.imag @ imaginary


# [/filter_bank_model]


# [filter_bank_data]
TRUE_RADIUS = np.array([0.995, 0.98, 0.95])
TRUE_ANGLE = np.array([0.3, 0.8, 1.9])


def measurement(steps):
    """White noise, and the response of the unknown filter to it.

    The response contains other noise, with a tenth of the response's standard deviation.
    """
    random = np.random.default_rng(0)
    inputs = random.normal(size=steps).astype(np.float32)
    true_poles = jnp.asarray(TRUE_RADIUS * np.exp(1j * TRUE_ANGLE), jnp.complex64)
    response = bank(true_poles, jnp.array([1.0, 0.5, -0.8]), jnp.array([0.5, -1.0, 0.3]), inputs)
    noise = random.normal(size=steps).astype(np.float32)
    return inputs, response + 0.1 * jnp.std(response) * noise


# [/filter_bank_data]


# [filter_bank_learn]
def learn(inputs, outputs, angle, iterations=500):
    """Fit one resonator per initial angle. Return the parameters and the error."""
    zeros = jnp.zeros(len(angle))
    log_decay = zeros + jnp.log(0.1)  # radius 0.905
    params = {"log_decay": log_decay, "angle": angle, "real": zeros, "imaginary": zeros}

    def loss(params):
        found = bank(poles(params), params["real"], params["imaginary"], inputs)
        return jnp.mean((found - outputs) ** 2) / jnp.var(outputs)

    optimiser = optax.adam(optax.cosine_decay_schedule(2e-2, iterations))

    @jax.jit
    def step(params, moments):
        change, moments = optimiser.update(jax.grad(loss)(params), moments)
        return optax.apply_updates(params, change), moments

    moments = optimiser.init(params)
    for _ in range(iterations):
        params, moments = step(params, moments)
    return params, loss(params)


# [/filter_bank_learn]


# [filter_bank_start]
def spectral_peaks(outputs, count, length=200):
    """Angles of the highest peaks of the power spectrum, which is averaged over segments."""
    segments = np.reshape(outputs, (-1, length)) * np.hanning(length)
    power = np.mean(np.abs(np.fft.rfft(segments)) ** 2, 0)
    peaks = 1 + np.flatnonzero((power[1:-1] > power[:-2]) & (power[1:-1] > power[2:]))
    return 2 * np.pi / length * np.sort(peaks[np.argsort(power[peaks])[-count:]])


# [/filter_bank_start]


def main():
    # [filter_bank_run]
    inputs, outputs = measurement(4000)
    for name, angle in (
        ("equal distances", np.array([0.5, 1.5, 2.5])),
        ("spectral peaks", spectral_peaks(outputs, 3)),
    ):
        params, error = learn(inputs, outputs, jnp.asarray(angle, jnp.float32))
        print(f"from {name} {np.round(angle, 2)}: error {error:.4f} of the variance")
    # [/filter_bank_run]

    # [filter_bank_compare]
    learned = sorted(np.asarray(poles(params)), key=np.angle)
    for radius, angle, pole in zip(TRUE_RADIUS, TRUE_ANGLE, learned):
        print(
            f"true radius {radius:.3f} and angle {angle:.3f}, "
            f"learned {np.abs(pole):.3f} and {np.angle(pole):.3f}"
        )
    # [/filter_bank_compare]


if __name__ == "__main__":
    main()
