"""A run over many pages: what is there already is left alone, every result is written whole, every failure listed."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from spikehtr.data.formats import xml
from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.pages.inputs import OVERLAY, Failure, Names, PageJob, Source, load_colour
from spikehtr.pages.origins import SUFFIX, Format, Origins
from spikehtr.pages.overlay import save as save_overlay
from spikehtr.pages.page_images import save_image
from spikehtr.pages.reading import Done, How, read_pages
from spikehtr.pages.tree import Page
from spikehtr.recognizer import Recognizer

_ROOTS: dict[Format, str] = {"page": "PcGts", "alto": "alto", "hocr": "html"}  # their root elements
# How a file begins that we wrote and nobody changed: editors of PAGE note the time of a change. Text bears no mark.
_OURS: dict[Format, str] = {
    "json": r'\{\s*"format":\s*"spikehtr-page-1"',
    "page": r"<Creator>spikehtr [^<]*</Creator>\s*<Created>([^<]*)</Created>\s*<LastChange>\1</LastChange>",
    "alto": r"<softwareName>spikehtr</softwareName>",
    "hocr": r'<meta name="ocr-system" content="spikehtr ',
}
_START = 1 << 14  # characters of a file in which such a mark stands
_NO_USE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # the next page could not be written either
NAMED = 6  # files that are named at the end; of more, the folder is


@dataclass
class Run:
    """Where results go, and what has become of the pages so far."""

    form: Format
    folder: Path | None  # None: results are handed on, not written
    resume: bool = False
    overlay: bool = False
    min_confidence: float = 0.0
    overwrite: bool = False  # also what others wrote beside the inputs
    confidences: bool = False  # text: each line's before it
    glyphs: bool = False  # PAGE and ALTO: an element for each character
    images: bool = False  # of the pages of PDF and TIFF files
    dpi: int = 300  # of the images of PDF pages
    read: int = 0
    lines: int = 0
    skipped: int = 0
    written: list[Path] = field(default_factory=list)  # the first few files
    failures: list[Failure] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # lines of given segmentations that could not be read
    remarks: list[str] = field(default_factory=list)  # what is worth knowing and no failure
    origins: Origins = field(init=False)

    def __post_init__(self) -> None:
        self.origins = Origins(self.folder)

    def target(self, job: PageJob) -> Path | None:
        return None if self.folder is None else self.folder / f"{job.name}{SUFFIX[self.form]}"

    def lacks_image(self, job: PageJob) -> bool:
        """Whether a page's own image is wanted and not there: a run before may have done without."""
        target = self.target(job)
        return self.images and job.image_wanted and target is not None and not target.with_name(job.image).is_file()

    def shown(self, page: Page) -> str:
        if self.form == "json" and self.folder is None:  # one page a line, for programs that read as we go
            return page.to_json(self.min_confidence, indent=None) + "\n"
        if self.form == "text":
            return page.to_text(self.min_confidence, self.confidences)
        write: dict[Format, Callable[[float], str]] = {
            "json": page.to_json,
            "page": partial(page.to_page, glyphs=self.glyphs),
            "alto": partial(page.to_alto, glyphs=self.glyphs),
            "hocr": page.to_hocr,
        }
        return write[self.form](self.min_confidence)


def jobs_of(
    sources: Iterable[Source], run: Run, found: Callable[[int], None] = lambda pages: None
) -> Iterator[PageJob]:
    """The pages still to be read. Names are given to all of them, so that a resumed run finds the same ones."""
    names = Names(run.origins)
    inputs = {source.path.resolve() for source in sources}
    for source in sources:
        try:
            jobs = names.jobs(source)
        except SpikeHTRError as error:
            run.failures.append(Failure(str(source.path), str(error)))
            found(0)
            continue
        found(len(jobs))
        if run.folder is not None:
            run.remarks += [f"{job.title}: written as {job.name}, the name was taken" for job in jobs if job.renamed]
        for job in jobs:
            target = run.target(job)
            if run.resume and target is not None and _is_finished(target, run.form) and not run.lacks_image(job):
                run.skipped += 1
            elif target is not None and target.resolve() in inputs:
                raise SpikeHTRError(f"{target} is one of the inputs and would be overwritten: give another folder")
            elif target is not None and not run.overwrite and _is_anothers(target, source):
                reason = f"{target} is there and not as we write it: give another folder, or --overwrite"
                run.failures.append(Failure(job.title, reason))
            else:
                yield job


def _is_finished(target: Path, form: Format) -> bool:
    """Whether a page's result is there: PAGE is none where ALTO is wanted, though the names are the same."""
    return target.is_file() and (form not in _ROOTS or xml.sniff(target) == _ROOTS[form])


def _is_anothers(target: Path, source: Source) -> bool:
    """Whether a result would take the place of a file beside its source that we did not write.

    Folders of results are ours to replace.
    """
    if not target.is_file() or target.parent.resolve() != source.path.parent.resolve():
        return False
    try:
        with target.open(encoding="utf-8", errors="replace") as file:
            start = file.read(_START)
    except OSError:
        return True
    return not any(re.search(mark, start) for form, mark in _OURS.items() if SUFFIX[form] == target.suffix)


def transcribe(
    recognizer: Recognizer | None,
    sources: list[Source],
    how: How,
    run: Run,
    found: Callable[[int], None] = lambda pages: None,
    told: Callable[[int], None] = lambda lines: None,
) -> Iterator[tuple[PageJob, str | None]]:
    """Read every page and write it; yields each with its result where that is not written to a file.

    Without a recognizer only the lines are found and written.
    """
    for done in read_pages(recognizer, jobs_of(sources, run, found), how, told):
        if isinstance(done.result, Failure):
            run.failures.append(done.result)
            yield done.job, None
            continue
        try:
            shown = _write(done, done.result, run)
        except OSError as error:
            if error.errno in _NO_USE:
                raise SpikeHTRError(f"{run.folder}: {error.strerror}; make room, then go on with --resume") from None
            run.failures.append(Failure(done.job.title, f"cannot be written as {run.target(done.job)} ({_why(error)})"))
            yield done.job, None
            continue
        yield done.job, shown
        run.read += 1
        run.lines += len(done.result.lines)
        run.left_out += done.result.problems
        run.remarks += done.remarks
        if not done.result.lines and not done.result.problems:
            run.remarks.append(f"{done.job.title}: no line was found")


def _why(error: OSError) -> str:
    return "a folder has this name" if isinstance(error, IsADirectoryError) else error.strerror or str(error)


def _write(done: Done, page: Page, run: Run) -> str | None:
    target = run.target(done.job)
    if target is None:
        return run.shown(page)
    target.parent.mkdir(parents=True, exist_ok=True)
    run.origins.note(done.job.name, done.job.source.origin)
    files = [target]
    if run.overlay and done.gray is not None:
        files.append(target.with_name(f"{Path(done.job.name).name}{OVERLAY}"))
        save_overlay(page, done.gray, files[1])
    if done.part is not None:
        files.append(target.with_name(done.job.image))
        dpi = run.dpi if done.job.source.kind == "pdf" else None
        image = load_colour(done.job.source, done.part, run.dpi)
        save_image(image, files[-1], done.job.source.origin.name, done.part + 1, dpi)
    with whole_file(target) as temporary:  # last: with it the page counts as finished
        temporary.write_text(run.shown(page), encoding="utf-8")
    if len(run.written) <= NAMED:  # one more than is named, to tell that there are more
        run.written += files
    return None
