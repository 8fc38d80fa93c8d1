"""A run over many pages: what is there already is left alone, every result is written whole, every failure listed."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image

from spikehtr.data.formats import xml
from spikehtr.data.formats.machine import list_read
from spikehtr.data.images import ImageError
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.digests import sealed
from spikehtr.pages.inputs import OVERLAY
from spikehtr.pages.origins import SUFFIX, Format, Origins
from spikehtr.pages.overlay import draw
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_images import page_image
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.page_source import Failure, PageJob, Source, load_colour
from spikehtr.pages.page_stages import PageResult
from spikehtr.pages.protected_results import FileState, LeftAsItIs, NoBackupError, ProtectedResults
from spikehtr.pages.read_pages import read_pages
from spikehtr.pages.remote import manifest_of
from spikehtr.pages.result_names import ResultNames
from spikehtr.pages.shard import Shard
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page
from spikehtr.results.xml_text import clean

_ROOTS: dict[Format, str] = {"page": "PcGts", "alto": "alto", "hocr": "html"}  # their root elements
# What tells a file of a format from others of its suffix, beyond the root element.
_MARKS: dict[Format, bytes] = {
    "json": rb'"format":\s*"spikehtr-page-1"',
    "hocr": rb"ocr_page|ocr-system",
    "iiif": rb'"type":\s*"AnnotationPage"',
}
_START = 1 << 14  # bytes of a file in which such a mark stands
_NO_USE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # the next page could not be written either
NAMED = 6  # files that are named at the end; of more, the folder is


@dataclass
class TranscribeRun:
    """Where results go, and what has become of the pages so far."""

    form: Format
    folder: Path | None  # None: results are handed on, not written
    resume: bool = False
    overlay: bool = False
    min_confidence: float = 0.0
    overwrite: bool = False  # also what is not as we wrote it, which is kept as a backup
    confidences: bool = False  # text: each line's before it
    glyphs: bool = False  # PAGE and ALTO: an element for each character
    images: bool = False  # of the pages of PDF and TIFF files
    dpi: int = 300  # of the images of PDF pages
    shard: Shard | None = None  # of all pages, that this run is to read
    read: int = 0
    lines: int = 0
    wrong: float = 0.0  # characters that are expected to be, of those counted next
    judged: int = 0
    skipped: int = 0
    skipped_changed: int = 0  # of those, results that somebody changed
    written: list[Path] = field(default_factory=list)  # the first few files
    failures: list[Failure] = field(default_factory=list)
    left: dict[FileState, list[Path]] = field(default_factory=dict)  # files that were not to be replaced
    left_out: list[str] = field(default_factory=list)  # lines of given segmentations that could not be read
    remarks: list[str] = field(default_factory=list)  # what is worth knowing and no failure
    origins: Origins = field(init=False)
    names: ResultNames = field(init=False)
    results: ProtectedResults | None = field(init=False)

    def __post_init__(self) -> None:
        self.origins = Origins(self.folder)
        self.names = ResultNames(self.origins)
        self.results = None if self.folder is None else ProtectedResults(self.folder, self.origins, self.overwrite)

    def target(self, job: PageJob) -> Path | None:
        return None if self.folder is None else self.folder / f"{job.name}{SUFFIX[self.form]}"

    def lacks_image(self, job: PageJob) -> bool:
        """Whether a page's own image is wanted and not there: a run before may have done without."""
        target = self.target(job)
        return self.images and job.image_wanted and target is not None and not target.with_name(job.image).is_file()

    def judge(self, page: Page) -> None:
        """Count what is expected to be wrong on a page, where that can be told."""
        if page.expected_error is not None:
            count = sum(len(line.text) for line in page.lines if line.is_machines)
            self.judged += count
            self.wrong += page.expected_error * count

    @property
    def expected_error(self) -> float | None:
        return self.wrong / self.judged if self.judged else None

    def leave(self, path: Path, state: FileState) -> None:
        self.left.setdefault(state, []).append(path)

    @property
    def format(self) -> PageFormat:
        return PageFormat(self.form, self.min_confidence, self.confidences, self.glyphs, compact=self.folder is None)


def jobs_of(
    sources: Iterable[Source], run: TranscribeRun, found: Callable[[int], None] = lambda pages: None
) -> Iterator[PageJob]:
    """The pages still to be read. ResultNames are given to all of them, so that a resumed run finds the same ones."""
    inputs = {source.path.resolve() for source in sources}
    for source in sources:
        try:
            jobs = run.names.jobs(source)
        except SpikeHTRError as error:
            run.failures.append(Failure(source.title, str(error).removeprefix(f"{source.title}: ")))
            found(0)
            continue
        if source.kind == "iiif":
            problems = manifest_of(source.address, source.client).problems
            run.failures += [Failure(source.title, problem) for problem in problems]
        jobs = [job for job in jobs if run.shard is None or run.shard.has(job.name)]
        found(len(jobs))
        if run.folder is not None:
            run.remarks += [_renamed(job) for job in jobs if job.renamed]
        yield from (job for job in jobs if _is_to_be_read(job, run, inputs))


def _renamed(job: PageJob) -> str:
    return f"{job.title}: written as {job.name}, the name was taken"


def _is_to_be_read(job: PageJob, run: TranscribeRun, inputs: set[Path]) -> bool:
    """Whether a page's result may be written, so that nothing is read in vain; if not, that is noted in the run."""
    target = run.target(job)
    if target is None or run.results is None:
        return True
    try:
        state = run.results.state(target)
    except OSError as error:
        run.failures.append(_unwritable(job, target, error))
        return False
    like = state is not FileState.FREE and _holds(target, run.form)
    if run.resume and like and not run.lacks_image(job):
        run.skipped += 1
        run.skipped_changed += state is FileState.CHANGED
        return False
    if target.resolve() in inputs:
        which = "it" if target == job.source.path else f"the input {target}"
        reason = (
            f"its result would replace {which}, which is left as it is: give another folder, name the images alone "
            "to read them anew, or pass over it with --resume"
        )
        run.failures.append(Failure(job.title, reason))
        return False
    if state is FileState.OURS and not like:  # a result of another format: of a.alto.png as PAGE and of a.png as ALTO
        state = FileState.FOREIGN
    if not run.results.may_replace(state):
        run.leave(target, state)
        return False
    return True


def _holds(file: Path, form: Format) -> bool:
    """Whether a file is of a format, whoever wrote it; of plain text, any file is."""
    if form in _ROOTS and xml.sniff(file) != _ROOTS[form]:
        return False
    if form not in _MARKS:
        return file.is_file()
    try:
        with file.open("rb") as opened:
            return re.search(_MARKS[form], opened.read(_START)) is not None
    except OSError:
        return False


def transcribe(
    recognizer: Recognizer | None,
    sources: list[Source],
    options: ReadOptions,
    run: TranscribeRun,
    found: Callable[[int], None] = lambda pages: None,
    progress: Callable[[int], None] = lambda lines: None,
) -> Iterator[tuple[PageJob, str | None]]:
    """Read every page and write it; yields each with its result where that is not written to a file.

    Without a recognizer only the lines are found and written.
    """
    for done in read_pages(recognizer, jobs_of(sources, run, found), options, progress, run.format):
        if isinstance(done.result, Failure):
            run.failures.append(done.result)
            yield done.job, None
            continue
        try:
            shown = _write(done, done.result, run)
        except LeftAsItIs as left:  # since the run began
            run.leave(left.path, left.state)
            yield done.job, None
            continue
        except (NoBackupError, ImageError) as error:  # the latter: its source is gone, or damaged since it was read
            run.failures.append(Failure(done.job.title, str(error)))
            yield done.job, None
            continue
        except OSError as error:
            if error.errno in _NO_USE:
                remedy = "run it again" if run.overwrite else "go on with --resume"
                raise SpikeHTRError(f"{run.folder}: {error.strerror}; make room, then {remedy}") from None
            run.failures.append(_unwritable(done.job, run.target(done.job), error))
            yield done.job, None
            continue
        yield done.job, shown
        run.read += 1
        run.lines += len(done.result.lines)
        run.judge(done.result)
        run.left_out += done.result.problems
        run.remarks += done.remarks
        if not done.result.lines and not done.result.problems:
            run.remarks.append(f"{done.job.title}: no line was found")


def _unwritable(job: PageJob, target: Path | None, error: OSError) -> Failure:
    why = "a folder has this name" if isinstance(error, IsADirectoryError) else error.strerror or str(error)
    return Failure(job.title, f"cannot be written as {target} ({why})")


def _write(done: PageResult, page: Page, run: TranscribeRun) -> str | None:
    if run.folder is None or run.results is None:
        return run.format.shown(page) if done.shown is None else done.shown
    image = _page_image(done, run)
    with run.origins.lock():
        run.origins.refresh()
        job = run.names.kept(done.job)
        if job != done.job:  # another run gave the name away since this one began
            run.remarks.append(_renamed(job))
        target = run.folder / f"{job.name}{SUFFIX[run.form]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        run.origins.note(job.name, job.source.origin)
        files = [target]
        if run.overlay and done.gray is not None:
            files += _write_overlay(page, done.gray, run.folder / f"{job.name}{OVERLAY}", run)
        if image is not None:
            renamed = replace(page, image=clean(job.image))
            done, page = (done if renamed == page else done._replace(shown=None)), renamed
            files.append(_write_image(image, target.with_name(job.image), run.results))
        content = sealed(run.format.shown(page) if done.shown is None else done.shown, run.form)
        if run.form in ("page", "alto"):
            machines = ((line.id, clean(line.text)) for line in page.lines if line.is_machines)
            list_read(run.folder, page.image, machines)
        with run.results.writing(target) as temporary:  # last: with it the page counts as finished
            temporary.write_bytes(content)
    if len(run.written) <= NAMED:  # one more than is named, to tell that there are more
        run.written += files
    return None


def _page_image(done: PageResult, run: TranscribeRun) -> bytes | None:
    """The image of a page of a PDF or TIFF file, where it is wanted; made before anything is locked."""
    if done.part is None:
        return None
    source = done.job.source
    image = load_colour(source, done.part, run.dpi)
    name = source.address or (source.image or source.path).name
    return page_image(image, name, done.part + 1, run.dpi if source.kind == "pdf" else None)


def _write_image(data: bytes, path: Path, results: ProtectedResults) -> Path:
    """A page's own image. Where another file is left in its place the result is not written either: it would name that
    one."""
    if not path.is_file() or path.read_bytes() != data:
        with results.writing(path) as temporary:
            temporary.write_bytes(data)
    return path


def _write_overlay(page: Page, gray: Image.Image, path: Path, run: TranscribeRun) -> list[Path]:
    """The picture's file; none where another's is left in its place, which is no reason not to write the text."""
    assert run.results is not None
    try:
        with run.results.writing(path) as temporary:
            draw(page, gray).save(temporary, "PNG")
    except LeftAsItIs as left:
        run.leave(left.path, left.state)
        return []
    return [path]
