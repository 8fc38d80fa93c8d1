"""A progress bar on a terminal; elsewhere silence, or of a training a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spikehtr.training.monitoring import LogEntry, RunProgress

# Seconds of silence before a line is said within an epoch, where no bar is drawn: the first soon, later ones rarely.
_QUIET = (30, 60, 120, 300, 600)
_LOOK = 1.0  # seconds between two looks whether it is time for one


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number done so far; draws on stderr, so that output can be piped."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    times = progress.TimeElapsedColumn(), progress.TimeRemainingColumn()
    columns = (progress.TextColumn(what), progress.BarColumn(), progress.MofNCompleteColumn(), *times)
    with progress.Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def page_progress(
    sources: int, failed: Callable[[], int]
) -> Iterator[tuple[Callable[[int], None], Callable[[int], None], Callable[[], None]]]:
    """Yields functions to call with a source's pages, with lines read, and at a page's end. Silent off a terminal.

    `failed`: how many pages could not be done so far.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("reading"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pages{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("reading", total=sources, rate="")
        lines = pages = 0

        def found(count: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + count - 1)

        def told(count: int) -> None:
            nonlocal lines
            lines += count
            show()

        def done() -> None:
            nonlocal pages
            pages += 1
            bar.advance(task)
            show()

        def show() -> None:
            seconds = bar.tasks[0].elapsed or 0
            rate = f", {lines} lines"
            if seconds > 1:
                rate = f", {pages / seconds:.2f} pages/s, {lines / seconds:.1f} lines/s"
                left = (bar.tasks[0].total or 0) - pages
                rate += f", {spoken(seconds / pages * left)} left" if pages else ""
            errors = failed()
            bar.update(task, rate=rate + (f", {errors} failed" if errors else ""))

        yield found, told, done


class TrainingProgress:
    """How a training goes on: a line for each epoch; within it a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, say: Callable[[str], None], bar: Callable[[float, str], None] | None) -> None:
        self._say, self._bar = say, bar
        self._loss = ""  # as last told
        self._said, self._lines = time.monotonic(), 0  # when the last line was said, and how many within epochs
        self._read = 0  # lines, before the first batch
        self._doing = ""  # as last heard

    @contextmanager
    def told_when_nothing_is_heard(self) -> Iterator[None]:
        """Within the block a line is said even while nothing comes to an end: a batch may take minutes."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK):
                if self._is_silent():
                    self._tell_silence()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _is_silent(self) -> bool:
        return time.monotonic() - self._said >= _QUIET[min(self._lines, len(_QUIET) - 1)]

    def _say_now(self, line: str) -> None:
        self._said, self._lines = time.monotonic(), self._lines + 1
        self._say(line)

    def _tell_silence(self) -> None:
        if self._doing:
            self._say_now(f"{self._doing}; the next batch is still being computed")
        else:
            read = f" ({self._read} lines read so far)" if self._read else ""
            self._say_now(f"the first batch is not done yet{read}: after it speed and time left are told")

    def reading(self, lines: int) -> None:
        self._read = lines
        if self._bar is not None:
            self._bar(0.0, f"reading lines, {lines} so far")

    def tell(self, told: LogEntry) -> None:
        self._loss = f"loss {told.values['loss']:.4f}"
        if told.epoch_ended:
            cer = "" if told.cer is None else f", validation CER {told.cer:.2%}{' (best)' if told.best else ''}"
            speed, left = _speed(told.lines_per_second), spoken(_left(told))
            self._say(f"epoch {told.epoch}, step {told.step}: {self._loss}{cer}, {speed}, {left} left")
            self._said = time.monotonic()

    def beat(self, pulse: RunProgress) -> None:
        what = "validating" if pulse.validating else f"epoch {pulse.epoch}"
        what += f", {pulse.done} of {pulse.of} {'lines' if pulse.validating else 'batches'}"
        self._doing = what
        left = f", about {spoken(_left(pulse))} left" if pulse.progress else ""
        if self._bar is not None:
            loss = f", {self._loss}" if self._loss and not pulse.validating else ""
            self._bar(pulse.progress, f"{what}{loss}, {_speed(pulse.lines_per_second)}{left}")
        elif self._is_silent():
            self._say_now(f"{what}: {_speed(pulse.lines_per_second)}{left}")


@contextmanager
def training_progress(say: Callable[[str], None]) -> Iterator[TrainingProgress]:
    """`say` prints a line."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        shown = TrainingProgress(say, None)
        with shown.told_when_nothing_is_heard():
            yield shown
        return
    # The time left is ours: rich forgets steps that are more than half a minute ago, and a step may take longer.
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task("training", total=1.0, visible=False)
        yield TrainingProgress(
            say, lambda done, words: bar.update(task, completed=done, description=words, visible=True)
        )


def _left(so_far: LogEntry | RunProgress) -> float:
    return so_far.seconds / so_far.progress - so_far.seconds


def _speed(lines_per_second: float) -> str:
    return f"{lines_per_second:.{0 if lines_per_second >= 10 else 1 if lines_per_second >= 1 else 2}f} lines/s"


def spoken(seconds: float) -> str:
    """A time as people say it: 42 s, 7 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
