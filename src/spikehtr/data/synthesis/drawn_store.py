"""A compiled store of drawn lines, made by many processes; a run that was killed goes on behind its parts."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from spikehtr.data import handwriting
from spikehtr.data.compiling import open_lines
from spikehtr.data.geometry import shrink_line
from spikehtr.data.handwriting import Font
from spikehtr.data.samples import ImportReport, printable
from spikehtr.data.store import LineStore
from spikehtr.data.store_parts import PART, Row, alone, claim, join_parts, pack, parts_of, write_part
from spikehtr.data.synth import SynthReport, load_fonts
from spikehtr.data.synthesis.drawing import Sources, draw_part
from spikehtr.data.synthesis.paper import Paper, lift_papers
from spikehtr.data.synthesis.texts import plain_characters, read_texts
from spikehtr.errors import SpikeHTRError

_PAPERS = 150  # pieces of paper lifted from a set: papers of one set are much alike
_DRAWING = (Path(handwriting.__file__), *sorted(Path(__file__).parent.glob("*.py")))
_LETTERS = frozenset("abcdefghilmnoprstu")  # a font that lacks one of these draws hardly any text


@dataclass
class DrawnReport:
    """What was drawn, of what, and what was passed over."""

    lines: int = 0
    texts: int = 0  # files and sets that lent texts
    papers: int = 0
    fonts: SynthReport = field(default_factory=SynthReport)
    skipped: Counter[str] = field(default_factory=Counter)


def gather(
    texts: Sequence[Path], like: Sequence[str], fonts: Path, height: int = 64, seed: int = 0
) -> tuple[Sources, DrawnReport]:
    """Texts, fonts and paper. Of the sets in `like` only what may be trained on lends texts and paper."""
    report = DrawnReport(texts=len(texts) + len(like))
    transcripts: list[list[str]] = []
    papers: list[Paper] = []
    for name in like:
        store = open_lines([name], height, straighten=False)
        rows = store.rows("train")
        rows = rows if len(rows) else store.unmarked()
        if not len(rows):
            raise SpikeHTRError(f"{printable(name)}: no line is marked as training: mark some, or leave the set out")
        transcripts.append([store.text(int(row)) for row in rows])
        chosen = np.random.default_rng([seed % 2**63, 5]).permutation(rows)[:_PAPERS]
        papers += lift_papers((store.line(int(row)) for row in chosen), seed)
    found = read_texts(texts, transcripts)
    usable = [font for font in load_fonts(fonts, plain_characters(found), report.fonts) if font.characters >= _LETTERS]
    if not usable:
        raise SpikeHTRError(f"{fonts}: no font there has the common Latin letters; add fonts")
    report.papers, report.fonts.fonts = len(papers), len(usable)
    return Sources(found, usable, papers, height), report


def draw_store(
    sources: Sources,
    report: DrawnReport,
    output: Path,
    count: int,
    seed: int = 0,
    validation: int = 0,
    max_width: int | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> LineStore:
    """Draw `count` training lines, and `validation` more to validate on, into the store `output`.

    Which lines these are depends on the sources, the seed and the counts, not on the number of workers. The first parts
    of a larger count are those of a smaller one. `progress` is called with the number of lines done so far.
    """
    if not output.parent.is_dir():
        raise SpikeHTRError(f"{output}: the folder {output.parent} does not exist; make it first")
    tasks = [_Task(seed, *each, max_width) for each in _parts(count, validation)]
    with alone(output):
        folder = parts_of(output)
        claim(folder, _key(sources, seed, max_width))
        for left in folder.glob("*.arrow"):  # of a larger count, or of another share to validate
            if left.name not in {task.name for task in tasks}:
                left.unlink()
        todo = [task for task in tasks if not (folder / task.name).exists()]
        done = sum(task.count for task in tasks) - sum(task.count for task in todo)
        for number, skipped in _carry_out(sources, folder, todo, workers or os.cpu_count() or 1):
            done += number
            report.skipped += skipped
            if progress:
                progress(done)
        described = {"height": sources.height, "max_width": max_width, "straightened": False, "sources": ["synthetic"]}
        join_parts(folder, output, {**described, "seed": seed}, ImportReport())
        shutil.rmtree(folder)
    store = LineStore(output)
    report.lines = len(store)
    return store


@dataclass(frozen=True)
class _Task:
    seed: int
    part: int
    count: int
    split: str
    max_width: int | None

    @property
    def name(self) -> str:
        return f"{self.part:07d}-{self.count}-{self.split}.arrow"


def _parts(count: int, validation: int) -> Iterator[tuple[int, int, str]]:
    """Number, lines and split of each part; lines to validate on are of numbers that no training line has."""
    for split, lines, first in (("train", count, 0), ("validation", validation, 1 << 31)):
        for start in range(0, lines, PART):
            yield first + start // PART, min(PART, lines - start), split


def _carry_out(sources: Sources, folder: Path, tasks: list[_Task], workers: int) -> Iterator[tuple[int, Counter[str]]]:
    """The parts drawn, each in some worker; how many lines were asked for and what was skipped, as they are done."""
    if workers == 1 or len(tasks) < 2:
        _begin(sources, folder)
        yield from map(_draw, tasks)
        return
    # Spawned, not forked: the program may have threads.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(tasks)), spawn, _begin, (sources, folder)) as pool:
        waiting = iter(tasks)
        futures = {pool.submit(_draw, task) for task in islice(waiting, 2 * workers)}
        from concurrent.futures import FIRST_COMPLETED, wait

        while futures:
            done, futures = wait(futures, return_when=FIRST_COMPLETED)
            futures |= {pool.submit(_draw, task) for task in islice(waiting, len(done))}
            for future in done:
                yield future.result()


_mine: tuple[Sources, Path] | None = None  # what this process draws from, and where to


def _begin(sources: Sources, folder: Path) -> None:
    import cv2

    global _mine
    _mine = sources, folder
    if multiprocessing.parent_process() is not None:
        cv2.setNumThreads(1)  # the other cores have workers of their own


def _draw(task: _Task) -> tuple[int, Counter[str]]:
    assert _mine is not None
    sources, folder = _mine
    lines, skipped = draw_part(sources, task.seed, task.part, task.count)
    rows: list[Row] = []
    for number, line in enumerate(lines):
        pixels = shrink_line(line.pixels, task.max_width) if task.max_width else line.pixels
        name = f"{task.seed}-{task.part}-{number}"
        about = {"id": name, "text": line.text, "split": task.split, "document": line.font, "page": None}
        rows.append({**about, "origin": name, "source": "synthetic", "machine": False, **pack(pixels)})
    write_part(folder / task.name, list(rows))
    return task.count, skipped


def _key(sources: Sources, seed: int, max_width: int | None) -> str:
    """Changes with anything that a line depends on: what is drawn, the fonts' bytes, and the code that draws."""
    sha = hashlib.sha256(json.dumps([seed, max_width, sources.height, PART, drawing_digest()]).encode())
    for kind in (sources.texts.transcripts, sources.texts.running, sources.texts.listed):
        sha.update(json.dumps(kind).encode())
    for font in sources.fonts:
        sha.update(_font_key(font).encode())
    for paper in sources.papers:
        sha.update(paper.tile.tobytes())
    return sha.hexdigest()


def _font_key(font: Font) -> str:
    return f"{font.path.name} {font.digest()} {''.join(sorted(font.characters))}"


def drawing_digest(files: Sequence[Path] = _DRAWING) -> str:
    """Of the code that draws, so that lines of two versions are not mixed."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(f"{file.name} ".encode() + file.read_bytes().replace(b"\r\n", b"\n"))
    return sha.hexdigest()
