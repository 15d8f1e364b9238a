# SPDX-License-Identifier: BSD-3-Clause
"""Forms of the arguments of each function of scanrec.compat, and a reference loop for it in NumPy.

A form is one way to pass an argument: a shape, an element type, a constant or None. Sequence lengths
are forms, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from compat_calls import Affine, Resettable

__all__ = ["FORMS", "Forms", "arguments_of", "rows"]


class Forms(NamedTuple):
    """The forms of each argument, and the reference loop, which takes the same arguments by name.

    An argument whose name begins with ``_`` is not passed on. It sets a size, or a choice that
    several arguments share. A row maps each argument to the name of one of its forms.
    ``allowed(row)`` tells whether the call is valid, and ``differentiable(row)`` whether
    gradients are compared.
    """

    framework: str
    forms: dict[str, dict[str, Any]]
    loop: Callable[..., Any]
    allowed: Callable[[dict[str, str]], bool] = lambda row: True
    differentiable: Callable[[dict[str, str]], bool] = lambda row: True


FORMS: dict[str, Forms] = {}

#: Sequence lengths. Filters with a delay or with several taps use other lengths.
STEPS = (5, 0, 1, 2)


def add(framework, names, loop, forms, steps=STEPS, **options):
    """Register the same forms for several functions."""
    for name in names.split():
        lengths = {"_t": {str(t): t for t in steps}}
        FORMS[name] = Forms(framework, {**lengths, **forms}, loop, **options)


def rows(forms: Forms) -> Iterator[tuple[dict[str, str], bool]]:
    """Yield rows (one form of each argument), and whether the call with this row is allowed.

    Every pair of forms of two arguments occurs in some row. If an allowed row can have the pair, it
    occurs in an allowed row.
    """
    names = list(forms.forms)
    several = {name for name in names if len(forms.forms[name]) > 1}
    having: dict[bool, dict] = {True: {}, False: {}}  # rows of each pair, by `allowed`
    for row in (dict(zip(names, row)) for row in product(*forms.forms.values())):
        found = having[forms.allowed(row)]
        for two in pairs_of(row, several):
            found.setdefault(two, []).append(row)
    met: set = set()
    for allowed, found in having.items():
        for two, candidates in found.items():
            if two not in met:
                few = candidates[:: 1 + len(candidates) // 32]
                new = [set(pairs_of(row, several)) - met for row in few]
                best = max(range(len(few)), key=lambda i: len(new[i]))
                met |= new[best]
                yield few[best], allowed


def pairs_of(row: dict[str, str], several: set[str]) -> Iterator:
    """Yield the pairs of a row's forms, among arguments with several forms."""
    return combinations([form for form in row.items() if form[0] in several], 2)


class Draw:
    """Random numbers, whose products are exact in float32, and the axis sizes of a row.

    Real numbers are multiples of 1/16. Parts of complex numbers are multiples of 1/32.
    """

    def __init__(self, name: str) -> None:
        self.stream = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
        self.sizes = {"1": 1, "b": 2, "c": 3}

    def shape(self, axes: str) -> list[int]:
        return [self.sizes[axis] for axis in axes]

    def number(self, axes: str) -> np.ndarray:
        return np.asarray(np.round(self.stream.uniform(-16, 16, self.shape(axes))) / 16)

    def share(self, axes: str) -> np.ndarray:
        return np.abs(self.number(axes))

    def pair(self, axes: str) -> np.ndarray:
        return (self.number(axes) + 1j * self.number(axes)) / 2

    def booleans(self, axes: str) -> np.ndarray:
        return self.stream.uniform(0, 1, self.shape(axes)) < 0.4


def arguments_of(name: str, row: dict[str, str], steps: int | None = None) -> dict[str, Any]:
    """Return the arguments of a row, sorted by name, with the same numbers on every call.

    ``steps`` overrides the number of steps of the row.
    """
    draw = Draw(name + str(row))
    made = {}
    for argument, form in row.items():
        value = FORMS[name].forms[argument][form]
        value = value(draw) if callable(value) else value
        value = steps if argument == "_t" and steps is not None else value
        if argument.startswith("_"):
            draw.sizes[argument[1:]] = value
        else:
            made[argument] = value
    return dict(sorted(made.items()))


def number(axes):
    return lambda d: d.number(axes)


def share(axes):
    return lambda d: d.share(axes)


def pair(axes):
    return lambda d: d.pair(axes)


def booleans(axes):
    return lambda d: d.booleans(axes)


def single(make):
    return lambda d: make(d).astype(np.float32)


def only(value):
    """Return the forms of an argument that has a single form, whose name is empty."""
    return {"": value}


NOTHING = {"None": None}
SWITCH = {"False": False, "True": True}


def scan(gate, x, first=0.0, axis=0, reverse=False):
    """Compute the states in a loop over steps."""
    gate, x = (np.moveaxis(y, axis, 0) for y in np.broadcast_arrays(gate, x))
    state = np.zeros(x.shape[1:], np.result_type(gate, x, first)) + first
    out = np.zeros(x.shape, state.dtype)
    for t in range(len(x))[:: -1 if reverse else 1]:
        state = out[t] = gate[t] * state + x[t]
    return np.moveaxis(out, 0, axis)


def last_of(states, first, axis=0):
    """Return the last state, or the initial state of an empty sequence."""
    states = np.moveaxis(states, axis, 0)
    return states[-1] if len(states) else np.zeros(states.shape[1:], states.dtype) + first


def of_types(make):
    return {"double": make, "single": single(make)}


def linear_scans():
    along = lambda gates, tokens, reverse=False: scan(gates, tokens, axis=-1, reverse=reverse)
    gates, tokens = of_types(share("bct")), of_types(number("bct"))
    names = "accelerated_scan.scan accelerated_scan.warp.scan"
    add("torch", names, along, {"gates": gates, "tokens": tokens})
    ref = {"gates": gates, "tokens": tokens, "reverse": SWITCH}
    add("torch", "accelerated_scan.ref.scan", along, ref)
    forget = lambda forget, inputs: scan(forget, inputs, axis=-1)
    add("torch", "accelerated_scan.scalar.scan", forget, {"forget": gates, "inputs": tokens})
    both = {"forget": only(pair("bct")), "inputs": {"real": number("bct"), "pair": pair("bct")}}
    add("torch", "accelerated_scan.complex.scan", forget, both)
    shaped = {"_x": {axes: axes for axes in ("bct", "t", "bt")}}
    shaped |= {"inputs": only(lambda d: d.number(d.sizes["x"]))}
    shaped |= {"coeffs": only(lambda d: d.share(d.sizes["x"])), "reverse": SWITCH}
    loop = lambda inputs, coeffs, reverse: scan(coeffs, inputs, axis=-1, reverse=reverse)
    add("torch", "linrec.linrec", loop, shaped)
    shapes = ("btcb", "1tcb", "1t11", "cb", "b", "1")
    pscan = {"A": {axes: share(axes) for axes in shapes}, "X": of_types(number("btcb"))}
    pscan["A"]["number"] = np.array(0.5)
    add("torch", "mambapy.pscan", lambda A, X: scan(A, X, axis=1), pscan)
    logs = {"_x": {axes: axes for axes in ("bt", "btc", "btcb")}}
    logs |= {"log_coeffs": of_types(lambda d: -d.share(d.sizes["x"]))}
    logs |= {"log_values": of_types(lambda d: d.number(d.sizes["x"]))}
    loop = lambda log_coeffs, log_values: scan(
        np.exp(log_coeffs.astype(float)), np.exp(log_values.astype(float)), axis=1
    )
    add("torch", "minGRU_pytorch.heinsen_associative_scan_log", loop, logs)

    of = lambda axes: {"real": number(axes), "pair": pair(axes)}
    zi = lambda axes: {**of(axes), **NOTHING}
    states = lambda a, x, zi: scan(a, x, 0 if zi is None else zi, axis=-1)
    names = "torchlpc.linear_recurrence"
    add("torch", names, states, {"a": of("bt"), "x": of("bt"), "zi": zi("b")})
    apply = lambda decay, impulse, initial_state: states(decay, impulse, initial_state)
    given = {"decay": of("bt"), "impulse": of("bt"), "initial_state": of("b")}
    add("torch", "torchlpc.Recurrence.apply", apply, given)

    def sample_wise_lpc(x, a, zi, return_zf):
        first = np.zeros((len(x), 1)) if zi is None else zi
        y = scan(-a[..., 0], x, first[:, 0], axis=-1)
        return (y, np.concatenate((first, y), 1)[:, -1:]) if return_zf else y

    lpc = {"x": of("bt"), "a": of("bt1"), "zi": zi("b1"), "return_zf": SWITCH}
    add("torch", "torchlpc.sample_wise_lpc", sample_wise_lpc, lpc)

    def recurrentgemma(x, a, h0, reverse, acc_float_dtype):
        h0 = 0 if h0 is None else h0
        y = scan(a, x, h0, axis=1, reverse=reverse)
        return y, last_of(np.flip(y, 1) if reverse else y, h0, axis=1)

    given = {"x": of("btc"), "a": {axes: share(axes) for axes in ("btc", "tc", "c")}}
    given |= {"h0": {**of("bc"), **NOTHING}, "reverse": SWITCH}
    given["acc_float_dtype"] = only(np.dtype("float64"))
    add("jax", "recurrentgemma.linear_scan", recurrentgemma, given)


def operators():
    """Add memax.semigroup_scan with four operators.

    They are affine, affine with resets, a sum, and "none": it is none of these, so it runs in
    jax.lax.associative_scan.
    """
    name = {"affine": Affine(), "resettable": Resettable()}
    name |= {"sum": lambda i, j: i + j, "none": lambda i, j: i + j + i * j}

    def states(d):
        op = d.sizes["op"]
        pairs = (d.share(d.sizes["x"]), d.number(d.sizes["x"]))
        if op == "resettable":
            return pairs, d.booleans("t")
        return pairs if op == "affine" else pairs[1]

    def first(d):
        op, axes = d.sizes["op"], d.sizes["x"].replace("t", "")
        pair = (d.share(axes), d.number(axes))
        if op == "resettable":
            return pair, np.asarray(False)
        return pair if op == "affine" else pair[1]

    def loop(semigroup_op, state, input, axis):
        if isinstance(semigroup_op, Resettable):
            (gates, x), starts = input
            (a, b), flag = state
            flags = np.logical_or.accumulate(starts) | flag
            products, states = [], []
            for gate, u, start in zip(gates, x, starts):
                a, b = (np.ones_like(a), np.zeros_like(b)) if start else (a, b)
                a, b = gate * a, gate * b + u
                products.append(a)
                states.append(b)
            empty = np.zeros((0, *a.shape))
            return *(np.stack(s) if s else empty for s in (products, states)), flags
        single = not isinstance(input, tuple)
        state, input = ((state,), (input,)) if single else (state, input)
        input = [np.moveaxis(x, axis, 0) for x in input]
        out = [np.zeros(x.shape) for x in input]
        for t in range(len(input[0])):
            now = [x[t] for x in input]
            state = (semigroup_op(*state, *now),) if single else semigroup_op(state, now)
            for kept, s in zip(out, state):
                kept[t] = s
        return tuple(np.moveaxis(x, 0, axis) for x in out)

    forms = {"_op": {k: k for k in name}, "_x": {"tb": "tb", "bt": "bt"}}
    forms["semigroup_op"] = only(lambda d: name[d.sizes["op"]])
    forms |= {"state": only(first), "input": only(states)}
    forms["axis"] = only(lambda d: d.sizes["x"].index("t"))
    names = "memax.semigroup_scan"
    along = lambda row: row["_op"] != "resettable" or row["_x"] == "tb"
    add("jax", names, loop, forms, allowed=along)


def state_spaces():
    def selective_scan(x, delta, A, B, C, D):
        gate = np.exp(delta[..., None] * A)
        h = scan(gate, (delta * x)[..., None] * B[:, :, None], axis=1)
        return (h * C[:, :, None]).sum(-1) + D * x

    forms = {"x": of_types(number("btc")), "delta": of_types(share("btc"))}
    forms |= {"A": only(lambda d: -d.share("cb")), "B": of_types(number("btb"))}
    forms |= {"C": only(number("btb")), "D": only(number("c"))}
    add("torch", "mambapy.selective_scan", selective_scan, forms)

    def apply_ssm(Lambda_bars, B_bars, C_tilde, D, input_sequence, state, bidir, liquid=False):
        u, first = input_sequence, 0 if state is None else state
        driven = (B_bars * u[:, None]).sum(-1)
        whole = lambda gate, **options: scan(gate, driven + 0j, **options)
        states = whole(Lambda_bars + liquid * driven, first=first)
        last = last_of(states, first)
        if bidir:
            back = whole(Lambda_bars, reverse=True)
            states, last = (
                np.concatenate(two, -1) for two in ((states, back), (last, last_of(back, 0)))
            )
        return (states @ C_tilde.T).real + D * u, last

    forms = {"_both": SWITCH, "bidir": only(lambda d: d.sizes["both"])}
    forms["_s"] = only(lambda d: 3 * (1 + d.sizes["both"]))
    forms["Lambda_bars"] = {axes: pair(axes) for axes in ("c", "tc")}
    forms["B_bars"] = {"cb": pair("cb"), "tcb": pair("tcb"), "real": number("cb")}
    forms["C_tilde"] = {"pair": pair("bs"), "real": number("bs")}
    forms["D"] = {"b": number("b"), "1": number("1"), "number": np.array(0.5)}
    forms |= {"input_sequence": only(number("tb")), "state": {**NOTHING, "c": pair("c")}}
    refused = lambda row: row["_both"] == "False" or row["state"] == "None"
    add("torch", "s5.s5_model.apply_ssm", apply_ssm, forms, allowed=refused)
    liquid = lambda **given: apply_ssm(**given, liquid=True)
    add("torch", "s5.s5_model.apply_ssm_liquid", liquid, forms, allowed=refused)

    def of_jax(Lambda_bar, B_bar, C_tilde, input_sequence, conj_sym, bidirectional):
        driven = (B_bar * input_sequence[..., None, :]).sum(-1) + 0j
        h = scan(Lambda_bar, driven, axis=-2)
        if bidirectional:
            h = np.concatenate((h, scan(Lambda_bar, driven, axis=-2, reverse=True)), -1)
        return (1 + conj_sym) * (h @ C_tilde.T).real

    forms = {"_both": SWITCH, "bidirectional": only(lambda d: d.sizes["both"])}
    forms["_s"] = only(lambda d: 3 * (1 + d.sizes["both"]))
    forms |= {"Lambda_bar": only(pair("c")), "B_bar": {"pair": pair("cb"), "real": number("cb")}}
    forms |= {"C_tilde": {"pair": pair("bs"), "real": number("bs")}, "conj_sym": SWITCH}
    forms["input_sequence"] = {"tb": number("tb"), "btb": number("btb")}
    add("jax", "s5.ssm.apply_ssm", of_jax, forms)


def torchrl():
    """Add torchrl. The reference loops run along axis 0, to which `in_time` moves the time axis."""

    def td1(gamma, next_state_value, reward, done, terminated, rolling_gamma=None):
        out = np.zeros(reward.shape)
        for k in range(len(out)):
            g = next_state_value[-1] if rolling_gamma is not False else 0
            for i in reversed(range(k, len(out))):
                ahead = np.where(terminated[i], 0, np.where(done[i], next_state_value[i], g))
                g = reward[i] + gamma[i if rolling_gamma is not False else k] * ahead
            out[k] = g
        return out

    def td_lambda(gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma=None):
        out, value = np.zeros(reward.shape), np.where(terminated, 0, next_state_value)
        for k in range(len(out)):
            g = value[-1]
            for i in reversed(range(k, len(out))):
                of = i if rolling_gamma is not False else k
                g = np.where(done[i], value[i], g)
                g = reward[i] + gamma[of] * ((1 - lmbda[of]) * value[i] + lmbda[of] * g)
            out[k] = g
        return out

    def td0(gamma, next_state_value, reward, done, terminated):
        return reward + gamma * np.where(terminated, 0, next_state_value)

    def gae(gamma, lmbda, state_value, done, **given):
        delta = td0(gamma, done=done, **given) - state_value
        advantage = scan(np.where(done, 0, gamma * lmbda), delta, reverse=True)
        return advantage, advantage + state_value

    def reward2go(gamma, reward, done, terminated):
        return scan(np.where(done, 0, gamma), reward, reverse=True)

    def vtrace(
        gamma, log_pi, log_mu, state_value, next_state_value, reward, done, terminated,
        rho_thresh, c_thresh,
    ):  # fmt: skip
        weight = np.exp(log_pi - log_mu)
        rho, c = np.minimum(weight, rho_thresh), np.minimum(weight, c_thresh)
        once = lambda x: td0(gamma, x, reward, done, terminated) - state_value
        delta = rho * once(next_state_value)
        target = scan(np.where(done, 0, gamma * c), delta, reverse=True) + state_value
        ahead = np.concatenate((target[1:], next_state_value[-1:]))
        return rho * once(np.where(done, next_state_value, ahead)), target

    def less_value(loop):
        return lambda state_value, **given: loop(**given) - state_value

    def in_time(loop, vec):
        def function(reward, done, terminated=None, time_dim=-2, **given):
            whole = {"done": done, "terminated": done if terminated is None else terminated}
            ahead = lambda x: np.moveaxis(np.broadcast_to(x, reward.shape), time_dim, 0)
            option = {k: given.pop(k) for k in ("rolling_gamma",) if k in given}
            if vec and np.size(given["gamma"]) == np.size(given.get("lmbda", 1)) == 1:
                option = {}
            arrays = {k: ahead(x) for k, x in ({"reward": reward} | whole | given).items()}
            made = loop(**arrays, **option)
            back = lambda x: np.moveaxis(x, 0, time_dim)
            return tuple(map(back, made)) if isinstance(made, tuple) else back(made)

        return function

    def along(d):
        """Return the axes of factors that depend on the step but not on the sequence."""
        axes = d.sizes["x"]
        return "".join(axis if axis == "t" else "1" for axis in axes[axes.index("t") :])

    share = lambda d: d.share(d.sizes["x"])
    factor = {
        "number": 0.75, "1": 1, "numpy": np.float32(0.75), "0-d": np.array(0.75),
        "0-d int": np.array(1), "one": np.array([0.75]), "whole": share, "single": single(share),
        "whole int": lambda d: d.booleans(d.sizes["x"]).astype(int),
        "steps": lambda d: d.share(along(d)),
    }  # fmt: skip
    axes = {"-2": ("btc", -2), "1": ("btc", 1), "0": ("tbc", 0), "-1": ("bct", -1)}
    layout = {"_at": axes, "_x": only(lambda d: d.sizes["at"][0])}
    steps = only(lambda d: d.number(d.sizes["x"]))
    mark = lambda d: d.booleans(d.sizes["x"])
    time = {"time_dim": only(lambda d: d.sizes["at"][1])}
    ends = {"done": only(mark), "terminated": {**NOTHING, "given": mark}}
    after = {"next_state_value": steps, "reward": steps, **ends}
    value, mixing = {"state_value": steps}, {"lmbda": factor}

    def offer(names, loop, forms, **options):
        for name in names.split():
            full = f"torchrl.{name}"
            own = in_time(loop, name.startswith("vec_"))
            add("torch", full, own, {**layout, "gamma": factor, **forms}, **options)

    names = "generalized_advantage_estimate vec_generalized_advantage_estimate"
    offer(names, gae, {**mixing, **after, **value, **time})
    rolling = {"rolling_gamma": {"None": None, **SWITCH}}
    every_step = lambda row: any(
        row.get(k) in ("whole", "single", "whole int") for k in ("gamma", "lmbda")
    )
    number = lambda row: row["_t"] == "1" or "steps" not in (row["gamma"], row.get("lmbda"))
    own = lambda row: row["rolling_gamma"] != "False" or every_step(row)
    # The vec_ functions ignore rolling_gamma if gamma and lmbda have one element each.
    vec = lambda row: own(row) or number(row)
    for name, loop, factors in (("td1", td1, {}), ("td_lambda", td_lambda, mixing)):
        given = {**factors, **after, **rolling, **time}
        for prefix, allowed in (("", own), ("vec_", vec)):
            full = f"{prefix}{name}"
            offer(f"{full}_return_estimate", loop, given, allowed=allowed)
            offer(f"{full}_advantage_estimate", less_value(loop), given | value, allowed=allowed)
    # The offset of 1/32 keeps every weight away from the thresholds.
    logs = {"log_pi": steps, "log_mu": only(lambda d: d.number(d.sizes["x"]) + 1 / 32)}
    clip = {"rho_thresh": {"number": 0.9, "0-d": np.array(0.9)}, "c_thresh": factor}
    offer("vtrace_advantage_estimate", vtrace, {**logs, **after, **value, **clip, **time})
    offer("reward2go", reward2go, {"reward": steps, "done": only(mark), **time})


def rl_games():
    def advantages(
        self, fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards,
        mb_masks=None,
    ):  # fmt: skip
        alive = 1 - np.concatenate((mb_fdones, fdones[None]))[1:, :, None]
        ahead = np.concatenate((mb_extrinsic_values, last_extrinsic_values[None]))[1:]
        delta = mb_rewards + self.gamma * ahead * alive - mb_extrinsic_values
        mask = 1.0 if mb_masks is None else mb_masks[..., None]
        return scan(self.gamma * self.tau * alive * mask, delta * mask, reverse=True)

    flags = lambda axes: of_types(lambda d: d.booleans(axes).astype(float))
    agent = lambda d: SimpleNamespace(gamma=0.75, tau=0.5, horizon_length=d.sizes["t"])
    forms = {"self": only(agent), "fdones": flags("b"), "last_extrinsic_values": only(number("bc"))}
    forms |= {"mb_fdones": flags("tb"), "mb_extrinsic_values": of_types(number("tbc"))}
    forms["mb_rewards"] = only(number("tbc"))
    name = "rl_games.discount_values"
    add("torch", name, advantages, forms)
    add("torch", f"{name}_masks", advantages, forms | {"mb_masks": flags("tb")})


def rlax():
    def lambda_returns(r_t, discount_t, v_t, lambda_=1.0):
        lambda_, v_t = (np.broadcast_to(x, r_t.shape) for x in (lambda_, v_t))
        mixed = r_t + discount_t * (1 - lambda_) * v_t
        return scan(discount_t * lambda_, mixed, last_of(v_t, 0), reverse=True)

    def gae(r_t, discount_t, lambda_, values):
        delta = r_t + discount_t * values[1:] - values[:-1]
        return scan(discount_t * lambda_, delta, reverse=True)

    def corrected(r_t, discount_t, rho_tm1, lambda_, values):
        ahead = np.concatenate((rho_tm1, [1.0]))[1:]
        return rho_tm1 * gae(r_t, discount_t, lambda_ * ahead, values)

    def q_and_v(q_t, v_t, r_t, discount_t, c_t):
        c, cq = (np.concatenate((x, [0.0] * (len(v_t) > 0))) for x in (c_t, c_t * q_t))
        # c is 0 at the last step, so the last return bootstraps from v_t alone.
        return scan(discount_t * c, r_t + discount_t * (v_t - cq), reverse=True)

    def action_values(q_t, a_t, r_t, discount_t, c_t, pi_t):
        chosen = q_t[np.arange(len(a_t)), a_t]
        return q_and_v(chosen[:-1], (pi_t * q_t).sum(-1), r_t, discount_t, c_t[:-1])

    def clipped(rho, threshold, alpha):
        return (1 - alpha) * rho + alpha * np.minimum(threshold, rho)

    def vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho_threshold, sample_mask, alpha_=1.0
    ):
        delta = r_t + discount_t * v_t - v_tm1
        delta = clipped(rho_tm1, clip_rho_threshold, alpha_) * delta
        gate = discount_t * clipped(rho_tm1, 1.0, alpha_) * lambda_
        if sample_mask is not None:
            gate, delta = np.where(sample_mask, gate, 1), np.where(sample_mask, delta, 0)
        return scan(gate, delta, reverse=True)

    def with_advantage(v_tm1, lambda_, clip_pg_rho_threshold, alpha=1.0, **given):
        errors = vtrace(v_tm1, lambda_=lambda_, alpha_=alpha, **given)
        lambda_ = np.broadcast_to(lambda_, v_tm1.shape)
        ahead = lambda_[:-1] * (errors + v_tm1)[1:] + (1 - lambda_[:-1]) * v_tm1[1:]
        ahead = np.concatenate((ahead, given["v_t"][-1:]))
        q_estimate = given["r_t"] + given["discount_t"] * ahead
        clip = clipped(given["rho_tm1"], clip_pg_rho_threshold, alpha)
        return errors, clip * (q_estimate - v_tm1), q_estimate

    def offer(name, loop, forms, **options):
        stop = {**SWITCH, "array True": np.array(True)}
        given = lambda stop_target_gradients, **given: loop(**given)
        flows = lambda row: "True" not in row["stop_target_gradients"]
        forms = {**forms, "stop_target_gradients": stop}
        add("jax", f"rlax.{name}", given, forms, differentiable=flows, **options)

    steps, shares = of_types(number("t")), only(share("t"))
    mixing = {"number": 0.75, "1": 1, "0-d": np.array(0.75), "steps": share("t")}
    values = {"v_t": only(number("t"))}
    first = {"r_t": steps, "discount_t": shares}
    offer("lambda_returns", lambda_returns, {**first, **values, "lambda_": mixing})
    last = {"steps": number("t"), "number": 0.5, "0-d": np.array(0.5)}
    offer("discounted_returns", lambda_returns, {**first, "v_t": last})
    ahead = {"_v": only(lambda d: d.sizes["t"] + 1), "values": only(number("v"))}
    given = {**first, "lambda_": mixing, **ahead}
    offer("truncated_generalized_advantage_estimation", gae, given)
    rho = {"rho_tm1": only(lambda d: 2 * d.share("t") + 1 / 32)}  # rho equals no threshold
    offer("importance_corrected_td_errors", corrected, {**given, **rho})
    short = {"_k": only(lambda d: max(0, d.sizes["t"] - 1))}
    short |= {"q_t": only(number("k")), "c_t": only(share("k"))}
    offer("general_off_policy_returns_from_q_and_v", q_and_v, {**first, **values, **short})
    of_actions = {"q_t": only(number("tc")), "pi_t": only(share("tc")), "c_t": shares}
    of_actions["a_t"] = only(lambda d: np.arange(d.sizes["t"]) * 7 % 3)
    offer("general_off_policy_returns_from_action_values", action_values, first | of_actions)
    clip = {"number": 0.9, "0-d": np.array(0.9)}
    given = {**first, **values, "v_tm1": only(number("t")), **rho, "lambda_": mixing}
    given |= {"clip_rho_threshold": clip, "sample_mask": {**NOTHING, "given": booleans("t")}}
    offer("vtrace", vtrace, given)
    leaks = {"number": 0.25, "1.0": 1.0, "0-d": np.array(0.25)}
    offer("leaky_vtrace", vtrace, given | {"alpha_": leaks})
    given["clip_pg_rho_threshold"] = {"number": 0.8, "0-d": np.array(0.8)}
    offer("vtrace_td_error_and_advantage", with_advantage, given)
    offer("leaky_vtrace_td_error_and_advantage", with_advantage, given | {"alpha": leaks})


def named_axes(x, axes, wanted, sizes):
    """Transpose an array to the wanted order of named axes. Axes that it lacks get extent 1."""
    order = [axes.index(axis) for axis in wanted if axis in axes]
    x = np.transpose(x, order)
    return x.reshape([sizes[axis] if axis in axes else 1 for axis in wanted])


def philtorch():
    """Add philtorch. The batch size is 4, so `axes_of` can identify this axis by its length."""
    of = lambda *axes: {axis: number(axis) for axis in axes}
    both = lambda *axes: of(*axes) | {f"pair {axis}": pair(axis) for axis in axes}
    batch = {"_b": only(4), "_p": only(6)}
    index = {"None": None, "0": 0, "-1": -1}
    unroll = {"unroll_factor": {"1": 1, "4": 4}}

    def offer(names, loop, forms, **options):
        names = " ".join(f"philtorch.{name}" for name in names.split())
        add("torch", names, loop, {**batch, **forms}, **options)

    def linear_recurrence(a, init, x, unroll_factor):
        a = a if a.ndim == 2 or a.shape == x.shape[1:] != x.shape[:1] else a.reshape(-1, 1)
        return scan(a, x, init, axis=-1)

    start = {"init": both("1", "b") | {"0-d": np.array(0.5)}, "x": both("bt"), **unroll}
    numbers = both("1", "b") | {"0-d": np.array(0.5)}
    constant = lambda a, **given: linear_recurrence(np.reshape(a, (-1, 1)), **given)
    offer("lti.linear_recurrence", constant, {"a": numbers, **start})
    varying = lambda a, **given: linear_recurrence(np.atleast_2d(a), **given)
    offer("lpv.linear_recurrence", varying, {"a": both("t", "bt"), **start})
    matrices = both("bt11", "1t11", "b111", "1111")
    given = {"A": matrices, "zi": both("b1"), "x": both("bt1")}
    offer("recurrence", lambda A, zi, x: scan(A[..., 0], x, zi, axis=1), given)

    def recursion(A, zi, x, unroll_factor, out_idx):
        h = scan(A, x.reshape(*x.shape[:2], 1), zi, axis=1)
        return h if out_idx is None else h[..., 0]

    given = {"zi": both("b1"), "x": both("bt", "bt1"), "out_idx": index, **unroll}
    constant = lambda A, **given: recursion(A.reshape(-1, 1, 1), **given)
    offer("lti.state_space_recursion", constant, {"A": both("11", "b11"), **given})
    varying = lambda A, **given: recursion(A[..., 0], **given)
    offer("lpv.state_space_recursion", varying, {"A": both("t11", "bt11"), **given})

    def axes_of(x, candidates, sizes):
        """Return the first candidate that fits an array's shape.

        Axis ``p`` may have any length. Axis ``n`` needs coefficients that vary over time.
        """
        for axes in candidates:
            if (
                ("n" in sizes or "n" not in axes)
                and len(axes) == x.ndim
                and all(axis == "p" or sizes[axis] == n for axis, n in zip(axes, x.shape))
            ):
                return axes
        raise AssertionError(x.shape)

    def system(gates, x, B, C, D, zi, out_idx, V=None, Vinv=None, varying=False):
        """Run a state space with gates (B, N, M). V and Vinv are (M, M) or (B, M, M)."""
        (batch, steps, states), wide = gates.shape, x.ndim == 3
        sizes = {"b": batch, "m": states, "1": 1} | ({"n": steps} if varying else {})
        u = x if wide else x[..., None]
        sizes["f"] = u.shape[2]
        V, Vinv = (np.eye(states) if y is None else y for y in (V, Vinv))
        B = np.eye(states)[:, : sizes["f"]] if B is None else B if wide else B[..., None]
        B = named_axes(B, axes_of(B, ("mf", "nmf", "bmf", "bnmf"), sizes), "bnmf", sizes)
        driven = np.einsum("bnmf,bnf->bnm", B, u)
        s, h, before = 0.0, np.zeros((batch, states)), []
        if zi is not None:
            h = np.broadcast_to(zi, h.shape)
            s = (Vinv @ h[..., None])[..., 0]
        for n in range(steps):
            before.append(h)
            s = gates[:, n] * s + (Vinv @ driven[:, n, :, None])[..., 0]
            h = (V @ s[..., None])[..., 0]
        y = np.stack(before, 1) if before else np.zeros((batch, 0, states))
        if C is not None:
            y, h = (z if np.iscomplexobj(C) else z.real for z in (y, h))
            axes = axes_of(C, ("m", "nm", "bm", "pm", "npm", "bnm", "bpm", "bnpm"), sizes)
            sizes["p"] = C.shape[-2] if "p" in axes else 1
            y = np.einsum("bnpm,bnm->bnp", named_axes(C, axes, "bnpm", sizes), y)
            y = y if "p" in axes else y[..., 0]
        y = y if out_idx is None else y[..., out_idx]
        if D is not None:
            through = ("f", "", "1", "nf", "bf", "pf", "bnf", "npf", "bpf", "bnpf")
            if not wide:
                through = "n", "b", "", "1", "p", "np", "bn", "bp", "bnp"
            axes = axes_of(D, through, sizes)
            if axes in ("", "1"):
                y = y + D * x
            else:
                axes, D = (axes, D) if wide else (axes + "f", D[..., None])
                sizes["p"] = D.shape[axes.index("p")] if "p" in axes else 1
                delta_u = np.einsum("bnpf,bnf->bnp", named_axes(D, axes, "bnpf", sizes), u)
                y = y + (delta_u if "p" in axes else delta_u[..., 0])
        return y if zi is None else (y, h)

    def spaces(leads, inputs):
        """Return the forms of x, B, C, D, out_idx and zi.

        `leads` are the leading axes of B, C and D. `inputs` are the numbers of inputs. The first of
        them is also the number of states.
        """
        wide = lambda d: "f" * (d.sizes["signal"] == "btf")
        outputs = lambda d: d.sizes["outputs"]
        axes = lambda d, lead, rest: lead.replace("n", "t") + rest

        def b(d):
            lead = d.sizes["driven"]
            return None if lead is None else d.number(axes(d, lead, "m" + wide(d)))

        def c(d):
            return None if outputs(d) in ("h", "0", "-1") else d.number(axes(d, outputs(d), ""))

        def through(d):
            lead = d.sizes["through"]
            if lead in (None, "number"):
                return None if lead is None else np.array(0.5)
            rest = "m" if outputs(d) == "h" else "p" if "p" in outputs(d) else ""
            return d.number(axes(d, lead, rest + wide(d)))

        named = lambda *forms: {str(form): form for form in forms}
        choices = [lead + rest for rest in ("m", "pm") for lead in leads]
        forms = {"_m": only(inputs[0]), "_f": {str(n): n for n in inputs}}
        forms |= {"_signal": named("bt", "btf"), "_driven": named(None, *leads)}
        forms |= {"_outputs": named("h", "0", "-1", *choices)}
        forms |= {"_through": named(None, "number", *leads)}
        forms |= {"x": only(lambda d: d.number(d.sizes["signal"]))}
        forms |= {"B": only(b), "C": only(c), "D": only(through)}
        index = {"h": None, "0": 0, "-1": -1}
        forms["out_idx"] = only(lambda d: index.get(outputs(d)))
        forms["zi"] = {**NOTHING, "m": number("m"), "bm": number("bm")}
        return forms

    def fits(row):
        """Return whether B fits the inputs and states, and D the inputs and outputs."""
        wide, through, outputs = row["_signal"] == "btf", row["_through"], row["_outputs"]
        diagonal = "_kind" in row
        as_many = row["_f"] == ("3" if diagonal else "1")
        if wide and row["_driven"] == "None" and not as_many:
            return False
        many = "p" in outputs
        if through == "number":
            return wide and outputs == "h" and as_many or not (wide or many or outputs == "h")
        if outputs == "h" and not diagonal:  # an axis of length 1 of D may be read as time
            of_steps = "_lpv" in row and row["_t"] == "1" and through in ("", "b")
            return through == "None" or (wide or through != "") and not of_steps
        return True

    lti, lpv = ("", "b"), ("", "t", "b", "bt")

    def constant(A, x, unroll_factor, **given):
        gates = np.broadcast_to(A[..., 0].reshape(-1, 1, 1), (*x.shape[:2], 1))
        return system(gates, x, **given)

    def varying(A, x, unroll_factor, **given):
        return system(np.broadcast_to(A[..., 0], (*x.shape[:2], 1)), x, **given, varying=True)

    matrices = {axes: number(axes) for axes in ("mm", "bmm")}
    given = {**spaces(lti, (1, 2)), "A": matrices, **unroll}
    offer("lti.state_space", constant, given, allowed=fits)
    matrices = {axes: number(axes) for axes in ("tmm", "btmm")}
    given = {**spaces(lpv, (1, 2)), "_lpv": only(True), "A": matrices, **unroll}
    offer("lpv.state_space", varying, given, allowed=fits)

    def diag_state_space(x, L, V, Vinv, A, unroll_factor, **given):
        if A is not None:
            L, V = np.linalg.eig(A)
            Vinv = None
        if V is None and Vinv is not None:
            V = np.linalg.inv(Vinv)
        elif V is not None and Vinv is None:
            Vinv = np.linalg.inv(V)
        gates = np.broadcast_to(L if L.ndim == 1 else L[:, None], (*x.shape[:2], 3))
        return system(gates, x, **given, V=V, Vinv=Vinv)

    def basis(d):
        lead = "b" * d.sizes["kind"].startswith("b")
        return np.eye(3) + d.number(f"{lead}mm") / 8

    def part(name):
        """Return the forms of an argument, which is None if `_kind` lacks its letter (I for Vinv)."""

        def make(d):
            kind, v = d.sizes["kind"], d.sizes["basis"]
            if name not in kind.split()[1]:
                return None
            values = np.array([0.625, -0.5, 0.125])
            return {
                "L": lambda: values + 0.5j * ("pair" in kind) + np.zeros(v.shape[:-1]),
                "V": lambda: v,
                "I": lambda: np.linalg.inv(v),
                "A": lambda: v @ np.diag(values) @ np.linalg.inv(v),
            }[name]()

        return only(make)

    kinds = (
        "one L",
        "b L",
        "pair L",
        "one LV",
        "one LI",
        "one LVI",
        "b LV",
        "one A",
        "b A",
        "one LA",
    )
    forms = {"_kind": {kind: kind for kind in kinds}, **spaces(lti, (3, 2)), "_basis": only(basis)}
    forms |= {"L": part("L"), "V": part("V"), "Vinv": part("I"), "A": part("A"), **unroll}
    forms["_m"] = only(3)
    free = lambda row: row["_kind"] != "one LA"  # differences would break A = V diag(L) V^-1
    offer("lti.diag_state_space", diag_state_space, forms, allowed=fits, differentiable=free)

    def comb_filter(a, delay, x, zi, unroll_factor):
        before = np.zeros((4, delay)) if zi is None else np.broadcast_to(zi, (4, delay))[:, ::-1]
        y = list(before.T)
        for n in range(x.shape[1]):
            y.append(x[:, n] - a * y[n])
        y = np.stack(y, 1)
        return y[:, delay:] if zi is None else (y[:, delay:], y[:, -delay:][:, ::-1])

    given = {"_w": {"3": 3, "1": 1}, "a": both("b") | {"0-d": np.array(0.5)}}
    given |= {"delay": only(lambda d: d.sizes["w"]), "x": both("bt"), **unroll}
    given["zi"] = {**NOTHING, "w": number("w"), "bw": number("bw"), "pair": pair("bw")}
    offer("lti.comb_filter", comb_filter, given, steps=(7, 0, 1, 2, 3, 4))

    def lfilter(b, a, x, zi, form, backend, unroll_factor):
        bare = all(y is None or y.ndim == 1 for y in (b, a, x, zi))
        x = np.atleast_2d(x)
        order = max(1, b.shape[-1] - 1)
        b = np.concatenate((b, np.zeros((*b.shape[:-1], order + 1 - b.shape[-1]))), -1)
        b, a = (np.broadcast_to(y, (len(x), y.shape[-1])) for y in (b, a))
        state = np.zeros((len(x), order)) if zi is None else np.broadcast_to(zi, (len(x), order))
        out = []
        for u in x.T:
            nothing = 0 * state[:, :1]
            if form == "df2":
                w = u - a[:, 0] * state[:, 0]
                out.append(b[:, 0] * w + (b[:, 1:] * state).sum(1))
                state = np.concatenate((w[:, None], state[:, :-1]), 1)
            else:
                out.append(b[:, 0] * u + state[:, 0])
                state = np.concatenate((state[:, 1:], nothing), 1) + b[:, 1:] * u[:, None]
                state = state - np.concatenate((a, 0 * b[:, 2:]), 1) * out[-1][:, None]
        y = np.stack(out, 1) if out else np.zeros(x.shape)
        y, state = (y[0], state[0]) if bare else (y, state)
        return y if zi is None else (y, state)

    of_x = lambda d: d.number(d.sizes["signal"])
    taps = {
        "_k": {"4": 4, "1": 1, "2": 2, "40": 40},
        "_o": only(lambda d: max(1, d.sizes["k"] - 1)),
    }
    taps |= {"_signal": {"bt": "bt", "t": "t"}}
    taps["_s"] = only(lambda d: 4 if "b" in d.sizes["signal"] else 1)
    taps |= {"b": {**of("k", "sk"), "pair": pair("k")}, "a": of("1", "s1"), "x": only(of_x)}
    taps["zi"] = {**NOTHING, **of("o", "so")}
    taps["form"] = {form: form for form in ("tdf2", "df2", "df1", "tdf1")}
    taps |= {"backend": {k: k for k in ("ssm", "diag_ssm")}, **unroll}
    state = lambda row: "1" not in row["form"] or row["zi"] == "None" and row["backend"] == "ssm"
    offer("lti.lfilter", lfilter, taps, allowed=state, steps=(9, 0, 1, 2, 3, 39, 90))


linear_scans()
operators()
state_spaces()
philtorch()
torchrl()
rl_games()
rlax()
