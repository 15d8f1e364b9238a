#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of model.py: every way of telling states is played through, message by message, and must
end with all parts before a process, in order, by as many messages and operations as are counted."""

import dataclasses
import math

import model


class Process:
    """Counts what it receives and does. A map is the run of parts it stands for: (from, to)."""

    def __init__(self, place):
        self.own, self.received, self.combines, self.acts = (place, place + 1), 0, 0, 0

    def combine(self, earlier, later):
        assert earlier[1] == later[0], (earlier, later)
        self.combines += 1
        return earlier[0], later[1]

    def fold(self, state, maps):
        """A state is the parts that it has been through."""
        for begin, end in maps:
            assert state == begin, (state, begin)
            state = end
            self.acts += 1
        return state


def gather(processes, members):
    """Bruck: in each round a process doubles what it has of those behind it in a circle."""
    have = {p: [processes[p].own] for p in members}
    return spread(processes, members, have)


def spread(processes, members, have):
    rounds, distance, n = 0, 1, len(members)
    while distance < n:
        sent = {p: list(maps) for p, maps in have.items()}
        for i, p in enumerate(members):
            news = sent[members[(i + distance) % n]][: n - len(have[p])]
            have[p] = have[p] + news
            processes[p].received += len(news)
        rounds, distance = rounds + 1, 2 * distance
    return rounds, {p: sorted(maps) for p, maps in have.items()}


def play_gather(processes):
    P = len(processes)
    rounds, have = gather(processes, range(P))
    for p, process in enumerate(processes):
        # As the library: every process folds all but the last, to learn where states are finite.
        assert process.fold(0, have[p][:-1]) == P - 1
    return rounds


def play_ring(processes):
    P = len(processes)
    have = [[process.own] for process in processes]
    for _ in range(P - 1):
        last = [maps[-1] for maps in have]
        for p, process in enumerate(processes):
            have[p].append(last[p - 1])
            process.received += 1
    for process, maps in zip(processes, have):
        assert process.fold(0, sorted(maps)[:-1]) == P - 1
    return P - 1


def play_two_levels(processes, group):
    P = len(processes)
    inner, maps, together = 0, {}, {}
    for first in range(0, P, group):
        rounds, have = gather(processes, range(first, min(first + group, P)))
        inner, maps = max(inner, rounds), {**maps, **have}
    for p, process in enumerate(processes):
        whole = maps[p][0]
        for later in maps[p][1:]:
            whole = process.combine(whole, later)
        together[p] = [whole]
    outer = 0
    for place in range(group):
        members = range(place, P, group)
        rounds, have = spread(processes, members, {p: together[p] for p in members})
        outer = max(outer, rounds)
        for p, groups_maps in have.items():
            state = processes[p].fold(0, groups_maps[: p // group])
            assert processes[p].fold(state, maps[p][:place]) == p
    return inner + outer


def play_doubling(processes):
    P = len(processes)
    have = [None] + [process.own for process in processes[:-1]]
    for process in processes[1:]:
        process.received += 1
    rounds, distance = 1, 1
    while distance < P - 1:
        before = list(have)
        for p in range(1 + distance, P):
            have[p] = processes[p].combine(before[p - distance], before[p])
            processes[p].received += 1
        rounds, distance = rounds + 1, 2 * distance
    assert have[1:] == [(0, p) for p in range(1, P)]
    return rounds


def play_exscan(processes):
    P = len(processes)
    total, result = [process.own for process in processes], [None] * P
    rounds, distance = 0, 1
    while distance < P:
        before = list(total)
        for p, process in enumerate(processes):
            other = p ^ distance
            if other >= P:
                continue
            process.received += 1
            if other < p:
                found = result[p]
                result[p] = process.combine(before[other], found) if found else before[other]
            if 2 * distance < P:  # nobody asks for the total of all
                total[p] = process.combine(before[min(p, other)], before[max(p, other)])
        rounds, distance = rounds + 1, 2 * distance
    assert result[1:] == [(0, p) for p in range(1, P)]
    return rounds


def play_chain(processes):
    so_far = processes[0].own
    for process in processes[1:]:
        process.received += 1
        so_far = process.combine(so_far, process.own)
    return len(processes) - 1


def check_counts():
    plays = {
        "gather": play_gather,
        "ring": play_ring,
        "doubling": play_doubling,
        "exscan": play_exscan,
    }
    for P in range(2, 34):
        for way, play in plays.items():
            processes = [Process(p) for p in range(P)]
            counted, rounds = model.counts(way, P), play(processes)
            assert counted.rounds == rounds, (way, P, rounds)
            assert counted.maps == max(p.received for p in processes), (way, P)
            assert counted.acts == max(p.acts for p in processes), (way, P)
            # Where P is no power of two, nobody has all that is counted to do.
            combines = max(p.combines for p in processes)
            assert counted.combines == combines or way == "exscan" and P & (P - 1), (way, P)
            assert counted.combines >= combines, (way, P)
        processes = [Process(p) for p in range(P)]
        assert play_chain(processes) == model.counts("chain", P).rounds
        assert sum(p.combines for p in processes) == model.counts("chain", P).combines
        for group in model.groups(P):
            if P % group:
                continue  # of incomplete groups the model counts the complete ones
            processes = [Process(p) for p in range(P)]
            counted = model.counts("two_levels", P, group)
            rounds = play_two_levels(processes, group)
            assert counted.rounds == rounds, (P, group)
            assert counted.maps == max(p.received for p in processes), (P, group)
            assert counted.acts == max(p.acts for p in processes), (P, group)
            assert counted.combines == max(p.combines for p in processes), (P, group)


def check_times():
    machine = model.Machine(
        latency=3.0, bandwidth=2.0, start=5.0, memory=7.0, act=0.25, combine=0.5, map=0.125
    )
    call = model.Call(
        lanes=2, steps=12, element=1, map_bytes=4, walk_arrays=3, summary_arrays=5, check_bytes=6
    )
    one = model.phases(machine, call, 1, "gather")
    assert one == {"check": 0.0, "parts": 3 * 2 * 12 / 7, "exchange": 0.0, "walk": 0.0}
    two = model.phases(machine, call, 2, "gather")
    assert two["parts"] == two["walk"] == 3 * 2 * 6 / 7  # of two parts none is summarised
    assert two["check"] == 5 + 3 + 6 / 2
    assert two["exchange"] == 5 + 3 + 8 / 2 + 0.125 + 2 * 0.25
    four = model.phases(machine, call, 4, "gather")
    assert four["parts"] == 5 * 2 * 3 / 7 and four["walk"] == 3 * 2 * 3 / 7
    assert four["exchange"] == 5 + 2 * 3 + 3 * 8 / 2 + 3 * (0.125 + 2 * 0.25)
    assert model.total(machine, call, 4, "gather") == sum(four.values())
    reduce = 5 + 2 * (3 + 8 / 2)
    levels = model.exchange(machine, call, 4, "two_levels")
    assert levels == 2 * 5 + 2 * 3 + 2 * 8 / 2 + 3 * 0.125 + 2 * (2 * 0.25 + 0.5) + reduce
    assert model.exchange(machine, call, 2, "two_levels") == math.inf
    assert (
        model.phases(machine, dataclasses.replace(call, steps=13), 4, "ring")["walk"]
        == 3 * 2 * 4 / 7
    )  # the longest part counts


def check_crossovers():
    machine = model.Machine()
    for P in (4, 64, 4096):
        # Both times are a straight line over lanes, so where they meet is known.
        gather, doubling = model.counts("gather", P), model.counts("doubling", P)
        at = [
            model.time_of(machine, model.Call(lanes=lanes), P, n)
            for n in (gather, doubling)
            for lanes in (0, 1)
        ]
        meet = (at[2] - at[0]) / ((at[1] - at[0]) - (at[3] - at[2])) * 16
        found = model.bytes_from(machine, P, "doubling", "gather")
        assert abs(found / meet - 1) < 1e-9, (P, found, meet)
    for way, other in model.PAIRS:
        for lanes in model.LANES:
            call = model.Call(lanes=lanes)
            P = model.processes_from(machine, call, way, other)
            for n in (1 << k for k in range(1, 17)):
                faster = model.exchange(machine, call, n, way) < model.exchange(
                    machine, call, n, other
                )
                assert faster or P is None or n < P, (way, other, lanes, n)
                assert not faster or n != (P or 0) // 2, (way, other, lanes, n)
    # Groups of about sqrt(P): no other size is better, and with bytes alone that is the best.
    bytes_alone = model.Machine(latency=0, start=0, act=0, combine=0, map=0)
    assert model.best_group(bytes_alone, model.Call(), 4096) == 64
    assert model.bytes_from(bytes_alone, 4096, "gather", "doubling") is None


def main():
    check_counts()
    check_times()
    check_crossovers()
    print("model.py: right")


if __name__ == "__main__":
    main()
