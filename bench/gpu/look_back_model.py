# SPDX-License-Identifier: BSD-3-Clause
"""A simulation of look_back: tiles that start in the order of their tickets, wait for messages of
earlier tiles, and share the instruction issue of their multiprocessor and the memory of the GPU.

machine_code.py counts how many instructions a tile takes and how long they stall. One tile alone
says little, because tiles wait for each other: for tickets, data, maps of earlier tiles and a
state. A tile that waits occupies the place of a resident block.
"""

import collections
import dataclasses
import heapq


@dataclasses.dataclass(frozen=True)
class Phase:
    """Work between two waits: clocks of a warp alone, and its instructions."""

    clocks: float
    instructions: float


@dataclasses.dataclass(frozen=True)
class Tile:
    """Parameters of the tiles of a workload."""

    begin: Phase  # from the ticket to the last load instruction
    compose: Phase  # from the data to the message with the map of the tile
    compose_span: Phase  # from the maps of the tiles before to their composition
    fold: float  # clocks for each span between the nearest state and the tile
    rest: Phase  # from the state before the tile to its end
    bytes_read: int
    bytes_written: int
    warps: int  # per block
    span: int  # tiles per span
    blocks: int  # per multiprocessor at a time
    sequences: int  # columns of tiles: each tile has one sequence or several
    tiles: int  # per sequence


class Multiprocessor:
    """Blocks whose warps share the issue slots. Where the demand exceeds the supply, all slow down
    equally."""

    def __init__(self, issued_per_clock):
        self.issued, self.now, self.version = issued_per_clock, 0.0, 0
        self.left, self.demand = {}, {}

    def speed(self):
        demand = sum(self.demand.values())
        return min(1.0, self.issued / demand) if demand > 0 else 1.0

    def advance(self, now):
        done = (now - self.now) * self.speed()
        self.left = {key: left - done for key, left in self.left.items()}
        self.now = now

    def add(self, key, clocks, instructions):
        self.left[key], self.demand[key] = clocks, instructions / clocks

    def next_end(self):
        return self.now + max(0.0, min(self.left.values())) / self.speed() if self.left else None

    def take_ended(self):
        ended = [key for key, left in self.left.items() if left < 1e-3]
        for key in ended:
            del self.left[key], self.demand[key]
        return ended


class Simulation:
    """All times are in clocks. A tile is a generator. It yields a Phase, a time at which it
    continues, or a message that must be sent before it continues."""

    def __init__(self, tile, gpu, number):
        self.tile, self.gpu, self.number = tile, gpu, number
        self.latency = gpu.latency * gpu.clock
        self.clocks_per_byte = gpu.clock / gpu.twin
        self.memory_free = 0.0
        self.sent = {}  # by message, when
        self.waiting = collections.defaultdict(list)  # by message, which generators
        self.events, self.order = [], 0
        self.next_ticket, self.ended = 0, []

    def at(self, time, what):
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what))

    def send(self, now, message):
        self.sent[message] = now
        for process in self.waiting.pop(message, []):
            self.at(now, process)

    def seen(self, now, message):
        """Whether a polling block sees the message at this time."""
        return message in self.sent and self.sent[message] + self.latency <= now

    def when(self, message):
        """The arrival time of a message or, if it has not been sent, the message."""
        return self.sent[message] + self.latency if message in self.sent else message

    def move(self, now, number_of_bytes):
        """Queues bytes; returns when they have been moved."""
        self.memory_free = max(self.memory_free, now) + number_of_bytes * self.clocks_per_byte
        return self.memory_free

    def process(self, ticket):
        """A tile from its start to its end. Every yield returns the current time."""
        tile = self.tile
        index, sequence = divmod(ticket, tile.sequences)
        now = yield None
        # The block is launched, and draws its ticket.
        now = yield now + self.gpu.launch * self.gpu.clock + self.latency
        now = yield tile.begin
        moved = self.move(now, tile.bytes_read)
        now = yield max(now + self.latency, moved)
        now = yield tile.compose
        span, place = divmod(index, tile.span)
        last = place == tile.span - 1
        self.send(now, ("map", sequence, index))
        if index == 0:
            self.send(now, ("state", sequence, 0))
        else:
            now = yield now + self.latency  # asks for messages
        for before in range(span * tile.span, index):
            while not self.seen(now, ("map", sequence, before)):
                now = yield self.when(("map", sequence, before))
        if place > 0:
            now = yield tile.compose_span
        if last:
            self.send(now, ("span", sequence, span + 1))
        if index > 0:
            spans, unseen = self.spans_to_fold(now, sequence, span)
            while unseen:
                now = yield self.when(unseen)
                spans, unseen = self.spans_to_fold(now, sequence, span)
            now = yield now + spans * tile.fold
        if last:
            self.send(now, ("state", sequence, span + 1))
        now = yield tile.rest
        self.ended.append(max(now, self.move(now, tile.bytes_written)))

    def spans_to_fold(self, now, sequence, span):
        """How many spans lie between the nearest known state and a span; and the first message on
        the way there that has not been seen, if any."""
        for spans, boundary in enumerate(range(span, -1, -1)):
            if self.seen(now, ("state", sequence, boundary)):
                return spans, None
            # The map of a span is sent before the state after it.
            message = ("span" if boundary else "state", sequence, boundary)
            if not self.seen(now, message):
                return spans, message
        raise AssertionError("the first state was seen, or not")

    def run(self):
        """Memory throughput in the steady state, as a fraction of the copy baseline's."""
        issued = self.gpu.schedulers * self.gpu.issue
        multiprocessors = [Multiprocessor(issued) for _ in range(self.gpu.multiprocessors)]
        for _ in range(self.tile.blocks):
            for multiprocessor in multiprocessors:
                self.start(0.0, multiprocessor)
        while self.events:
            now, _, what = heapq.heappop(self.events)
            if not isinstance(what[0], Multiprocessor):
                self.resume(now, what)
                continue
            multiprocessor, version = what
            if version == multiprocessor.version:  # else its blocks have changed since
                multiprocessor.advance(now)
                for process in multiprocessor.take_ended():
                    self.at(now, process)
                self.schedule(multiprocessor)
        # The middle half of the tiles: without the beginning and the end.
        self.ended.sort()
        first, last = len(self.ended) // 4, 3 * len(self.ended) // 4
        moved = (last - first) * (self.tile.bytes_read + self.tile.bytes_written)
        return moved * self.clocks_per_byte / (self.ended[last] - self.ended[first])

    def start(self, now, multiprocessor):
        if self.next_ticket < self.number:
            generator = self.process(self.next_ticket)
            self.next_ticket += 1
            next(generator)
            self.resume(now, (generator, multiprocessor))

    def resume(self, now, process):
        generator, multiprocessor = process
        try:
            wanted = generator.send(now)
        except StopIteration:
            self.start(now, multiprocessor)
            return
        if isinstance(wanted, Phase):
            multiprocessor.advance(now)
            multiprocessor.add(process, wanted.clocks, wanted.instructions * self.tile.warps)
            self.schedule(multiprocessor)
        elif isinstance(wanted, tuple):
            self.waiting[wanted].append(process)
        else:
            self.at(max(now, wanted), process)

    def schedule(self, multiprocessor):
        multiprocessor.version += 1
        end = multiprocessor.next_end()
        if end is not None:
            self.at(end, (multiprocessor, multiprocessor.version))
