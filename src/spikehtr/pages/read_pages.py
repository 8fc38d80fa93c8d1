"""From pages to text: lines are cut out, pooled over pages into full batches of like width, read and put back."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image

from spikehtr.data.formats.machine import noted_id
from spikehtr.data.formats.outlines import bounds
from spikehtr.data.geometry import cut_line
from spikehtr.data.images import ImageLike, open_gray, open_image, to_gray
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundRegion, Segmenter
from spikehtr.pages.given import LinePlace, RegionPlace, read_given
from spikehtr.pages.inputs import Failure, PageJob, load_colour, load_page
from spikehtr.pages.remote import canvas_of, place_of
from spikehtr.pages.rule_segmenter import segmenter
from spikehtr.pages.word_boxes import LineInk, place_characters
from spikehtr.readers.line_reader import POOLED_BATCHES, FittedLine, LineReader
from spikehtr.results import Character, Line
from spikehtr.results.page import CanvasPlace, Glyph, Page, Region, TextLine, Word
from spikehtr.results.xml_text import clean
from spikehtr.version import __version__

Mode = Literal["auto", "line", "page"]
_LEGIBLE = 12  # rows of a line: with fewer, what is read is worth a remark


class SegmentedPage(NamedTuple):
    """A page that is open and knows its lines."""

    image: str
    gray: Image.Image
    regions: list[RegionPlace]
    problems: list[str]  # lines that cannot be read, and why
    remarks: list[str]  # what is odd, and was used all the same
    frame: int | None = None  # which page of the image file, from 1; None where that has but one
    given: bool = False  # whether a file gave the lines and their ids
    part: int | None = None  # of which page of its file, from 0, an image is to be made
    canvas: CanvasPlace | None = None  # of a IIIF manifest, that the image was fetched from


@dataclass(frozen=True)
class ReadOptions:
    """ReadOptions pages are to be opened and read."""

    find: Segmenter
    mode: Mode = "auto"  # whether an image is a line or a page; auto: by its shape
    batch_size: int = 16
    dpi: int = 300  # of PDF pages
    ahead: int = 2  # pages that are opened and segmented in threads while others are read
    keep_image: bool = False  # pass the grey page on with the result
    images: bool = False  # pages of PDF and TIFF files become image files of their own, and the results name those


class PageResult(NamedTuple):
    """What became of a page."""

    job: PageJob
    result: Page | Failure
    gray: Image.Image | None
    remarks: list[str]
    part: int | None = None  # of which page of its file, from 0, an image is to be made beside the result


def is_line(width: int, height: int) -> bool:
    """Whether an image of this size is a single line rather than a page: low, or far wider than high."""
    return height <= 160 or (height <= 600 and width >= 3.5 * height)


def open_sheet(job: PageJob, options: ReadOptions) -> SegmentedPage:
    """A page with its lines: given by its XML file, or found, or the image as a whole."""
    own = options.images and job.image_wanted
    if job.source.kind == "xml":
        sheet = given_sheet(job.source.path)
    else:
        if own:  # what is read is the image that is written
            gray = to_gray(load_colour(job.source, job.index, options.dpi))
        else:
            gray = load_page(job.source, job.index, options.dpi)
        sheet = found_sheet(job.source.name, gray, options.find, options.mode)
        sheet = sheet._replace(frame=job.index + 1 if job.pages > 1 else None)
        if job.source.kind == "iiif":
            sheet = _of_canvas(sheet, job)
    part = job.index if job.source.kind == "iiif" else (sheet.frame or 1) - 1
    return sheet._replace(image=job.image, frame=None, part=part) if own else sheet


def _of_canvas(sheet: SegmentedPage, job: PageJob) -> SegmentedPage:
    """Named after the image's address: the manifest is no image."""
    source = job.source
    image = canvas_of(source.address, job.index, source.client).images[0]
    canvas = place_of(source.address, job.index, source.client, sheet.gray)
    return sheet._replace(image=image, frame=None, canvas=canvas)


def given_sheet(file: Path) -> SegmentedPage:
    given = read_given(file)
    gray = open_gray(given.image, given.frame)
    return SegmentedPage(given.image.name, gray, given.regions, given.problems, given.remarks, given.frame, given=True)


def found_sheet(name: str, gray: Image.Image, find: Segmenter, mode: Mode = "page") -> SegmentedPage:
    if mode == "line" or (mode == "auto" and is_line(*gray.size)):
        box = (0.0, 0.0, float(gray.width), float(gray.height))
        return SegmentedPage(
            name, gray, [RegionPlace("r1", "paragraph", (), [LinePlace("r1l1", None, box, ())])], [], []
        )
    return SegmentedPage(
        name, gray, [_place(region, number) for number, region in enumerate(find(gray), start=1)], [], []
    )


def _place(region: FoundRegion, number: int) -> RegionPlace:
    lines = [
        LinePlace(f"r{number}l{count}", line.polygon, None, line.baseline)
        for count, line in enumerate(region.lines, start=1)
    ]
    return RegionPlace(f"r{number}", region.kind, (), lines)


def cut_lines(recognizer: LineReader, sheet: SegmentedPage) -> tuple[list[RegionPlace], list[FittedLine]]:
    """The line images of a page as the network takes them, and the regions without lines that turn out empty."""
    regions, fitted = [], []
    for region in sheet.regions:
        kept = []
        for place in region.lines:
            image = cut_line(sheet.gray, place.polygon, place.box)
            if image.width and image.height:
                kept.append(place._replace(ink=LineInk.of(image, *corner_of(place))))
                fitted.append(recognizer.fit(image))
                rows = _rows_seen(recognizer, *image.size)
                if rows < _LEGIBLE:
                    size = f"{image.width} x {image.height} px"
                    remark = f"{size}, read at {max(1, round(rows))} px of height, too little to tell letters"
                    sheet.remarks.append(f"{sheet.image}, line {place.id}: {remark}")
            else:
                sheet.problems.append(f"{sheet.image}, line {place.id}: nothing of its outline lies on the page")
        regions.append(region._replace(lines=kept))
    return regions, fitted


def _rows_seen(recognizer: LineReader, width: int, height: int) -> float:
    """ReadOptions many rows of its own a line has left as the network sees it: a very wide one is scaled down whole."""
    c = recognizer.config
    return min(height, c.model.height, c.data.max_width * height / width)


def corner_of(place: LinePlace) -> tuple[int, int]:
    """The page's column and row at which `cut_line` begins."""
    left, top, _, _ = bounds(place.outline)
    more = 1 if place.polygon is not None else 0
    return max(0, round(left - more)), max(0, round(top - more))


def assemble(
    sheet: SegmentedPage, regions: list[RegionPlace], lines: Iterable[Line | None], model: str, precision: str = ""
) -> Page:
    """The page with what was read, lines in the order of `cut_lines`; None where nothing was."""
    read = iter(lines)
    out = []
    for region in regions:
        texts = tuple(_text_line(place, next(read), sheet.given) for place in region.lines)
        out.append(Region(region.id, texts, region.kind, region.polygon))
    name, problems = clean(sheet.image), tuple(sheet.problems)
    size = sheet.gray.size
    return Page(name, *size, tuple(out), model, problems, sheet.frame, precision, __version__, sheet.canvas)


def _text_line(place: LinePlace, line: Line | None, given: bool) -> TextLine:
    """Ids that a file gave are kept; ours say what was read, for programs that keep nothing else of a line's notes."""
    if line is None:
        return TextLine(place.id, place.outline, place.baseline)
    words = _words_of(line, place)
    text = clean(" ".join(word.text for word in words))
    name = place.id if given else noted_id(place.id, text)
    return TextLine(name, place.outline, place.baseline, words, line.confidence)


def _words_of(line: Line, place: LinePlace) -> tuple[Word, ...]:
    """What stands between spaces, with boxes on the page."""
    words: list[list[Character]] = [[]]
    for character in line.characters:
        if character.character.isspace():
            words.append([])
        else:
            words[-1].append(character)
    words = [word for word in words if word]
    assert place.ink is not None  # `cut_lines` put it there
    boxes = place_characters(place.ink, place.outline, [[(c.x0, c.x1) for c in word] for word in words])
    return tuple(
        Word(tuple(Glyph(c.character, c.confidence, box) for c, box in zip(word, places, strict=True)))
        for word, places in zip(words, boxes, strict=True)
    )


def read_page(
    recognizer: LineReader, image: ImageLike, options: str | Segmenter = "builtin", batch_size: int | None = None
) -> Page:
    """One page: an image, or the path of a PAGE or ALTO file."""
    if isinstance(image, str | os.PathLike) and Path(image).suffix.lower() == ".xml":
        try:
            sheet = given_sheet(Path(image))
        except SpikeHTRError as error:
            raise SpikeHTRError(f"{os.fspath(image)}: {error}") from None
    else:
        name = Path(image).name if isinstance(image, str | os.PathLike) else "page"
        sheet = found_sheet(name, open_image(image), segmenter(options) if isinstance(options, str) else options)
    regions, fitted = cut_lines(recognizer, sheet)
    lines = recognizer.read_lines(fitted, batch_size)
    return assemble(sheet, regions, lines, recognizer.name, recognizer.precision)


@dataclass
class _PooledPage:
    """A page whose lines are in the pool."""

    job: PageJob
    sheet: SegmentedPage | Failure
    regions: list[RegionPlace] = field(default_factory=list)
    fitted: list[FittedLine] = field(default_factory=list)


def read_pages(
    recognizer: LineReader | None,
    jobs: Iterable[PageJob],
    options: ReadOptions,
    progress: Callable[[int], None] = lambda lines: None,
) -> Iterator[PageResult]:
    """Every page in order, good or bad. `progress` hears how many lines were read, batch by batch.

    Without a recognizer lines are found and left unread.
    Lines wait until there are POOLED_BATCHES batches of them, so memory does not grow with the number of pages.
    """
    waiting: list[_PooledPage] = []
    pooled = 0
    for page in _opened(recognizer, jobs, options):
        waiting.append(page)
        pooled += len(page.fitted)
        if recognizer is None or pooled >= options.batch_size * POOLED_BATCHES or len(waiting) >= 4 * POOLED_BATCHES:
            yield from _flush(recognizer, waiting, options, progress)
            waiting, pooled = [], 0
    yield from _flush(recognizer, waiting, options, progress)


def _flush(
    recognizer: LineReader | None, waiting: list[_PooledPage], options: ReadOptions, progress: Callable[[int], None]
) -> Iterator[PageResult]:
    pool = [line for page in waiting for line in page.fitted]
    read = recognizer.read_lines(pool, options.batch_size, progress) if recognizer else []
    unread: list[Line | None] = [None]
    first, about = 0, (recognizer.name, recognizer.precision) if recognizer else ("", "")
    for page in waiting:
        if isinstance(page.sheet, Failure):
            yield PageResult(page.job, page.sheet, None, [])
            continue
        count = sum(len(region.lines) for region in page.regions)
        lines = read[first : first + count] if recognizer else unread * count
        first += len(page.fitted)
        result = assemble(page.sheet, page.regions, lines, *about)
        yield PageResult(
            page.job, result, page.sheet.gray if options.keep_image else None, page.sheet.remarks, page.sheet.part
        )


def _opened(recognizer: LineReader | None, jobs: Iterable[PageJob], options: ReadOptions) -> Iterator[_PooledPage]:
    """Pages in order, opened and cut into lines by threads ahead of their turn; a bad one is a Failure."""

    def prepare(job: PageJob) -> _PooledPage:
        try:
            sheet = open_sheet(job, options)
            regions, fitted = cut_lines(recognizer, sheet) if recognizer else (sheet.regions, [])
        except SpikeHTRError as error:
            return _PooledPage(job, Failure(job.title, str(error)))
        except Exception as error:  # one page must not stop the others, whatever is wrong with it
            return _PooledPage(job, Failure(job.title, f"{type(error).__name__}: {error}"))
        if not options.keep_image:  # only its size is needed from here on
            sheet = sheet._replace(gray=Image.new("1", sheet.gray.size))
        return _PooledPage(job, sheet, regions, fitted)

    todo = iter(jobs)
    with ThreadPoolExecutor(max(1, options.ahead)) as threads:
        ahead: deque[Future[_PooledPage]] = deque(
            threads.submit(prepare, job) for job in islice(todo, options.ahead + 1)
        )
        try:
            while ahead:
                page = ahead.popleft().result()
                ahead.extend(threads.submit(prepare, job) for job in islice(todo, 1))
                yield page
        finally:
            for future in ahead:
                future.cancel()
