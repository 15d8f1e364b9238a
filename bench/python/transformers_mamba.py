# SPDX-License-Identifier: BSD-3-Clause
"""Mamba of Hugging Face transformers, as it is and with its scans replaced by
scanrec.torch.integrations.apply_to, in turn: logits of a prompt, by a model of the smallest
published size with random weights, and of its scans alone what is left when all else is taken off.

    python bench/python/transformers_mamba.py --out build/bench
"""

from __future__ import annotations

import time

import torch
import transformers
from measure import parser_of, record

from scanrec.torch import integrations

# state-spaces/mamba-130m
SMALLEST = dict(vocab_size=50280, hidden_size=768, state_size=16, num_hidden_layers=24)


def milliseconds(f):
    begin = time.perf_counter()
    f()
    return (time.perf_counter() - begin) * 1e3


def no_scan(hidden_states, *_, return_last_state=False, **__):
    """In place of a scan: what the rest of a layer takes."""
    return (hidden_states, None) if return_last_state else hidden_states


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=SMALLEST["num_hidden_layers"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.MambaConfig(**(SMALLEST | {"num_hidden_layers": args.layers}))
    model = transformers.MambaForCausalLM(config).eval()
    text = torch.randint(0, config.vocab_size, (1, args.tokens))
    module = transformers.models.mamba.modeling_mamba
    theirs = module.mamba_selective_scan
    run = torch.no_grad()(lambda: model(text, use_cache=False).logits)
    want = run()
    integrations.apply_to(model)
    off = (run() - want).abs().max().item()
    integrations.restore(model)

    def without():
        module.mamba_selective_scan = no_scan
        run()
        module.mamba_selective_scan = theirs

    def ours():
        integrations.apply_to(model)
        run()
        integrations.restore(model)

    best = {}
    for _ in range(args.rounds):
        for way, f in (("transformers", run), ("scanrec", ours), ("without scans", without)):
            best[way] = min(best.get(way, float("inf")), milliseconds(f))
    rest = best["without scans"]
    scans = {way: best[way] - rest for way in ("transformers", "scanrec")}
    for way, ms in best.items():
        print(f"{way:14} {ms:9.0f} ms")
    print(f"logits {best['transformers'] / best['scanrec']:.1f} times as fast, off by {off:.1e};")
    print(f"scans alone {scans['transformers']:.0f} and {scans['scanrec']:.0f} ms")
    rows = [{"way": way, "tokens": args.tokens, "milliseconds": ms} for way, ms in best.items()]
    record(args, "transformers_mamba", rows, torch=torch.__version__)


if __name__ == "__main__":
    main()
