# SPDX-License-Identifier: BSD-3-Clause
"""A character language model of Mamba blocks in PyTorch, compared with one of QRNN layers.

A block has a projection, a causal convolution, scanrec.torch.selective_scan and a gate. The models take
turns after every chunk, train for the same number of seconds, and are evaluated on the end of the text. The
Mamba model then generates text, a character at a time, by selective_state_update. The program draws both
learning curves.

    pip install './python[torch]' tqdm matplotlib
    python python/examples/mamba_text.py --out build/text
"""

from __future__ import annotations

import math
import pathlib
import time

import numpy as np
import torch
from text_data import Chunks, draw_curves, parser_of, smoothed
from text_model_torch import TextModel
from torch import nn
from tqdm import tqdm

import scanrec.torch


class MambaBlock(nn.Module):
    """Compute x + Mamba(x / rms(x)). The carry is the states and the convolution's last inputs."""

    def __init__(self, channels, expand=2, states=16, window=4):
        super().__init__()
        inner, self.rank, self.states = expand * channels, -(-channels // 16), states
        self.norm = nn.RMSNorm(channels, eps=1e-6)
        self.input = nn.Linear(channels, 2 * inner, bias=False)
        self.taps = nn.Conv1d(inner, inner, window, groups=inner)
        self.mixing = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.delta = nn.Linear(self.rank, inner, bias=False)
        nn.init.uniform_(self.delta.weight, -(self.rank**-0.5), self.rank**-0.5)
        steps = torch.exp(torch.empty(inner).uniform_(math.log(1e-3), math.log(1e-1)))
        # The softplus of the initial bias is `steps`: random step sizes from 0.001 to 0.1.
        self.delta_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))
        self.log_decay = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.output = nn.Linear(inner, channels, bias=False)

    def begin(self, x):
        """The carry at the start of a sequence."""
        inner, window = len(self.skip), self.taps.kernel_size[0]
        return x.new_zeros(len(x), inner, self.states), x.new_zeros(len(x), inner, window - 1)

    def forward(self, x, carried=None):
        state, past = carried or self.begin(x)
        u, z = self.input(self.norm(x)).mT.chunk(2, 1)
        u = torch.cat([past, u], 2)
        past = u[:, :, u.shape[2] - past.shape[2] :]
        v = nn.functional.silu(self.taps(u))
        low, b, c = self.mixing(v.mT).split([self.rank, self.states, self.states], 2)
        out, state = scanrec.torch.selective_scan(
            *(v, self.delta(low).mT, -self.log_decay.exp(), b.mT, c.mT, self.skip, z),
            *(self.delta_bias, True, True),
            initial_state=state,
        )
        return x + self.output(out.mT), (state.detach(), past.detach())

    def step(self, x, carried):
        """Process one step, x (batch, channels), like forward. Updates the state in place."""
        state, past = carried
        u, z = self.input(self.norm(x)).chunk(2, 1)
        u = torch.cat([past, u[:, :, None]], 2)
        v = nn.functional.silu((u * self.taps.weight[:, 0]).sum(2) + self.taps.bias)
        low, b, c = self.mixing(v).split([self.rank, self.states, self.states], 1)
        out = scanrec.torch.selective_state_update(
            *(state, v, self.delta(low), -self.log_decay.exp(), b, c, self.skip, z),
            *(self.delta_bias, True),
        )
        return x + self.output(out), (state, u[:, :, 1:])


class MambaModel(nn.Module):
    def __init__(self, characters, channels, layers):
        super().__init__()
        self.embedding = nn.Embedding(characters, channels)
        self.layers = nn.ModuleList(MambaBlock(channels) for _ in range(layers))
        self.norm = nn.RMSNorm(channels, eps=1e-6)
        self.output = nn.Linear(channels, characters)

    def through(self, x, carried, call):
        left = []
        for layer, from_before in zip(self.layers, carried):
            x, carry = getattr(layer, call)(x, from_before)
            left.append(carry)
        return self.output(self.norm(x)), left

    def forward(self, characters, carried):
        return self.through(self.embedding(characters), carried, "forward")

    def step(self, characters, carried):
        """Process one character per sequence. Return logits (batch, characters) and the carries."""
        return self.through(self.embedding(characters), carried, "step")

    def begin(self, batch):
        one = self.embedding.weight.new_zeros(batch, 1)
        return [layer.begin(one) for layer in self.layers]


class Learner:
    """A model, and its training progress."""

    def __init__(self, name, model, text, learned, args):
        self.name, self.model, self.text, self.learned, self.args = name, model, text, learned, args
        self.rate, self.seconds, self.curve = 4e-3, 0.0, []
        self.optimiser = torch.optim.Adam(model.parameters(), self.rate)
        self.carried = None

    @property
    def done(self):
        return max(self.seconds / self.args.seconds, len(self.curve) / self.args.chunks)

    def chunk(self, i):
        now, after, begins = self.text.chunk(i)
        if begins or self.carried is None:
            self.carried = [None] * self.args.layers
        logits, self.carried = self.model(torch.from_numpy(now), self.carried)
        return nn.functional.cross_entropy(logits.mT, torch.from_numpy(after).long())

    def learn(self):
        """Train on one chunk. The learning rate rises at first, then falls along a cosine."""
        begin = time.perf_counter()
        done = self.done
        for group in self.optimiser.param_groups:
            group["lr"] = (
                self.rate * min(1, done / 0.03 + 1e-3) * (1 + math.cos(math.pi * done)) / 2
            )
        nats = self.chunk(len(self.curve) % self.learned)
        self.optimiser.zero_grad()
        nats.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.seconds += time.perf_counter() - begin
        self.curve.append((self.seconds, nats.item() / math.log(2)))

    @torch.no_grad()
    def held_out(self):
        """Bits per character of the held-out chunks."""
        self.carried = None
        nats = [self.chunk(i).item() for i in range(self.learned, self.text.per_pass)]
        return float(np.mean(nats)) / math.log(2)


@torch.no_grad()
def write(model, alphabet, count):
    """Sample characters one by one."""
    carried, text = model.begin(1), []
    last = torch.tensor([alphabet.index("\n") if "\n" in alphabet else 0])
    for _ in range(count):
        logits, carried = model.step(last, carried)
        last = torch.distributions.Categorical(logits=1.15 * logits).sample()
        text.append(alphabet[int(last)])
    return "".join(text)


def curve_of(learner):
    seconds, bits = np.array(learner.curve).T
    smooth, width = smoothed(bits)
    return seconds[width - 1 :], smooth, {"label": f"{learner.name}, mean of {width} chunks"}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="training time of each model")
    parser.add_argument("--write", type=int, default=400, help="characters to generate at the end")
    parser.set_defaults(chunks=10**6)  # by default, only --seconds ends the training
    args = parser.parse_args()
    text = Chunks(args.text, args.batch, args.steps)
    held = min(max(1, text.per_pass // 20), 32)
    if held == text.per_pass:
        raise SystemExit("the text is too short to hold anything out")
    torch.manual_seed(args.seed)
    # A Mamba block doubles its channels for the scan. With half the channels it scans as many as a QRNN layer.
    characters, narrow = len(text.alphabet), max(1, args.channels // 2)
    models = {
        "QRNN": TextModel(characters, args.channels, args.layers, scanrec.torch.qrnn_pool),
        "Mamba": MambaModel(characters, narrow, args.layers),
    }
    learned = text.per_pass - held
    learners = [Learner(name, model, text, learned, args) for name, model in models.items()]
    with tqdm(total=2 * args.seconds, unit="s", bar_format="{l_bar}{bar}{postfix}") as bar:
        while any(learner.done < 1 for learner in learners):
            for learner in learners:
                if learner.done < 1:
                    learner.learn()
            bar.n = min(sum(learner.seconds for learner in learners), bar.total)
            recent = {x.name: f"{np.mean([b for _, b in x.curve[-50:]]):.3f}" for x in learners}
            bar.set_postfix(recent)
    for learner in learners:
        size = sum(p.numel() for p in learner.model.parameters())
        count = len(learner.curve) * text.size
        print(
            f"{learner.name}: {learner.held_out():.3f} bits per character of {held} chunks held out; "
            f"{size} parameters, {learner.seconds:.0f} s, {count / learner.seconds:.0f} characters "
            "per second"
        )
    mamba = learners[1].model
    begin = time.perf_counter()
    written = write(mamba, text.alphabet, args.write)
    print(f"\n{written}\n\n{1e6 * (time.perf_counter() - begin) / max(args.write, 1):.0f} us each")
    picture = pathlib.Path(args.out) / "mamba_text.png"
    draw_curves(picture, "seconds of training", [curve_of(learner) for learner in learners])


if __name__ == "__main__":
    main()
