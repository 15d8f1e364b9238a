# SPDX-License-Identifier: BSD-3-Clause
"""The outcomes of items, and the summary of a stage within a limited number of characters."""

import functools
import os
import pathlib
import re
import textwrap
from dataclasses import dataclass

LONGEST_SUMMARY = 11_500  # characters
LONGEST_LOG = 1 << 15  # bytes kept at each end of a log
CUT = b"\n[... cut ...]\n"
PASS, FAIL, NOT_RUN = "PASS", "FAIL", "NOT RUN"
MOST_OF_LINE = 500  # characters of a line, so that regular expressions stay fast
MOST_FIGURES = 600  # characters of the rows and quoted lines of an item
CONTROL = {**dict.fromkeys([*range(32), *range(127, 160)], "?"), ord("\t"): " "}
# Lines without information.
IDLE = re.compile(r"^Filters:|Catch\d? v.* host application|^Run with -\? for options|^\W*$")
# Lines that the summary quotes in addition to the rows of benchmarks.
QUOTED = {
    "facts": r"^version: (.*)|release ([\d.]+)|^Version ([\d.]+)|^(NVIDIA.*MiB.*)|"
    r"Model name: +(.*)|^(CPU\(s\):.*)|^ldd.* ([\d.]+)$",
    "python": r"(\d+ (?:passed|failed|skipped).*?) =*$",
    "profiles": r"((?:gpu__time_duration\.sum|smsp__issue_active\.avg\.per_cycle_active|"
    r"dram_?_throughput\.avg\.pct|warps_active\.avg\.pct|registers_per_thread|"
    r"stalled_(?:long_scoreboard|barrier|wait)_per_issue_active\.ratio).*)",
}
ROW = re.compile(r"^([\w.]+)/([\w.]+)/(\w+) +(?:([\d.]+ ms) +\d+ GB/s +([\d.]+) of a copy|(\D.*))")


@dataclass
class Result:
    """The outcome of an item, or of one of its tests."""

    item: object
    test: str | None
    verdict: str
    why: str = ""
    begun: float = 0.0
    seconds: float = 0.0
    log: pathlib.Path | None = None

    @property
    def name(self):
        return f"{self.item.name}: {self.test.split(': ', 1)[-1]}" if self.test else self.item.name

    @functools.cached_property
    def lines(self):
        """The lines of the log, without the command and without lines that match IDLE."""
        lines = lines_of(self.log)[1:] if self.log else []
        return [" ".join(line.split()) for line in lines if not IDLE.search(line)]

    @functools.cached_property
    def figures(self):
        """Rows as "variant: call milliseconds fraction-of-a-copy, ...", and the quoted lines."""
        rows, found = {}, []
        for line in self.lines:
            row = ROW.search(line)
            if row and self.item.part in ("bench", "peers"):
                workload, variant, call, ms, fraction, instead = row.groups()
                name = variant if workload in self.item.name else f"{workload}/{variant}"
                instead = re.sub(r"^left out.*", "left out", instead or "")[:60]
                rows.setdefault(name, []).append(
                    f"{call} {ms} {float(fraction):.2f}" if ms else f"{call} {instead}"
                )
            elif quoted := re.search(QUOTED.get(self.item.part, "(?!)"), line):
                found.append(next(filter(None, quoted.groups()))[:110])
        return [f"{name}: {', '.join(calls)}" for name, calls in rows.items()] + found


def ends_of(path):
    """Read a log, but only the beginning and the end of a long one."""
    with path.open("rb") as log:
        size = os.fstat(log.fileno()).st_size
        if size <= 2 * LONGEST_LOG + len(CUT):
            return log.read()
        begin = log.read(LONGEST_LOG)
        log.seek(size - LONGEST_LOG)
        return begin + CUT + log.read(LONGEST_LOG)


def clean(text):
    """Cut a long line, and replace its control characters."""
    return text[:MOST_OF_LINE].translate(CONTROL)


def lines_of(log):
    return [clean(line) for line in ends_of(log).decode(errors="replace").splitlines()]


def quoted_of(result, most):
    """The first and the last lines of a failure's log."""
    lines = [line[:150] for line in result.lines]
    if len(lines) > most:
        lines = [*lines[: most // 2], "[...]", *lines[len(lines) - most // 2 :]] if most else []
    return ["         | " + line for line in lines]


def verdict_of(results):
    verdicts = [result.verdict for result in results]
    return next((verdict for verdict in (FAIL, NOT_RUN) if verdict in verdicts), PASS)


def summary_of(head, outcomes):
    """Format a summary with as much detail as LONGEST_SUMMARY allows."""

    def described(item, results, quotes, failures, figures):
        verdict = verdict_of(results)
        bad = [result for result in results if result.verdict == verdict != PASS]
        why = bad[0].why if bad else ""
        if len(results) > 1:
            why = f"{len(bad)} of {len(results)} tests: {why}" if bad else f"{len(results)} tests"
        ran = [result for result in results if result.seconds]
        seconds = (
            (
                max(result.begun + result.seconds for result in ran)
                - min(result.begun for result in ran)
            )
            if ran
            else 0
        )
        yield f"{verdict:7s}  {item.name[:36]:36s} {seconds:6.1f} s  {why[:60]}".rstrip()
        found = [text for result in results for text in result.figures] if figures else []
        if found:
            yield from textwrap.wrap(
                textwrap.shorten("; ".join(found), MOST_FIGURES),
                118,
                initial_indent=" " * 9,
                subsequent_indent=" " * 9,
            )
        if verdict == FAIL:
            for result in bad[:failures]:
                if result.test:
                    yield f"         FAIL {result.name.split(': ', 1)[1][:70]}: {result.why[:60]}"
                yield from quoted_of(result, quotes)

    text = ""
    for details in (
        (14, 12, True),
        (8, 8, True),
        (4, 5, True),
        (2, 3, True),
        (0, 3, True),
        (0, 0, True),
        (0, 0, False),
    ):
        text = (
            "\n".join(
                [
                    *head,
                    *(
                        line
                        for item, results in outcomes
                        for line in described(item, results, *details)
                    ),
                ]
            )
            + "\n"
        )
        if len(text) <= LONGEST_SUMMARY:
            return text
    return text[: LONGEST_SUMMARY - 10] + "\n[cut]\n"
