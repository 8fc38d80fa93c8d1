"""Lines of many requests and pages, read together: dynamic batching with a bounded queue.

What waits is read in batches, the urgent first. A line's text does not depend on the lines beside it, so that the
result is what a direct reader gives. The CPU engine shares its threads out over the lines of several calls, so it is
given a second batch while it has a first: cores go on while answers are sent and new requests come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spikehtr.results.line import Line
from spikehtr.serve.http_errors import RequestError

if TYPE_CHECKING:
    from spikehtr.readers import FittedLine, LineReader

MOST_WAITING = 4096  # lines of requests
_ROUND = 4  # batches taken at a time: enough to sort by width, few enough that an urgent line does not wait long
_SIDE_BY_SIDE = 2  # calls at a time of a reader that allows it
_LINGER = 0.004  # seconds in which more lines may come to fill a batch


@dataclass(eq=False)  # two tickets are never the same, whatever lines they hold
class Ticket:
    """The lines of one request or page on their way."""

    reader: LineReader
    lines: Sequence[FittedLine]
    done: Future[list[Line]] = field(default_factory=Future)
    found: dict[int, Line] = field(default_factory=dict)
    next: int = 0  # the first line that was not taken yet
    settled: bool = False  # its last line was read, or one of them could not be

    @property
    def left(self) -> int:
        return len(self.lines) - self.next


class LinePool:
    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self.most_waiting = most_waiting
        self._urgent: deque[Ticket] = deque()
        self._later: deque[Ticket] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self.lines_read = 0
        self.batches = 0
        self.seconds = 0.0  # of reading
        self._since = 0.0  # when the first of what is being read now was begun
        self._reading: list[LineReader] = []  # of each call that goes on
        self._threads = [
            threading.Thread(target=self._work, name=f"reading lines {number}", daemon=True)
            for number in range(_SIDE_BY_SIDE)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Read what waits, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def waiting(self) -> int:
        """Lines of requests that wait."""
        with self._wake:
            return sum(ticket.left for ticket in self._urgent)

    @property
    def seconds_left(self) -> float:
        """How long what waits will take, as fast as lines were read so far."""
        return self.waiting * (self.seconds / self.lines_read if self.lines_read else 0.05)

    def submit(self, reader: LineReader, lines: Sequence[FittedLine], urgent: bool = True) -> Ticket:
        """Ask for lines; `done` of the ticket has them. 429 where too many wait already."""
        ticket = Ticket(reader, lines)
        if not lines:
            ticket.done.set_result([])
            return ticket
        with self._wake:
            if self._stopping:
                raise RequestError(503, "stopping", "the server is stopping", "try again in a while")
            if urgent and sum(one.left for one in self._urgent) + len(lines) > self.most_waiting:
                raise self.too_many()
            (self._urgent if urgent else self._later).append(ticket)
            self._wake.notify_all()
        return ticket

    def too_many(self) -> RequestError:
        seconds = self.lines_per_second_inverse() * self.most_waiting
        retry = {"Retry-After": str(max(1, round(seconds / 2)))}
        return RequestError(429, "too_many", "too many lines wait to be read", "try again later", headers=retry)

    def lines_per_second_inverse(self) -> float:
        return self.seconds / self.lines_read if self.lines_read else 0.05

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for it any more: lines that were not begun are not read."""
        with self._wake:
            for queue in (self._urgent, self._later):
                if ticket in queue:
                    queue.remove(ticket)
        ticket.done.cancel()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._ready():
                    if self._stopping and not (self._urgent or self._later):
                        return
                    self._wake.wait()
                if not self._reading and not self._stopping and not self._full():
                    self._wake.wait(_LINGER)
                taken = self._take() if self._ready() else []
                if taken:
                    self._begin(taken[0][0].reader)
            if taken:
                self._read(taken)

    def _ready(self) -> bool:
        """Whether there is something to read now: any line, or beside another call a whole batch."""
        if not (self._urgent or self._later):
            return False
        reader = self._next()
        return not self._reading or (_shares(reader) and self._reading == [reader] and self._full())

    def _next(self) -> LineReader:
        return (self._urgent or self._later)[0].reader

    def _full(self) -> bool:
        """Whether what waits for the next reader makes a batch."""
        reader = self._next()
        waiting = (ticket for queue in (self._urgent, self._later) for ticket in queue)
        return sum(ticket.left for ticket in waiting if ticket.reader is reader) >= self._batch(reader)

    def _batch(self, reader: LineReader) -> int:
        return reader.reader.batch_size

    def _take(self) -> list[tuple[Ticket, int]]:
        """The next lines, all for one reader."""
        taken: list[tuple[Ticket, int]] = []
        reader = self._next()
        most = self._batch(reader) * (1 if _shares(reader) else _ROUND)
        for queue in (self._urgent, self._later):
            for ticket in [ticket for ticket in queue if ticket.reader is reader]:
                count = min(most - len(taken), ticket.left)
                taken += [(ticket, ticket.next + offset) for offset in range(count)]
                ticket.next += count
                if ticket.left == 0:
                    queue.remove(ticket)
        return taken

    def _begin(self, reader: LineReader) -> None:
        if not self._reading:
            self._since = time.perf_counter()
        self._reading.append(reader)

    def _end(self, reader: LineReader) -> None:
        with self._wake:
            self._reading.remove(reader)
            now = time.perf_counter()
            self.seconds += now - self._since
            self._since = now
            self._wake.notify_all()

    def _read(self, taken: list[tuple[Ticket, int]]) -> None:
        reader = taken[0][0].reader
        batches = max(1, round(len(taken) / self._batch(reader)))
        try:
            try:
                lines = reader.read_lines([ticket.lines[index] for ticket, index in taken], -(-len(taken) // batches))
            finally:
                self._end(reader)
        except Exception as error:  # whoever asked is told; the thread goes on
            for ticket in {id(ticket): ticket for ticket, _ in taken}.values():
                self._fail(ticket, error)
            return
        done = []
        with self._wake:
            self.lines_read += len(lines)
            self.batches += batches
            for (ticket, index), line in zip(taken, lines, strict=True):
                ticket.found[index] = line
                if len(ticket.found) == len(ticket.lines) and not ticket.settled:
                    ticket.settled = True
                    done.append(ticket)
        for ticket in done:
            if ticket.done.set_running_or_notify_cancel():
                ticket.done.set_result([ticket.found[place] for place in range(len(ticket.lines))])

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        with self._wake:
            for queue in (self._urgent, self._later):
                if ticket in queue:
                    queue.remove(ticket)
            before, ticket.settled = ticket.settled, True
        if not before and ticket.done.set_running_or_notify_cancel():
            ticket.done.set_exception(error)


def _shares(reader: LineReader) -> bool:
    """Whether two calls at once gain by it: they do where each reads its lines side by side, a thread to each."""
    from spikehtr.readers.cpu.engine import Engine

    engine = reader.reader
    return isinstance(engine, Engine) and engine.side_by_side(engine.batch_size)
