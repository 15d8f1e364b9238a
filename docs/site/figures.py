# SPDX-License-Identifier: BSD-3-Clause
"""Write the page of measured figures: tables of bench/results, each with its provenance."""

import html
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from table import read

#: For each benchmark, by the name of its result files without the machine: a title, a description, and the
#: prefixes of its picture names.
RECORDS = {
    "linear_scan": (
        "Linear scans",
        "Speed as a fraction of the speed of a copy that reads and writes as many arrays, and "
        "nanoseconds per element.",
        ("fraction_of_baseline", "time_against_steps"),
    ),
    "gated_scan": (
        "Gated scans",
        "QRNN fo-pooling of pre-activations that are packed, or copied to separate arrays; and "
        "scans of logarithms.",
        ("gated_",),
    ),
    "selective_scan": (
        "Selective scans",
        "Speed as a fraction of the speed of the same exponentials and products without the "
        "recurrence, and nanoseconds per state and step.",
        (),
    ),
    "causal_conv1d": (
        "Causal convolutions",
        "Speed as a fraction of the speed of a copy that reads and writes as many arrays, and "
        "nanoseconds per element.",
        (),
    ),
    "linear_attention": (
        "Linear attention",
        "Speed as a fraction of the speed of as many multiply-adds on registers, and nanoseconds per "
        "step and head. A single step is compared with a copy of the states.",
        (),
    ),
    "s5": ("State spaces", "Times of the scan within S5, and of the whole call.", ()),
    "scan_variants": (
        "Backends side by side",
        "The same calls on every backend, and the scan of one sequence compared with other "
        "libraries.",
        ("variants",),
    ),
    "text_model": (
        "A language model",
        "A training step of the model of `examples/qrnn_text.cpp`, without its optimiser.",
        (),
    ),
    "distributed": (
        "Time split over processes",
        "The time of the slowest process divided by the time of one process that does "
        "everything. Below 1, splitting is faster.",
        ("distributed_",),
    ),
    "python/throughput": (
        "JAX, PyTorch and NumPy",
        "Milliseconds for the forward call, and for the forward call with the gradients. "
        "[Linear scans in Python](/docs/python_linear_scan.md#speed) has the shapes of linear scans.",
        (),
    ),
    "python/causal_conv1d": (
        "Causal convolutions in JAX and PyTorch",
        "Milliseconds for the output, for the output with all gradients, and for one step.",
        (),
    ),
    "python/linear_attention": (
        "Linear attention in other libraries",
        "Milliseconds for the outputs, and for the outputs with all gradients.",
        (),
    ),
    "python/call_overhead": (
        "Small calls",
        "Microseconds per call on float32 arrays of shape (1, 16, 64). Python and the framework "
        "take most of this time.",
        (),
    ),
    "python/selective_scan": (
        "Selective scans in PyTorch",
        "Milliseconds for a layer of the smallest published Mamba: the output alone, and the "
        "output with all gradients.",
        (),
    ),
    "python/transformers_mamba": (
        "Mamba of transformers",
        "Milliseconds for the logits of a prompt, with a model of the smallest published size.",
        (),
    ),
    "python/gate_jacobian": (
        "Jacobians of the final state",
        "Milliseconds per Jacobian at the largest number of steps.",
        ("gate_jacobian",),
    ),
    "python/compile_time": ("Compiling in JAX", "Milliseconds to trace and compile.", ()),
    "python/peak_memory": (
        "Memory of a gradient",
        "Peak memory, in bytes and in arrays of the input's size.",
        (),
    ),
    "gpu/nvidia": (
        "GPUs",
        "Milliseconds per call. [GPUs](/docs/cuda.md#speed) has a selection of these rows.",
        (),
    ),
    "python/log_step_qrnn": (
        "QRNN against a scan of log2(T) shifted multiply-adds",
        "Milliseconds per call.",
        (),
    ),
}
#: For each benchmark shown as a cross table: the keys that name the rows, the keys that name the columns, and
#: the key of the values.
PIVOTS = {
    "python/throughput": (("way", "outputs"), ("what",), "milliseconds"),
    "python/call_overhead": (("call",), ("framework",), "microseconds"),
    "python/selective_scan": (("steps", "what"), ("way",), "milliseconds"),
    "python/linear_attention": (("what", "shape", "rule", "threads"), ("way",), "milliseconds"),
    "python/transformers_mamba": (("tokens",), ("way",), "milliseconds"),
    "python/gate_jacobian": (("layers", "mode", "of"), ("way",), "milliseconds"),
    "python/compile_time": (("steps",), ("way", "what"), "milliseconds"),
    "python/log_step_qrnn": (("steps",), ("way", "what"), "milliseconds"),
}
NOT_SHOWN = {"name", "time", "unit", "memcpy_GB/s"}


def number(value):
    if isinstance(value, str):
        return html.escape(value)
    if isinstance(value, int) or (value == int(value) and abs(value) >= 100):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if value >= 0.001 else f"{value:.1e}" if value else "0"


def bar(fraction):
    width = min(100, 100 * fraction)
    return f'<span class="bar" style="--part:{width:.0f}%">{fraction:.2f}</span>'


def table(corner, columns, rows):
    """Format a table; rows are (head, [cells as HTML])."""
    heads = "".join(f"<th>{number(c)}</th>" for c in (corner, *columns))
    body = "".join(
        f"<tr><th>{number(head)}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for head, cells in rows
    )
    return (
        '```{raw} html\n<div class="table-wrapper docutils container"><table class="docutils figures"><thead><tr>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>\n```\n"
    )


def pivot(corner, entries, show):
    """Format a table from {(row, column): value}. Rows and columns keep the order of the entries."""
    rows, columns = (
        list(dict.fromkeys(r for r, _ in entries)),
        list(dict.fromkeys(c for _, c in entries)),
    )
    return table(
        corner,
        columns,
        [(r, [show(entries[r, c]) if (r, c) in entries else "" for c in columns]) for r in rows],
    )


def of_benchmarks(runs):
    """Tables of Google Benchmark's rows, named workload/call, workload/backend/call or sweep/T=n/..."""
    single, by_backend, sweep, others = {}, {}, {}, []
    for run in runs:
        parts = [
            p.replace("_", " ") if not p.startswith("T=") else p for p in run["name"].split("/")
        ]
        if "fraction_of_baseline" not in run:
            others.append((" ".join(parts), run))
        elif parts[0] == "sweep":
            sweep[parts[1].removeprefix("T="), parts[2].replace("channel=", "channels: ")] = run
        elif len(parts) == 3:
            by_backend.setdefault(parts[2], {})[parts[0], parts[1]] = run
        else:
            single[parts[0], parts[1]] = run

    # Selective scans and linear attention are also compared with an arithmetic baseline. The baseline that
    # takes longer is the limit. Their times are per state and per step.
    def both(run):
        part = max(run["fraction_of_baseline"], run.get("fraction_of_arithmetic", 0))
        time = next(run[f"ns/{of}"] for of in ("state", "step", "element") if f"ns/{of}" in run)
        return bar(part) + f" <small>{number(time)} ns</small>"

    out = []
    if single:
        out.append(pivot("workload", single, both))
    for call, entries in by_backend.items():
        out.append(f"**{call}**\n\n" + pivot("workload", entries, both))
    if sweep:
        out.append(
            "**Against the number of steps**, nanoseconds per element\n\n"
            + pivot("steps", sweep, lambda run: number(run["ns/element"]))
        )
    if others:
        names = [
            n for n in dict.fromkeys(n for _, run in others for n in run) if n not in NOT_SHOWN
        ]
        rows = [
            (
                head,
                [
                    f"{number(run['time'])} {run['unit']}",
                    *(number(run[n]) if n in run else "" for n in names),
                ],
            )
            for head, run in others
        ]
        out.append(table("", ["time", *names], rows))
    return out


def of_rows(name, rows):
    kinds = {}  # a file may have rows of several kinds, each with its own columns
    for row in rows:
        kinds.setdefault(tuple(row), []).append(row)
    if len(kinds) > 1:
        return [table for same in kinds.values() for table in of_rows(name, same)]
    if name not in PIVOTS or not set(sum(PIVOTS[name][:2], ())) <= set(rows[0]):
        columns = [c for c in rows[0] if not isinstance(rows[0][c], (dict, list))]
        return [
            table(
                columns[0],
                columns[1:],
                [(r[columns[0]], [number(r[c]) for c in columns[1:]]) for r in rows],
            )
        ]
    row_keys, column_keys, value = PIVOTS[name]
    if "steps" in rows[0] and "steps" not in row_keys:
        most = max(r["steps"] for r in rows)
        rows = [r for r in rows if r["steps"] == most]

    def named(row, keys):
        words = [f"{row[k]} {k}" if k == "layers" else row[k] for k in keys]
        return words[0] if len(words) == 1 else ", ".join(str(w) for w in words)

    out = []
    for case in dict.fromkeys(r.get("case") for r in rows):
        entries = {
            (named(r, row_keys), named(r, column_keys)): r[value]
            for r in rows
            if r.get("case") == case
        }
        head = f"**{case}**\n\n" if case else ""
        out.append(head + pivot(row_keys[0] if len(row_keys) == 1 else "", entries, number))
    return out


def of_phases(phases):
    entries = {
        (
            f"{p['name']}, {p['call']}",
            f"{p['processes']} processes" if p["processes"] > 1 else "1 process",
        ): f"{p['whole_by_alone']:.2f} <small>{number(1e3 * p['whole'])} ms</small>"
        for p in phases
        if p["name"] != "fold"
    }
    return [pivot("", entries, str)]


def provenance(context):
    words = [context.get("machine", "machine not named")]
    words += [
        f"{label} {context[key]}"
        for key, label in (
            ("compiler", "compiler"),
            ("mpi", ""),
            ("jax", "JAX"),
            ("torch", "PyTorch"),
            ("driver", "driver"),
        )
        if key in context
    ]
    words += [f"measured {context['date'][:10]}"] if "date" in context else []
    words += [f"commit `{context['commit']}`"] if "commit" in context else []
    return "{.provenance}\n" + " · ".join(w.strip() for w in words) + "\n"


def write(root, out):
    results = root / "bench" / "results"
    pictures = sorted(p.name for p in results.glob("*.png"))
    files = {}
    for path in sorted(results.rglob("*.tsv")):
        stem = path.relative_to(results).with_suffix("").as_posix()
        key = next((k for k in RECORDS if stem == k or stem.startswith(k + "-")), stem)
        files.setdefault(key, []).append(path)
    lines = [
        "# Measured figures\n",
        "Tables are made from [bench/results](/bench/results/README.md) when this page is built. "
        "[Tuning](/docs/tuning.md#benchmarks) says what the columns mean. A full bar means that a call is at least as fast "
        "as its baseline: for selective scans the same arithmetic without the recurrence, for linear attention as many "
        "multiply-adds on registers, otherwise a copy of the same arrays.\n",
    ]
    for key in [*(k for k in RECORDS if k in files), *(k for k in files if k not in RECORDS)]:
        title, about, beginnings = RECORDS.get(key, (key, "", ()))
        lines += [f"## {title}\n", about + "\n"]
        for path in files[key]:
            context, rows = read(path)
            if "unit" in rows[0]:
                tables = of_benchmarks(rows)
            elif "processes" in rows[0]:
                tables = of_phases(rows)
            else:
                tables = of_rows(key, rows)
            lines += [provenance(context), *tables]
        for name in [p for p in pictures if p.startswith(beginnings)] if beginnings else []:
            lines.append(
                f"![{name.removesuffix('.png').replace('_', ' ')}](/bench/results/{name})\n"
            )
            pictures.remove(name)
    if pictures:
        lines.append("## Further pictures\n")
        lines += [
            f"![{name.removesuffix('.png').replace('_', ' ')}](/bench/results/{name})\n"
            for name in pictures
        ]
    (out / "figures.md").write_text("\n".join(lines), encoding="utf-8")
