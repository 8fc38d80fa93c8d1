"""From pages to text, in three stages that go on at once: pages are opened, segmented and cut into lines; lines of many
pages are read in full batches of like width; pages are put together again and written out.

The first and the last are done by processes, or threads, beside the one that reads.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from spikehtr.data.images import ImageLike, open_image
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import Segmenter
from spikehtr.pages.network_segmenter import NetworkSegmenter
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadBy, ReadOptions, assemble, cut_lines, found_sheet, given_sheet
from spikehtr.pages.page_source import Failure, PageJob
from spikehtr.pages.page_stages import PageResult, PreparedPage, finish_page, prepare_page
from spikehtr.pages.worker_pool import WorkerPool
from spikehtr.readers.line_reader import POOLED_BATCHES, LineReader
from spikehtr.results import Line, Page

_FEW = 4  # pages for which no processes are started: that takes as long as some pages do
_THREADS = 2  # where there are no processes


def read_page(recognizer: LineReader, image: ImageLike, find: Segmenter, batch_size: int | None = None) -> Page:
    """One page: an image, or the path of a PAGE or ALTO file."""
    if isinstance(image, str | os.PathLike) and Path(image).suffix.lower() == ".xml":
        try:
            sheet = given_sheet(Path(image))
        except SpikeHTRError as error:
            raise SpikeHTRError(f"{os.fspath(image)}: {error}") from None
    else:
        name = Path(image).name if isinstance(image, str | os.PathLike) else "page"
        sheet = found_sheet(name, open_image(image), find)
    regions, fitted = cut_lines(recognizer.fitting, sheet)
    lines = recognizer.read_lines(fitted, batch_size)
    return assemble(sheet, regions, lines, ReadBy.reader(recognizer))


def read_pages(
    recognizer: LineReader | None,
    jobs: Iterable[PageJob],
    options: ReadOptions,
    progress: Callable[[int], None] = lambda lines: None,
    form: PageFormat | None = None,
) -> Iterator[PageResult]:
    """Every page in order, good or bad. `progress` hears how many lines were read, batch by batch.

    Without a recognizer lines are found and left unread. `form`: also write each page out in this format.
    Every queue has an end, so memory does not grow with the number of pages.
    """
    todo = iter(jobs)
    begin = list(islice(todo, _FEW + 1))
    find, answer = options.find, None
    if isinstance(find, NetworkSegmenter):
        find, answer = find.for_workers()
    workers = options.workers if len(begin) > _FEW and _can_be_sent(find) else 0
    if workers:
        options = replace(options, find=find)
    with WorkerPool(workers, answer=answer) if workers else ThreadPoolExecutor(_THREADS) as pool:
        yield from _Stages(pool, workers or _THREADS, recognizer, options, progress, form).run(chain(begin, todo))


def _can_be_sent(find: Segmenter) -> bool:
    """Whether another process can be given a segmenter."""
    if sys.platform == "win32" or getattr(find, "__module__", "") == "__main__":
        return False
    try:
        pickle.dumps(find)
    except Exception:
        return False
    return True


class _Waiting(NamedTuple):
    job: PageJob
    future: Future[Any]


class _Stages:
    """The three stages of one run. Pages leave in the order they came."""

    def __init__(
        self,
        pool: WorkerPool | ThreadPoolExecutor,
        workers: int,
        recognizer: LineReader | None,
        options: ReadOptions,
        progress: Callable[[int], None],
        form: PageFormat | None,
    ) -> None:
        self._pool, self._workers, self._recognizer = pool, workers, recognizer
        self._options, self._progress, self._form = options, progress, form
        self._fitting = recognizer.fitting if recognizer else None
        self._by = ReadBy.reader(recognizer) if recognizer else ReadBy()
        self._opening: deque[_Waiting] = deque()
        self._closing: deque[_Waiting | PageResult] = deque()

    def run(self, jobs: Iterator[PageJob]) -> Iterator[PageResult]:
        pooled: list[tuple[PageJob, PreparedPage | Failure]] = []
        lines, ahead = 0, 2 * self._workers
        most = self._options.batch_size * POOLED_BATCHES
        try:
            self._open(islice(jobs, ahead))
            while self._opening:
                waiting = self._opening.popleft()
                page = _outcome(waiting)
                self._open(islice(jobs, max(0, ahead - len(self._opening))))
                pooled.append((waiting.job, page))
                lines += len(page.lines) if isinstance(page, PreparedPage) else 0
                if self._recognizer is None or lines >= most or len(pooled) >= 4 * POOLED_BATCHES:
                    self._read(pooled)
                    ahead = 2 * self._workers + len(pooled)  # so many can be opened while as many are read
                    pooled, lines = [], 0
                    yield from self._closed(keep=ahead)
            self._read(pooled)
            yield from self._closed()
        finally:
            for waiting in self._opening:
                waiting.future.cancel()

    def _open(self, jobs: Iterable[PageJob]) -> None:
        for job in jobs:
            future = self._pool.submit(prepare_page, job, self._options, self._fitting)
            self._opening.append(_Waiting(job, future))

    def _read(self, pages: list[tuple[PageJob, PreparedPage | Failure]]) -> None:
        """Read the pages' lines together, and hand the pages on to be finished."""
        good = [page for _, page in pages if isinstance(page, PreparedPage)]
        pool = [line for page in good for line in page.lines]
        read: list[Line] = []
        if self._recognizer:
            read = self._recognizer.read_lines(pool, self._options.batch_size, self._progress)
        first = 0
        for job, page in pages:
            if isinstance(page, Failure):
                self._closing.append(PageResult(job, page, None, []))
                continue
            count = sum(len(region.lines) for region in page.regions)
            lines: list[Line | None] = list(read[first : first + count]) if self._recognizer else [None] * count
            first += len(page.lines)
            arguments = (job, page._replace(lines=[]), lines, self._by, self._form)
            if isinstance(self._pool, WorkerPool):  # before pages that are only to be opened, so that memory is freed
                future = self._pool.submit(finish_page, *arguments, first=True)
            else:
                future = self._pool.submit(finish_page, *arguments)
            self._closing.append(_Waiting(job, future))

    def _closed(self, keep: int = 0) -> Iterator[PageResult]:
        """Pages that are finished, in order; waits for them while there are more than `keep`."""
        while self._closing:
            page = self._closing[0]
            if isinstance(page, _Waiting):
                if len(self._closing) <= keep and not page.future.done():
                    return
                found = _outcome(page)
                page = PageResult(page.job, found, None, []) if isinstance(found, Failure) else found
            self._closing.popleft()
            yield page


def _outcome(waiting: _Waiting) -> Any:
    """What a stage came to; a Failure where its process died."""
    try:
        return waiting.future.result()
    except SpikeHTRError as error:
        return Failure(waiting.job.title, str(error))
