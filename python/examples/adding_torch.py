# SPDX-License-Identifier: BSD-3-Clause
"""A recurrent model learns to add the two marked numbers of a sequence, in PyTorch.

    input[t] = (value[t], marker[t])        answer = sum of marker[t] * value[t]

This is the adding problem (Hochreiter and Schmidhuber, Long Short-Term Memory, 1997, experiment 4).
docs/tutorial_torch.md explains the program.

    pip install './python[torch]' && python python/examples/adding_torch.py
"""

# [adding_torch_model]
import torch

from scanrec.torch import nn


class Adder(torch.nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.recurrent = nn.MinGRU(2, channels, num_layers=2, batch_first=True)
        self.readout = torch.nn.Linear(channels, 1)

    def forward(self, sequences, state=None):
        """(B, T, 2) to (B,), and the state after the last step."""
        output, state = self.recurrent(sequences, state)
        return self.readout(output[:, -1]).squeeze(-1), state

    def step(self, inputs, state=None):
        """One step: (B, 2) to (B,), and the next state."""
        output, state = self.recurrent.step(inputs, state)
        return self.readout(output).squeeze(-1), state


# [/adding_torch_model]


# [adding_torch_data]
def examples(size, steps):
    """Sequences (size, steps, 2) with a marker in each half, and the answers (size,)."""
    value, marker = torch.rand(size, steps), torch.zeros(size, steps)
    rows = torch.arange(size)
    marker[rows, torch.randint(0, steps // 2, (size,))] = 1
    marker[rows, torch.randint(steps // 2, steps, (size,))] = 1
    return torch.stack([value, marker], -1), (value * marker).sum(-1)


# [/adding_torch_data]


def main():
    # [adding_torch_train]
    torch.manual_seed(0)
    model = Adder()
    optimiser = torch.optim.Adam(model.parameters(), 3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 1000)
    for iteration in range(1, 1001):
        sequences, answers = examples(32, 200)
        loss = (model(sequences)[0] - answers).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if iteration % 250 == 0 or iteration == 1:
            print(f"iteration {iteration}: mean squared error {loss:.4f}")
    # [/adding_torch_train]

    # [adding_torch_chunks]
    sequences, answers = examples(500, 200)
    with torch.no_grad():
        whole, _ = model(sequences)
        print(f"held out: mean squared error {(whole - answers).square().mean():.4f}")

        state = None
        for chunk in sequences.split(64, dim=1):  # 64, 64, 64 and 8 steps
            in_chunks, state = model(chunk, state)
        print("in chunks: equal", torch.allclose(in_chunks, whole, atol=1e-5))
        # [/adding_torch_chunks]

        # [adding_torch_steps]
        state = None
        for t in range(200):
            stepwise, state = model.step(sequences[:, t], state)
        print("step by step: equal", torch.allclose(stepwise, whole, atol=1e-5))
        # [/adding_torch_steps]


if __name__ == "__main__":
    main()
