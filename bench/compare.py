# SPDX-License-Identifier: BSD-3-Clause
"""Run the rows (measured calls) of two builds side by side, and report which became slower.

Called by scripts/compare. Both builds, the base and the head, are loaded into one process and use the same
buffers, so memory pages and clock speed are the same for both. A round runs a row of both builds in the order
A B B A or B A A B. The ratio of a round is the base's shorter time divided by the head's: above 1 the head is
faster. The rounds are divided among several layouts of the same code (compare_layout.cpp), since a kernel may
by chance get addresses that the processor handles badly. Rows of Python calls are measured beforehand, in
separate processes (--python-runs).
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import pathlib
import re
import statistics
import sys
import time

SLOWER = 0.95  # a row is slower if its median is below this and no round reaches 1
SAMPLE = 0.02  # seconds that one sample should take
COMPARED = 1 << 28  # at most this many bytes of each buffer are compared
KEPT = 1 << 31  # buffers of more bytes in total are released after their row
#: For some benchmarks, a regular expression of the rows to run. Matrix products dominate the other rows of s5.
#: Most rows of linear_attention with one thread add little to those with all threads.
SELECTED = {
    "s5": "^scan/",
    "linear_attention": r"^(\w+(?<!one_thread)|(d128|one_step)_one_thread)/",
}

provider_type = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
measured_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclasses.dataclass
class Row:
    name: str
    ratios: list[float]  # per round
    seconds: float | None = None  # per call of the head
    bits: str = ""

    @property
    def median(self):
        return statistics.median(self.ratios)

    @property
    def slower(self):
        return self.median < SLOWER and max(self.ratios) < 1


class RefusedError(Exception):
    """A build refuses the arguments of a row: its headers are older than the call."""

    def __init__(self, module):
        super().__init__()
        self.module = module


class Module:
    """One benchmark of one build (see compare_module.cpp)."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        signatures = {
            "compare_rows": (ctypes.c_int64,),
            "compare_name": (ctypes.c_char_p, ctypes.c_int64),
            "compare_run": (None, ctypes.c_int64, provider_type, measured_type),
            "compare_seconds": (ctypes.c_double, ctypes.c_void_p, ctypes.c_int64),
            "compare_buffer": (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t),
            "compare_release": (None,),
        }
        for name, (result, *arguments) in signatures.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        rows = range(self.library.compare_rows())
        self.rows = {self.library.compare_name(i).decode(): i for i in rows}

    def run(self, row, provider, body):
        """Call body(f), where f(calls) runs the row's kernel `calls` times and returns the total seconds."""
        failed = []

        def measured(kernel):
            def seconds(calls):
                took = self.library.compare_seconds(kernel, calls)
                if took < 0:
                    raise RefusedError(self)
                return took

            try:
                body(seconds)
            except BaseException as error:  # must not propagate through C++ frames
                failed.append(error)

        self.library.compare_run(self.rows[row], provider, measured_type(measured))
        if failed:
            raise failed[0]


class Buffers:
    """The buffers of one row, shared by both builds: one buffer per role."""

    def __init__(self, module):
        self.library = module.library
        self.provided = {}  # role: (address, bytes)
        self.provide = provider_type(self.get)

    def get(self, role, size):
        address = self.library.compare_buffer(role, size)
        self.provided[role] = (address, max(size, self.provided.get(role, (0, 0))[1]))
        return address

    def bits(self):
        return {
            role: ctypes.string_at(at, min(n, COMPARED)) for role, (at, n) in self.provided.items()
        }

    def release(self):
        """Release the buffers unless they are small enough to keep for the next row."""
        if sum(n for _, n in self.provided.values()) > KEPT:
            self.library.compare_release()
        self.provided.clear()


def measure(name, layouts, buffers, rounds):
    """Measure a row. `layouts` holds a pair of modules (base, head) for each code layout."""
    row = Row(name, [])
    took = []

    def with_base(of_base):
        of_base(1)
        bits = buffers.bits() if not row.bits else None

        def with_head(of_head):
            of_head(1)
            if bits is not None:
                row.bits = "same" if bits == buffers.bits() else "differ"
                bits.clear()
            once = max(min(of_base(1), of_head(1)), 1e-8)
            calls = max(1, round(SAMPLE / once))
            of_base(calls), of_head(calls)
            for i in mine:
                pair = [of_base, of_head] if i % 2 == 0 else [of_head, of_base]
                times = {of_base: [], of_head: []}
                for which in (*pair, *reversed(pair)):
                    times[which].append(which(calls))
                # Other load on the machine can only add time.
                row.ratios.append(min(times[of_base]) / min(times[of_head]))
                took.append(min(times[of_head]) / calls)

        head.run(name, buffers.provide, with_head)

    for round_index, (base, head) in enumerate(layouts):  # noqa: B007 (with_base runs head)
        mine = range(round_index, rounds, len(layouts))
        base.run(name, buffers.provide, with_base)
    row.seconds = statistics.median(took)
    return row


def pair_up(before, after):
    """Compare runs in separate processes. `before` and `after` are lists with {row: milliseconds} per run."""
    rows = []
    for name in before[0]:
        if all(name in run for run in (*before, *after)):
            ratios = [b[name] / a[name] for b, a in zip(before, after)]
            rows.append(Row(name, ratios, statistics.median(a[name] for a in after) * 1e-3))
    return rows


def rows_of_json(path, pattern):
    """{row: milliseconds} from a file written by bench/python/throughput.py."""
    rows = json.loads(path.read_text())["rows"]
    named = {f"python/{r['case']}/{r['way']}/{r['what']}/{r['outputs']}": r for r in rows}
    return {n: r["milliseconds"] for n, r in named.items() if re.search(pattern, n)}


def in_words(seconds):
    units = ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)
    unit, size = next((of for of in units if seconds >= of[1]), units[-1])
    return f"{seconds / size:.3g} {unit}"


def table(rows):
    width = max([len(r.name) for r in rows] + [3])
    lines = [f"{'row':{width}}  {'speed':>6}  {'spread':>13}  {'head takes':>10}  bits"]
    for r in rows:
        spread = f"{min(r.ratios):.3f}-{max(r.ratios):.3f}"
        mark = "  <- slower" if r.slower else ""
        lines.append(
            f"{r.name:{width}}  {r.median:6.3f}  {spread:>13}  {in_words(r.seconds):>10}"
            f"  {r.bits}{mark}".rstrip()
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=pathlib.Path, help="folder of the base's modules")
    parser.add_argument("head", type=pathlib.Path, help="folder of the head's modules")
    parser.add_argument("--title", default="")
    parser.add_argument("--rows", default="", help="regular expression that selects rows")
    parser.add_argument("--benchmarks", nargs="*", default=[], help="names of modules")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--python-runs", nargs="*", type=pathlib.Path, default=[],
                        help="results of throughput.py: base, head, head, base, ...")  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, help="path of the table, without a suffix")
    args = parser.parse_args()

    begun = time.time()
    rows, missing = [], []
    for name in args.benchmarks:
        layouts = [
            (Module(args.base / path.name), Module(path))
            for path in sorted(args.head.glob(f"compare_{name}_?.so"))
        ]
        if not layouts:
            sys.exit(f"{args.head}: no compare_{name}_0.so")
        base, head = layouts[0]
        buffers = Buffers(head)
        wanted = [r for r in head.rows if re.search(args.rows, f"{name}/{r}")]
        wanted = [r for r in wanted if re.search(SELECTED.get(name, ""), r)]
        missing += [f"{name}/{r}" for r in wanted if r not in base.rows]
        for r in wanted:
            if r in base.rows:
                try:
                    row = measure(r, layouts, buffers, args.rounds)
                except RefusedError as error:
                    if any(error.module is head for _, head in layouts):
                        sys.exit(f"{name}/{r}: the head refuses this call")
                    missing.append(f"{name}/{r}")
                    continue
                finally:
                    buffers.release()
                row.name = f"{name}/{r}"
                rows.append(row)
                print(table([row]).splitlines()[1], file=sys.stderr, flush=True)
        head.library.compare_release()
    if args.python_runs:
        runs = [rows_of_json(path, args.rows) for path in args.python_runs]
        is_base = [i % 4 in (0, 3) for i in range(len(runs))]
        rows += pair_up([r for r, b in zip(runs, is_base) if b],
                        [r for r, b in zip(runs, is_base) if not b])  # fmt: skip
    if not rows:
        sys.exit(f"no row matches {args.rows!r}")

    slower = [r for r in rows if r.slower]
    text = [
        args.title,
        f"speed: seconds of the base / seconds of the head, median and range of {args.rounds} rounds",
        table(rows),
        *(f"{name}: only in the head" for name in missing),
        f"{len(rows)} rows in {time.time() - begun:.0f} s, {len(slower)} slower",
    ]
    text = "\n".join(line for line in text if line) + "\n"
    print(text, end="")
    if args.out:
        args.out.with_suffix(".txt").write_text(text)
        kept = [{**dataclasses.asdict(r), "slower": r.slower} for r in rows]
        args.out.with_suffix(".json").write_text(
            json.dumps({"title": args.title, "rows": kept}, indent=1) + "\n")  # fmt: skip
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
