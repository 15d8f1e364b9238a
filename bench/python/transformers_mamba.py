# SPDX-License-Identifier: BSD-3-Clause
"""Mamba of Hugging Face transformers, before and after scanrec.torch.integrations.apply_to.

Times in alternation: the logits of a prompt, the same call of the model without its scans, and the
generation of tokens one at a time. The model has the smallest published size and random weights.
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
    """Replaces a scan, to time the rest of a layer."""
    return (hidden_states, None) if return_last_state else hidden_states


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument(
        "--new-tokens", type=int, default=32, help="tokens to generate after a prompt of 8"
    )
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

    def generate():
        with torch.no_grad():
            model.generate(
                text[:, :8],
                max_new_tokens=args.new_tokens,
                min_new_tokens=args.new_tokens,
                do_sample=False,
            )

    def ours_generates():
        integrations.apply_to(model)
        generate()
        integrations.restore(model)

    cases = (
        ("logits", "transformers", run),
        ("logits", "scanrec", ours),
        ("logits", "without scans", without),
        ("generation", "transformers", generate),
        ("generation", "scanrec", ours_generates),
    )
    best = {}
    for _ in range(args.rounds + 1):  # the first round warms up
        for what, way, f in cases:
            best[what, way] = min(best.get((what, way), float("inf")), milliseconds(f))
    rows = []
    for (what, way), ms in best.items():
        tokens = args.tokens if what == "logits" else args.new_tokens
        rows.append({"what": what, "tokens": tokens, "way": way, "milliseconds": ms})
        times = best[what, "transformers"] / ms
        print(f"{what:10} {tokens:5} tokens {way:14} {ms:9.0f} ms {times:6.2f} times as fast")
    print(f"logits off by {off:.1e}")
    record(args, "transformers_mamba", rows, torch=torch.__version__)


if __name__ == "__main__":
    main()
