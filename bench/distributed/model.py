#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A model of calls whose time is split over P processes: how long they take by each way of telling
the states between parts, and from where on one way is faster than another.

    T(P) = check + parts + exchange + walk        parts: the first is walked, others are summarised

A message takes latency + bytes / bandwidth, and a process receives one at a time. Ways:

    ring        all-gather, P - 1 rounds of one part's maps
    gather      all-gather in ceil(log2 P) rounds (recursive doubling, Bruck)
    two_levels  all-gather in groups of G, one map composed per group, all-gather between groups;
                G as is best, a power of two
    doubling    maps one part on, then Hillis and Steele: a collective-permute per round
    exscan      recursive doubling with a total and a result, as a good MPI_Exscan
    chain       from one part to the next, as a plain MPI_Exscan

Behind an all-gather every process finds by itself where states cease to be finite. Behind the
others that takes an all-reduce of a number, which is counted with them.
"""

import argparse
import dataclasses
import json
import math
import pathlib

WAYS = ("gather", "ring", "two_levels", "doubling", "exscan", "chain")
LANES = (1, 64, 4096, 65536)
LIMIT = 1 << 16  # processes; nobody looks beyond


@dataclasses.dataclass(frozen=True)
class Machine:
    """Of the network nothing is measured: what is common. What processors do is what
    bench_distributed and bench_distributed_fold found on one."""

    latency: float = 2e-6  # seconds a message takes, however short
    bandwidth: float = 12.5e9  # bytes/s between two processes
    start: float = 1e-6  # seconds a collective takes beside its messages
    memory: float = 20e9  # bytes/s that a process reads and writes when it walks
    act: float = 0.75e-9  # seconds that a lane's state takes to go through a map
    combine: float = 0.75e-9  # seconds that two maps of a lane take to become one
    map: float = 3e-9  # seconds beside that for all lanes of a part


@dataclasses.dataclass(frozen=True)
class Call:
    lanes: int = 1
    steps: int = 1 << 32
    element: int = 4  # bytes
    map_bytes: int = 16
    walk_arrays: float = 3  # read and written
    summary_arrays: float = 3  # as many as its time amounts to
    check_bytes: int = 72

    @property
    def bytes(self):
        """Of the maps of one part."""
        return self.lanes * self.map_bytes


@dataclasses.dataclass(frozen=True)
class Counts:
    """What lies on the way from the first message to the last state, of one process."""

    collectives: int
    rounds: int  # messages one after the other
    maps: int  # received, per lane
    acts: int
    combines: int
    reduces: int  # all-reduces of a number


def levels(n):
    """ceil(log2 n)."""
    return (n - 1).bit_length()


def counts(way, processes, group=None):
    P, R = processes, levels(processes)
    if P == 1:
        return Counts(0, 0, 0, 0, 0, 0)
    if way == "ring":
        return Counts(1, P - 1, P - 1, P - 1, 0, 0)
    if way == "gather":
        return Counts(1, R, P - 1, P - 1, 0, 0)
    if way == "two_levels":
        within, between = group - 1, -(-P // group) - 1
        return Counts(
            2, levels(group) + levels(between + 1), within + between, within + between, within, 1
        )
    if way == "doubling":
        inner = levels(P - 1)
        return Counts(1 + inner, 1 + inner, 1 + inner, 0, inner, 1)
    if way == "exscan":
        return Counts(1, R, R, 0, 2 * (R - 1), 1)
    if way == "chain":
        return Counts(1, P - 1, P - 1, 0, P - 1, 1)
    raise ValueError(f"no such way: {way}")


def reduce_time(machine, processes, size):
    """An all-reduce of few bytes."""
    if processes == 1:
        return 0.0
    return machine.start + levels(processes) * (machine.latency + size / machine.bandwidth)


def time_of(machine, call, processes, n):
    fold = (n.acts + n.combines) * machine.map
    fold += call.lanes * (n.acts * machine.act + n.combines * machine.combine)
    return (
        n.collectives * machine.start
        + n.rounds * machine.latency
        + n.maps * call.bytes / machine.bandwidth
        + fold
        + n.reduces * reduce_time(machine, processes, 8)
    )


def groups(processes):
    """Sizes of groups that are neither one process nor all of them."""
    return [1 << k for k in range(1, levels(processes)) if 1 << k < processes]


def best_group(machine, call, processes):
    """The size of groups with which two levels take least; None where there are none."""
    return min(
        groups(processes),
        default=None,
        key=lambda g: time_of(machine, call, processes, counts("two_levels", processes, g)),
    )


def exchange(machine, call, processes, way):
    """Seconds from maps to states; infinite for two levels of fewer than three processes."""
    group = best_group(machine, call, processes) if way == "two_levels" else None
    if way == "two_levels" and group is None and processes > 1:
        return math.inf
    return time_of(machine, call, processes, counts(way, processes, group))


def phases(machine, call, processes, way):
    """Seconds of check, parts, exchange and walk."""
    steps = -(-call.steps // processes)
    walk, summary = (
        arrays * call.element * call.lanes * steps / machine.memory
        for arrays in (call.walk_arrays, call.summary_arrays)
    )
    if processes == 1:
        return {"check": 0.0, "parts": walk, "exchange": 0.0, "walk": 0.0}
    # Of two parts none lies in between.
    return {
        "check": reduce_time(machine, processes, call.check_bytes),
        "parts": max(walk, summary) if processes > 2 else walk,
        "exchange": exchange(machine, call, processes, way),
        "walk": walk,
    }


def total(machine, call, processes, way):
    return sum(phases(machine, call, processes, way).values())


def with_lanes(call, lanes):
    """A call of as many elements."""
    return dataclasses.replace(
        call, lanes=lanes, steps=max(1, call.steps * call.lanes // max(1, round(lanes)))
    )


def processes_from(machine, call, way, other):
    """The number of processes, a power of two, from which on `way` is faster than `other`; None if
    it is not at LIMIT."""
    found = None
    P = LIMIT
    while P >= 2 and exchange(machine, call, P, way) < exchange(machine, call, P, other):
        found = P
        P //= 2
    return found


def bytes_from(machine, processes, way, other, call=Call()):
    """Bytes of one part's maps from which on `way` is faster than `other`; 0 if it always is, None
    if it is not for 1 GiB. By bisection, lanes being a real number here."""

    def faster(size):
        of = dataclasses.replace(call, lanes=size / call.map_bytes)
        return exchange(machine, of, processes, way) < exchange(machine, of, processes, other)

    few, many = 1e-3, float(1 << 30)
    if not faster(many):
        return None
    if faster(few):
        return 0.0
    for _ in range(100):
        middle = math.sqrt(few * many)
        few, many = (few, middle) if faster(middle) else (middle, many)
    return many


def measured(path, machine, call):
    """A machine and a call with what bench/distributed/run.sh found."""
    with open(path) as file:
        report = json.load(file)
    fold = sorted(report["fold"], key=lambda row: row["lanes"])
    act = fold[-1]["one_level"]["ns_per_map"] * 1e-9
    machine = dataclasses.replace(
        machine,
        act=act,
        combine=fold[-1]["doubling"]["ns_per_map"] * 1e-9,
        map=max(0.0, fold[0]["one_level"]["ns_per_map"] * 1e-9 - act),
    )
    alone = next(
        row
        for row in report["phases"]
        if row["processes"] == 1 and row["name"] == "64 lanes" and row["call"] == "forward"
    )
    elements = alone["lanes"] * alone["steps"]
    seconds = alone["seconds"]
    memory = call.walk_arrays * call.element * elements / seconds["alone"]
    summary = call.walk_arrays * seconds["alone_summary"] / seconds["alone"]
    return (
        dataclasses.replace(machine, memory=memory),
        dataclasses.replace(call, summary_arrays=summary),
    )


def print_times(machine, call, many):
    print(f"{call.lanes} lanes x {call.steps} steps: ms, and of that the exchange in us")
    print(f"{'processes':>9} {'perfect':>10}" + "".join(f" {way:>21}" for way in WAYS) + "  group")
    alone = total(machine, call, 1, "gather")
    for P in many:
        cells = []
        for way in WAYS:
            of = phases(machine, call, P, way)
            cells.append(
                f" {sum(of.values()) * 1e3:10.4g} {of['exchange'] * 1e6:10.4g}"
                if of["exchange"] < math.inf
                else f" {'-':>21}"
            )
        print(f"{P:9} {alone / P * 1e3:10.4g}{''.join(cells)}  {best_group(machine, call, P)}")
    print()


PAIRS = (
    ("doubling", "gather"),
    ("two_levels", "gather"),
    ("exscan", "gather"),
    ("doubling", "two_levels"),
)


def print_crossovers(machine, call):
    print("processes, a power of two, from which on the exchange is faster")
    print(f"{'':24}" + "".join(f" {lanes:>11}" for lanes in LANES) + "  lanes")
    for way, other in PAIRS:
        found = [processes_from(machine, with_lanes(call, lanes), way, other) for lanes in LANES]
        print(
            f"{way + ' than ' + other:24}"
            + "".join(f" {'never' if P is None else P:>11}" for P in found)
        )
    print("\nbytes of one part's maps (16 a lane) from which on it is faster")
    many = (4, 8, 16, 64, 256, 1024, 4096)
    print(f"{'':24}" + "".join(f" {P:>9}" for P in many) + "  processes")
    for way, other in PAIRS:
        found = [bytes_from(machine, P, way, other, call) for P in many]
        print(
            f"{way + ' than ' + other:24}"
            + "".join(f" {'never' if size is None else f'{size:.0f}':>9}" for size in found)
        )


INK, GREY = "#222222", "#8a8f98"
COLOURS = {
    "gather": "#1f6fb4",
    "ring": "#7fb2dd",
    "two_levels": "#5a9367",
    "doubling": "#d1495b",
    "exscan": "#e0a030",
    "chain": "#8e5ea2",
}
LABELS = {
    "gather": "all-gather, log2 P rounds",
    "ring": "all-gather, ring",
    "two_levels": "two levels",
    "doubling": "doubling",
    "exscan": "exclusive scan",
    "chain": "chain",
}


def caption(machine, call=None):
    walks = ""
    if call:
        walks = f"a summary as long as {call.summary_arrays / call.walk_arrays:.2g} walks, "
    network = (
        f"{machine.latency * 1e6:g} us and {machine.bandwidth * 1e-9:g} GB/s a message, "
        f"{machine.start * 1e6:g} us a collective"
    )
    return (
        f"model: {walks}{network}, {machine.memory * 1e-9:.3g} GB/s of memory, "
        f"{machine.act * 1e9:.2g} ns a map and lane"
    )


def finish(plt, figure, says, path):
    figure.text(0.99, 0.004, says, ha="right", va="bottom", fontsize=8, color=GREY)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(path)


def draw_times(plt, machine, call, path):
    """A panel per number of lanes: time of a call against processes."""
    many = [1 << k for k in range(13)]
    figure, panels = plt.subplots(2, 2, sharex=True, sharey=True, figsize=(10, 7.6))
    for lanes, axes in zip(LANES, panels.flat):
        of = with_lanes(call, lanes)
        alone = total(machine, of, 1, "gather")
        axes.loglog(
            many, [alone / P * 1e3 for P in many], ":", color=INK, lw=1.2, label="one process / P"
        )
        for way in WAYS[::-1]:
            times = [total(machine, of, P, way) * 1e3 for P in many]
            axes.loglog(
                many,
                [t if t < math.inf else math.nan for t in times],
                "-",
                color=COLOURS[way],
                lw=1.8,
                label=LABELS[way],
            )
        axes.set_xscale("log", base=2)
        axes.grid(color=GREY, alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(
            f"{lanes} lane{'s' if lanes > 1 else ''} of 2^{of.steps.bit_length() - 1} "
            f"steps: {of.bytes} bytes a part",
            loc="left",
            fontsize=10,
        )
    for axes in panels[1]:
        axes.set_xlabel("processes")
    for axes in panels[:, 0]:
        axes.set_ylabel("time of a call, ms")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(),
        frameon=False,
        ncol=7,
        fontsize=9,
        loc="lower left",
        bbox_to_anchor=(0.06, 0.025),
        columnspacing=1.2,
        handlelength=1.5,
    )
    figure.suptitle(
        "Time split over processes, by how the states between parts are told",
        x=0.07,
        ha="left",
        fontweight="bold",
    )
    figure.subplots_adjust(left=0.07, right=0.98, top=0.905, bottom=0.135, hspace=0.16, wspace=0.06)
    finish(plt, figure, caption(machine, call), path)


def draw_crossovers(plt, machine, path):
    """Who is fastest for so many processes and so many bytes, and what the all-gather loses."""
    many = [1 << k for k in range(2, 13)]
    sizes = [2.0 ** (4 + k / 8) for k in range(8 * 20 + 1)]
    figure, axes = plt.subplots(figsize=(8.4, 5.6))
    figure.subplots_adjust(left=0.1, right=0.97, top=0.92, bottom=0.14)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    loses = [
        [
            (
                exchange(machine, call, P, "gather")
                - min(exchange(machine, call, P, way) for way in WAYS)
            )
            * 1e3
            for P in many
        ]
        for call in (Call(lanes=size / 16) for size in sizes)
    ]
    wanted = [1e-2, 1e-1, 1.0, 10.0, 100.0]
    lines = axes.contour(
        many, sizes, loses, levels=wanted, colors=GREY, linewidths=0.9, linestyles="dotted"
    )
    at = 8  # of `many`, where the labels are
    places = [
        (many[at], next((size for size, row in zip(sizes, loses) if row[at] >= ms), sizes[-1]))
        for ms in wanted
    ]
    axes.clabel(lines, fmt=lambda ms: f"{ms:g} ms", fontsize=8, colors=GREY, manual=places)
    for way, other in PAIRS:
        levels_too = other == "two_levels"
        points = [(P, bytes_from(machine, P, way, other)) for P in many]
        points = [(P, max(size, sizes[0])) for P, size in points if size is not None]
        if points:
            axes.plot(
                *zip(*points),
                "--" if levels_too else "-",
                color=COLOURS[way],
                lw=1.8,
                label=LABELS[way] + (", than two levels" if levels_too else ""),
            )
    axes.plot([], [], ":", color=GREY, lw=0.9, label="what the all-gather loses")
    axes.set_xlim(many[0], many[-1])
    axes.set_ylim(sizes[0], sizes[-1])
    axes.set_yticks(
        [16 << k for k in range(0, 21, 4)], ["16 B", "256 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB"]
    )
    axes.set_xlabel("processes")
    axes.set_ylabel("bytes of one part's maps (16 a lane)")
    axes.grid(color=GREY, alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=True,
        edgecolor="white",
        framealpha=1,
        loc="lower left",
        fontsize=9,
        title="above: faster than the all-gather",
        title_fontsize=9,
        alignment="left",
    )
    axes.set_title("From where on another exchange is faster", loc="left", fontweight="bold")
    finish(plt, figure, caption(machine), path)


def draw(machine, call, directory):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(
        {"font.size": 10, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK}
    )
    draw_times(plt, machine, call, directory / "distributed_time.png")
    draw_crossovers(plt, machine, directory / "distributed_crossover.png")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    units = {
        "latency": "seconds of a message",
        "bandwidth": "bytes/s of a message",
        "start": "seconds of a collective",
        "memory": "bytes/s of a walk",
        "act": "seconds of a state and a map",
        "combine": "seconds of two maps",
        "map": "seconds of a part, whatever its lanes",
    }
    flags = {"latency": ["--alpha", "--latency"], "bandwidth": ["--beta", "--bandwidth"]}
    for name, unit in units.items():
        parser.add_argument(
            *flags.get(name, [f"--{name}"]),
            dest=name,
            type=float,
            help=f"{unit}; default {getattr(Machine, name):g}",
        )
    parser.add_argument("--lanes", type=int, nargs="+", default=LANES)
    parser.add_argument("--steps", type=int, help="of each lane; default: 2^32 elements in all")
    parser.add_argument("--processes", type=int, nargs="+", default=[1 << k for k in range(13)])
    parser.add_argument("--walk-arrays", type=float, default=Call.walk_arrays)
    parser.add_argument("--summary-arrays", type=float, help="as many as its time amounts to")
    parser.add_argument(
        "--measured",
        type=pathlib.Path,
        help="a file by run.sh: all that is not of the network as found there",
    )
    parser.add_argument("--draw", type=pathlib.Path, help="directory that receives the pictures")
    arguments = parser.parse_args()
    machine = Machine()
    call = Call(walk_arrays=arguments.walk_arrays)
    if arguments.measured:
        machine, call = measured(arguments.measured, machine, call)
    if arguments.summary_arrays:
        call = dataclasses.replace(call, summary_arrays=arguments.summary_arrays)
    given = {name: value for name in units if (value := getattr(arguments, name)) is not None}
    machine = dataclasses.replace(machine, **given)
    print(caption(machine, call) + "\n")
    for lanes in arguments.lanes:
        of = with_lanes(call, lanes)
        if arguments.steps:
            of = dataclasses.replace(of, steps=arguments.steps)
        print_times(machine, of, arguments.processes)
    print_crossovers(machine, call)
    if arguments.draw:
        draw(machine, call, arguments.draw)


if __name__ == "__main__":
    main()
