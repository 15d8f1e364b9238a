#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print, write and draw the report of a run.

The results are a folder with JSON files or archives of stages, or a JSON file of bench/results/gpu.
--save writes such a file first."""

import argparse
import contextlib
import io
import json
import pathlib
import sys
import tarfile
import tempfile

from results import (
    DEFAULT,
    FRACTIONS,
    NODES,
    SPEEDUPS,
    compact,
    file_name_of,
    merged,
    read_results,
    variants_of,
    verdicts_of,
    workloads_of,
)

try:
    import draw
except ImportError as error:
    draw, WITHOUT_PICTURES = None, str(error)

SAVED = pathlib.Path(__file__).resolve().parents[1] / "results" / "gpu"


def verdict(met, context):
    return "not judged: quick" if context.get("quick") == "yes" else "met" if met else "missed"


def judged(rows, context):
    """A line per target: workload, call, target, measured value, verdict."""

    def value(workload, call, key):
        return rows.get((workload, DEFAULT, call), {}).get(key)

    def line(workload, call, asked, measured, text, least=None, most=None):
        if measured is None:
            return [workload, call, asked, "-", "not measured"]
        met = (least is None or measured >= least) and (most is None or measured <= most)
        return [workload, call, asked, text.format(measured), verdict(met, context)]

    lines = []
    for workload, calls in FRACTIONS.items():
        for call, target in calls.items():
            lines.append(
                line(
                    workload,
                    call,
                    f"{target:.2f} of the twin",
                    value(workload, call, "fraction_of_twin"),
                    "{:.3f}",
                    target,
                )
            )
    for (workload, call, peer), target in SPEEDUPS.items():
        own = value(workload, call, "ms")
        others = [
            row["ms"]
            for (w, v, c), row in rows.items()
            if (w, c) == (workload, call) and v.startswith(peer) and "ms" in row
        ]
        lines.append(
            line(
                workload,
                call,
                f"{target:g}x {peer}",
                min(others) / own if own and others else None,
                "{:.2f}x",
                target,
            )
        )
    for (workload, call), target in NODES.items():
        lines.append(
            line(
                workload,
                call,
                f"{target} kernel, no memset",
                value(workload, call, "nodes"),
                "{:.0f}",
                most=target,
            )
        )
    return lines


def table_of(rows, context, workload):
    lines = []
    for variant in variants_of(rows, workload):
        for (w, v, call), row in rows.items():
            if (w, v) != (workload, variant):
                continue
            if "ms" not in row:
                lines.append([variant, call] + [""] * 7 + [row["error_message"]])
                continue

            def number(key, text, row=row):
                return text.format(row[key]) if key in row else ""

            target = FRACTIONS.get(workload, {}).get(call) if variant == DEFAULT else None
            notes = (
                [f"{target:.2f}: " + verdict(row["fraction_of_twin"] >= target, context)]
                if target and "fraction_of_twin" in row
                else []
            )
            notes += [
                f"{name} {row[key]:.2f} us a call"
                for name, key in (("queued", "queued_us"), ("in a graph", "graph_us"))
                if key in row
            ]
            notes += [row["label"]] if variant == "streaming_twin" and row.get("label") else []
            lines.append(
                [
                    variant,
                    call,
                    f"{row['ms']:.4f}",
                    number("GB/s", "{:.0f}"),
                    number("fraction_of_copy", "{:.3f}"),
                    number("fraction_of_twin", "{:.3f}"),
                    number("spread", "{:.1%}"),
                    number("nodes", "{:.0f}"),
                    number("largest_difference", "{:.1e}"),
                    "; ".join(notes),
                ]
            )
    return lines


def markdown(heads, lines, left):
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(w) if i in left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths))
        )
        + " |\n"
        for line in [heads, rule, *lines]
    )


def report_of(context, rows):
    facts = [
        f"{key} {context[key]}"
        for key in ("gpu", "driver", "driver_cuda", "compiler", "commit", "torch", "jax", "date")
        if key in context
    ]
    text = "# Scans on a GPU\n\n" + "; ".join(facts) + "\n"
    text += (
        f"\n## Targets\n\nThe targets were set for an H200; here they are judged on "
        f"{context.get('gpu', 'an unknown GPU')}, as fractions of its own twin.\n\n"
    )
    text += markdown(
        ["workload", "call", "target", "measured", "verdict"], judged(rows, context), (0, 1, 2, 4)
    )
    for workload in workloads_of(rows):
        lines = table_of(rows, context, workload)
        heads = [
            "variant",
            "call",
            "ms",
            "GB/s",
            "of copy",
            "of twin",
            "spread",
            "nodes",
            "difference",
            "notes",
        ]
        text += f"\n## {workload}\n\n" + markdown(heads, lines, (0, 1, len(heads) - 1))
    return text


def measured(path):
    """Read results. Raise ValueError if no row was measured."""
    context, rows = read_results(path)
    if not any("ms" in row for row in rows.values()):
        raise ValueError(f"{path}: no row was measured")
    return context, rows


def write_report(path, where=None):
    """Print the report of a folder or of a saved file, and write and draw it in `where`."""
    context, rows = measured(path)
    where = where or (path.parent / path.stem if path.is_file() else path)
    where.mkdir(parents=True, exist_ok=True)
    text = report_of(context, rows)
    (where / "report.md").write_text(text)
    print(text, end="")
    if draw:
        draw.draw_all(context, rows, where)
    else:
        print(f"no pictures: {WITHOUT_PICTURES}")


def save(folder, where=SAVED):
    """Write the results of a run as one file. Returns its path."""
    if folder.is_file():
        raise ValueError(f"--save: expected a folder with the results of a run, got {folder}")
    context, rows = measured(folder)
    where.mkdir(parents=True, exist_ok=True)
    path = where / file_name_of(context)
    path.write_text(compact(context, rows, verdicts_of(folder)))
    return path


def check_self():
    """Check the report of made-up rows."""

    def row(name, ms, **more):
        return {
            "name": f"{name}/iterations:1/manual_time",
            "run_type": "iteration",
            "real_time": ms,
            "time_unit": "ms",
            "elements": 8.0,
            "label": "twin 2R+1W",
            **more,
        }

    absent = {"error_occurred": True, "error_message": "torch does not import"}
    ours = [
        row("channels_last/device_copy/copy", 1.0, fraction_of_twin=1.0),
        row("channels_last/streaming_twin/forward", 1.5, fraction_of_twin=1.0),
        row(
            "channels_last/automatic/forward",
            1.6,
            fraction_of_twin=0.94,
            spread=0.01,
            **{"GB/s": 2900.0, "fraction_of_copy": 0.91, "copy_GB/s": 3187.0},
        ),
        row("channels_last/automatic/vjp", 3.0, fraction_of_twin=0.85, nodes=1.0),
        row("small/automatic/forward", 0.01, fraction_of_twin=0.5, nodes=1.0, graph_us=2.5),
        row("one_sequence/automatic/forward", 1.0, fraction_of_twin=0.9),
        row("one_sequence/cub_pairs/forward", 1.9, fraction_of_twin=0.47),
    ]
    peers = [
        row("channels_last/torch.associative_scan/forward", 15.0),
        {"name": "channels_last/lax.scan/forward", **absent},
        {"name": "channels_last/no_time/forward"},
        {"name": "incomplete"},
        row("channels_last/zero/forward", 0),
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        of_one = {"gpu": "A GPU", "quick": "no", "date": "2030-01-02T03:04:05"}
        text = json.dumps({"context": of_one, "benchmarks": ours})
        # The second file is cut inside a row, the third is empty, and a row lacks its time.
        with tarfile.open(folder / "first.tar.gz", "w:gz") as packed:
            for file, data in (
                ("a.json", text),
                ("b.json", text[: text.rindex("real_time") + 14].replace("0.94", "0.95")),
                ("c.json", ""),
            ):
                about = tarfile.TarInfo(f"rows/{file}")
                about.size = len(data)
                packed.addfile(about, io.BytesIO(data.encode()))
        (folder / "peers.json").write_text(json.dumps({"context": of_one, "benchmarks": peers}))
        (folder / "first.json").write_text(
            json.dumps(
                {
                    "stage": "first",
                    "results": [
                        {"item": "battery float", "test": "x", "verdict": "PASS"},
                        {"item": "battery float", "test": "y", "verdict": "FAIL"},
                    ],
                }
            )
        )
        (folder / "second.json").write_text('{"results": [')
        (folder / "second.tar.gz").write_bytes((folder / "first.tar.gz").read_bytes()[:100])
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as warned,
        ):
            saved = save(folder, folder / "saved")
            write_report(saved, folder)
        assert saved.name == "a-gpu-2030-01-02.json", saved
        kept = json.loads(saved.read_text())
        assert kept["verdicts"] == {"battery float": "FAIL"} and kept["context"] == of_one, kept
        for text in (
            "second.json is skipped",
            "rest of second.tar.gz",
            "c.json is skipped",
            "no_time",
            "incomplete",
            "expected a positive number",
        ):
            assert text in warned.getvalue(), (text, warned.getvalue())
        with contextlib.redirect_stderr(warned):
            assert report_of(*read_results(saved)) == report_of(*read_results(folder))
        for refused, expected in (
            (lambda: merged(of_one, {"gpu": "another GPU"}), "another GPU"),
            (lambda: save(saved, folder / "saved"), "expected a folder"),
            (lambda: save(folder / "saved/none"), "no row was measured"),
        ):
            try:
                refused()
                raise AssertionError("expected a ValueError: " + expected)
            except ValueError as error:
                assert expected in str(error), error
        assert "| automatic" in printed.getvalue() and "0.910 |   0.950" in printed.getvalue()
        with contextlib.redirect_stderr(warned):
            context, rows = read_results(folder)
        verdicts = {
            (w, call, asked.split()[-1]): said for w, call, asked, _, said in judged(rows, context)
        }
        for key, said in (
            (("channels_last", "forward", "twin"), "met"),
            (("channels_last", "vjp", "twin"), "missed"),
            (("small", "forward", "memset"), "met"),
            (("small", "vjp", "memset"), "not measured"),
            (("one_sequence", "forward", "cub_pairs"), "missed"),
        ):
            assert verdicts[key] == said, (key, verdicts[key])
        assert (
            abs(
                rows["channels_last", "torch.associative_scan", "forward"]["fraction_of_twin"] - 0.1
            )
            < 1e-9
        )
        text = (folder / "report.md").read_text()
        assert "torch does not import" in text and "in a graph 2.50 us" in text
        if draw:  # A report of one row has no picture of times.
            key = "channels_last", "automatic", "forward"
            with contextlib.redirect_stdout(printed):
                draw.draw_all(context, {key: rows[key]}, folder / "saved")
        pictures = sorted(path.name for path in folder.glob("*.png"))
        assert pictures == (["forward_times.png", "fraction_of_twin.png"] if draw else []), pictures
    print(
        "the report of made-up rows is right"
        + ("" if draw else f", without pictures: {WITHOUT_PICTURES}")
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("results", type=pathlib.Path, nargs="?", help="a folder or a saved file")
    what.add_argument("--self-check", action="store_true", help="report made-up rows instead")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write bench/results/gpu/<card>-<date>.json of the folder first",
    )
    arguments = parser.parse_args()
    try:
        if arguments.self_check:
            check_self()
        elif arguments.save:
            saved = save(arguments.results)
            write_report(saved)
            print(f"saved: {saved}")
        else:
            write_report(arguments.results)
    except (OSError, ValueError) as error:
        sys.exit(f"report.py: {error}")


if __name__ == "__main__":
    main()
