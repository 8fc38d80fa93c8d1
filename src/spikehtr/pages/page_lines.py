"""A page and its lines, before and after they are read: found or given, cut out, and put together again.

Nothing here knows a network: processes that only prepare pages do not load PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from PIL import Image

from spikehtr.data.formats.machine import noted_id
from spikehtr.data.formats.outlines import bounds
from spikehtr.data.geometry import FittedLine, LineFitting, cut_line
from spikehtr.data.images import open_gray, to_gray
from spikehtr.pages.found import FoundLayout, FoundRegion, Segmenter
from spikehtr.pages.given import LinePlace, RegionPlace, read_given
from spikehtr.pages.page_source import PageJob, load_colour, load_page
from spikehtr.pages.quarter_turns import box_as_it_lies, quarter, turned_upright, upright_image
from spikehtr.pages.remote import canvas_of, place_of
from spikehtr.pages.word_boxes import LineInk, place_characters
from spikehtr.results import Character, Line
from spikehtr.results.expected_error import ErrorEstimate
from spikehtr.results.page import CanvasPlace, Glyph, Page, Region, TextLine, Word
from spikehtr.results.xml_text import clean
from spikehtr.version import __version__

Mode = Literal["auto", "line", "page"]
_LEGIBLE = 12  # rows of a line: with fewer, what is read is worth a remark


class SegmentedPage(NamedTuple):
    """A page that is open and knows its lines."""

    image: str
    gray: Image.Image | None  # None once its lines are cut out
    size: tuple[int, int]
    regions: list[RegionPlace]
    problems: list[str]  # lines that cannot be read, and why
    remarks: list[str]  # what is odd, and was used all the same
    frame: int | None = None  # which page of the image file, from 1; None where that has but one
    given: bool = False  # whether a file gave the lines and their ids
    part: int | None = None  # of which page of its file, from 0, an image is to be made
    canvas: CanvasPlace | None = None  # of a IIIF manifest, that the image was fetched from


@dataclass(frozen=True)
class ReadOptions:
    """How pages are to be opened and read."""

    find: Segmenter
    mode: Mode = "auto"  # whether an image is a line or a page; auto: by its shape
    batch_size: int = 16
    dpi: int = 300  # of PDF pages
    workers: int = 0  # processes that open and segment pages and write results; 0: threads of this one
    keep_image: bool = False  # pass the grey page on with the result
    images: bool = False  # pages of PDF and TIFF files become image files of their own, and the results name those


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
    canvas = place_of(source.address, job.index, source.client, sheet.size)
    return sheet._replace(image=image, frame=None, canvas=canvas)


def given_sheet(file: Path) -> SegmentedPage:
    given = read_given(file)
    gray = open_gray(given.image, given.frame)
    return SegmentedPage(
        given.image.name, gray, gray.size, given.regions, given.problems, given.remarks, given.frame, given=True
    )


def found_sheet(name: str, gray: Image.Image, find: Segmenter, mode: Mode = "page") -> SegmentedPage:
    remarks: list[str] = []
    if mode == "line" or (mode == "auto" and is_line(*gray.size)):
        box = (0.0, 0.0, float(gray.width), float(gray.height))
        regions = [RegionPlace("r1", "paragraph", (), [LinePlace("r1l1", None, box, ())])]
    else:
        found = find(gray)
        if isinstance(found, FoundLayout):
            remarks = [f"{name}: {remark}" for remark in found.remarks]
            found = found.regions
        regions = [_place(region, number) for number, region in enumerate(found, start=1)]
    return SegmentedPage(name, gray, gray.size, regions, [], remarks)


def _place(region: FoundRegion, number: int) -> RegionPlace:
    lines = [
        LinePlace(f"r{number}l{count}", line.polygon, None, line.baseline, turns=quarter(line.baseline))
        for count, line in enumerate(region.lines, start=1)
    ]
    turns = {line.turns for line in lines}
    return RegionPlace(f"r{number}", region.kind, (), lines, turns.pop() if len(turns) == 1 else 0)


def cut_lines(fitting: LineFitting, sheet: SegmentedPage) -> tuple[list[RegionPlace], list[FittedLine]]:
    """The line images of a page as the network takes them, and the regions without lines that turn out empty."""
    assert sheet.gray is not None
    regions, fitted = [], []
    turned = {0: sheet.gray}  # the page as lines see it that lie on their side
    for region in sheet.regions:
        kept = []
        for place in region.lines:
            if place.turns not in turned:
                turned[place.turns] = upright_image(sheet.gray, place.turns)
            level = _upright_place(place, sheet.size)
            image = cut_line(turned[place.turns], level.polygon, level.box)
            if image.width and image.height:
                kept.append(place._replace(ink=LineInk.of(image, *corner_of(level))))
                fitted.append(fitting(image))
                rows = fitting.rows_seen(*image.size)
                if rows < _LEGIBLE:
                    size = f"{image.width} x {image.height} px"
                    remark = f"{size}, read at {max(1, round(rows))} px of height, too little to tell letters"
                    sheet.remarks.append(f"{sheet.image}, line {place.id}: {remark}")
            else:
                sheet.problems.append(f"{sheet.image}, line {place.id}: nothing of its outline lies on the page")
        regions.append(region._replace(lines=kept))
    return regions, fitted


def _upright_place(place: LinePlace, size: tuple[int, int]) -> LinePlace:
    """Where a line is on the page once that is turned so that the line is level."""
    if not place.turns:
        return place
    outline = turned_upright(place.outline, place.turns, size)
    if place.polygon is not None:
        return place._replace(polygon=outline)
    return place._replace(box=bounds(outline))


def corner_of(place: LinePlace) -> tuple[int, int]:
    """The page's column and row at which `cut_line` begins."""
    left, top, _, _ = bounds(place.outline)
    more = 1 if place.polygon is not None else 0
    return max(0, round(left - more)), max(0, round(top - more))


class _Named(Protocol):
    """A `LineReader`, as far as it is told of."""

    name: str
    precision: str
    estimate: ErrorEstimate | None


class ReadBy(NamedTuple):
    """What read a page."""

    model: str = ""  # its name
    precision: str = ""
    estimate: ErrorEstimate | None = None

    @classmethod
    def reader(cls, reader: _Named) -> Self:
        return cls(reader.name, reader.precision, reader.estimate)


def assemble(sheet: SegmentedPage, regions: list[RegionPlace], lines: Iterable[Line | None], by: ReadBy) -> Page:
    """The page with what was read, lines in the order of `cut_lines`; None where nothing was."""
    known = list(lines)
    expected = by.estimate.of(line for line in known if line) if by.estimate else None
    read = iter(known)
    out = []
    for region in regions:
        texts = tuple(_text_line(place, next(read), sheet) for place in region.lines)
        out.append(Region(region.id, texts, region.kind, region.polygon, region.turns))
    name, problems = clean(sheet.image), tuple(sheet.problems)
    return Page(
        name,
        *sheet.size,
        tuple(out),
        model=by.model,
        problems=problems,
        frame=sheet.frame,
        precision=by.precision,
        version=__version__,
        canvas=sheet.canvas,
        expected_error=expected,
    )


def _text_line(place: LinePlace, line: Line | None, sheet: SegmentedPage) -> TextLine:
    """Ids that a file gave are kept; ours say what was read, for programs that keep nothing else of a line's notes."""
    if line is None:
        return TextLine(place.id, place.outline, place.baseline)
    words = _words_of(line, place, sheet.size)
    text = clean(" ".join(word.text for word in words))
    name = place.id if sheet.given else noted_id(place.id, text)
    alternatives = tuple(other._replace(text=clean(other.text)) for other in line.alternatives)
    return TextLine(name, place.outline, place.baseline, words, line.confidence, alternatives=alternatives)


def _words_of(line: Line, place: LinePlace, size: tuple[int, int]) -> tuple[Word, ...]:
    """What stands between spaces, with boxes on the page."""
    words: list[list[Character]] = [[]]
    for character in line.characters:
        if character.character.isspace():
            words.append([])
        else:
            words[-1].append(character)
    words = [word for word in words if word]
    assert place.ink is not None  # `cut_lines` put it there
    outline = _upright_place(place, size).outline
    level = place_characters(place.ink, outline, [[(c.x0, c.x1) for c in word] for word in words])
    boxes = [[box_as_it_lies(box, place.turns, size) for box in word] for word in level]
    return tuple(
        Word(tuple(Glyph(c.character, c.confidence, box, c.alternatives) for c, box in zip(word, places, strict=True)))
        for word, places in zip(words, boxes, strict=True)
    )
