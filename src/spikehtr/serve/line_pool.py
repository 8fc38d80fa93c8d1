"""Lines of many requests and pages, read together: dynamic batching with a bounded queue.

One thread takes what waits, the urgent first, and reads it in batches of like width. A line's text does not depend on
the lines beside it, so that the result is what a direct reader gives.
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
_LINGER = 0.004  # seconds in which more lines may come to fill a batch


@dataclass(eq=False)  # two tickets are never the same, whatever lines they hold
class Ticket:
    """The lines of one request or page on their way."""

    reader: LineReader
    lines: Sequence[FittedLine]
    done: Future[list[Line]] = field(default_factory=Future)
    found: dict[int, Line] = field(default_factory=dict)
    next: int = 0  # the first line that was not taken yet

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
        self._thread = threading.Thread(target=self._work, name="reading lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read what waits, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

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
                while not (self._urgent or self._later or self._stopping):
                    self._wake.wait()
                if not (self._urgent or self._later):
                    return
                if not self._stopping and self._count() < self._wanted():
                    self._wake.wait(_LINGER)
                taken = self._take()
            if taken:
                self._read(taken)

    def _count(self) -> int:
        return sum(ticket.left for queue in (self._urgent, self._later) for ticket in queue)

    def _wanted(self) -> int:
        queue = self._urgent or self._later
        return queue[0].reader.reader.batch_size

    def _take(self) -> list[tuple[Ticket, int]]:
        """The next lines, all for one reader."""
        taken: list[tuple[Ticket, int]] = []
        reader: LineReader | None = None
        for queue in (self._urgent, self._later):
            for ticket in list(queue):
                if reader is None:
                    reader = ticket.reader
                if ticket.reader is not reader:
                    continue
                room = reader.reader.batch_size * _ROUND - len(taken)
                count = min(room, ticket.left)
                taken += [(ticket, ticket.next + offset) for offset in range(count)]
                ticket.next += count
                if ticket.left == 0:
                    queue.remove(ticket)
        return taken

    def _read(self, taken: list[tuple[Ticket, int]]) -> None:
        began = time.perf_counter()
        try:
            reader = taken[0][0].reader
            batches = max(1, round(len(taken) / reader.reader.batch_size))
            lines = reader.read_lines([ticket.lines[index] for ticket, index in taken], -(-len(taken) // batches))
        except Exception as error:  # whoever asked is told; the thread goes on
            for ticket in {id(ticket): ticket for ticket, _ in taken}.values():
                self.cancel(ticket) if ticket.done.done() else self._fail(ticket, error)
            return
        self.seconds += time.perf_counter() - began
        self.lines_read += len(lines)
        self.batches += batches
        for (ticket, index), line in zip(taken, lines, strict=True):
            ticket.found[index] = line
            if len(ticket.found) == len(ticket.lines) and not ticket.done.cancelled():
                ticket.done.set_result([ticket.found[place] for place in range(len(ticket.lines))])

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        with self._wake:
            for queue in (self._urgent, self._later):
                if ticket in queue:
                    queue.remove(ticket)
        ticket.done.set_exception(error)
