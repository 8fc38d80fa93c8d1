"""Finding lines and reading them, from a page's state and back into it. What a person wrote is never touched."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from spikehtr.data.formats.outlines import Points
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import Segmenter
from spikehtr.pages.given import LinePlace, RegionPlace
from spikehtr.pages.page_lines import ReadBy, SegmentedPage, assemble, cut_lines, found_sheet
from spikehtr.pages.quarter_turns import quarter_of_given
from spikehtr.pages.segmenters import segmenter
from spikehtr.results.expected_error import ErrorEstimate
from spikehtr.results.line import Line
from spikehtr.results.page import TextLine
from spikehtr.serve import line_shapes
from spikehtr.serve.documents import NEW_LINE, NEW_REGION, Entity, PageState, is_corrected
from spikehtr.serve.draft import plain
from spikehtr.serve.jobs import BackgroundJob, Cancelled
from spikehtr.serve.line_pool import Ticket
from spikehtr.serve.page_errors import judged

if TYPE_CHECKING:
    from spikehtr.recognizer import Recognizer
    from spikehtr.serve.workbench import Workbench

_AHEAD = 2  # pages whose lines wait while others are read


class BegunPage(NamedTuple):
    """A page whose lines are being read."""

    page: int
    name: str
    sheet: SegmentedPage
    regions: list[RegionPlace]
    ticket: Ticket
    polygons: dict[str, line_shapes.Points]  # as they were when the lines were cut out


def found_state(gray: Image.Image, find: Segmenter, prefix: str = "") -> PageState:
    """The lines that a segmenter finds on a page."""
    sheet = found_sheet("page", gray, find, "auto")
    state = PageState()
    for region in sheet.regions:
        name = f"{prefix}{region.id}"
        lines = []
        for place in region.lines:
            polygon = line_shapes.clipped(place.outline, *gray.size)
            if not line_shapes.encloses(polygon):
                continue
            baseline = line_shapes.clipped(place.baseline, *gray.size)
            lines.append(f"{prefix}{place.id}")
            state.lines[lines[-1]] = {
                **NEW_LINE,
                "region": name,
                "baseline": baseline if len(baseline) > 1 else [],
                "polygon": polygon,
            }
        state.regions[name] = {**NEW_REGION, "kind": region.kind, "lines": lines}
        state.order = [*state.order, name]
    return state


def sheet_of(name: str, gray: Image.Image, state: PageState, wanted: Iterable[str]) -> SegmentedPage:
    """Some lines of a state, as what `cut_lines` takes."""
    chosen = set(wanted)
    regions = []
    for region in state.order:
        places = [
            _place(line, _pairs(state.lines[line]["polygon"]), _pairs(state.lines[line]["baseline"]))
            for line in state.regions[region]["lines"]
            if line in chosen
        ]
        if places:
            regions.append(RegionPlace(region, state.regions[region]["kind"], (), places))
    return SegmentedPage(name, gray, gray.size, regions, [], [], given=True)


def _place(name: str, polygon: Points, baseline: Points) -> LinePlace:
    return LinePlace(name, polygon, None, baseline, turns=quarter_of_given(baseline, polygon, upside_down=False))


def _pairs(points: line_shapes.Points) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points)


def reading_of(text_line: TextLine, line: Line, model: str, estimate: ErrorEstimate | None = None) -> Entity:
    """What is kept of a reading: the text, each character with its probability and box, and what tells its errors."""
    spaces = iter([c.confidence for i, c in enumerate(line.characters) if _begins_space(line, i)])
    characters: list[list[Any]] = []
    if line.characters and line.characters[0].character.isspace():
        next(spaces, None)
    for word in text_line.words:
        boxes = [[round(value) for value in glyph.box] for glyph in word.characters]
        if characters:
            left, right = characters[-1][4], boxes[0][0]
            between = [min(left, right), boxes[0][1], max(left, right), boxes[0][3]]
            characters.append([" ", round(next(spaces, 1.0), 4), *between])
        for glyph, box in zip(word.characters, boxes, strict=True):
            _add_character(characters, glyph.character, round(glyph.confidence, 4), box)
    text = plain(text_line.text)
    if "".join(character[0] for character in characters) != text:
        characters = []  # a reading without places is better than one with wrong ones
    confidence = round(line.confidence, 4)
    about = {"text": text, "confidence": confidence, "model": model, "characters": characters}
    return about | {"judged": judged(line, estimate)}


def _begins_space(line: Line, index: int) -> bool:
    is_space = line.characters[index].character.isspace()
    return is_space and (index == 0 or not line.characters[index - 1].character.isspace())


def _add_character(characters: list[list[Any]], character: str, confidence: float, box: list[int]) -> None:
    """A mark that stands over a letter belongs to it."""
    if characters and unicodedata.combining(character[0]):
        last = characters[-1]
        last[0] = unicodedata.normalize("NFC", last[0] + character)
        last[1] = min(last[1], confidence)
        last[2:] = [min(last[2], box[0]), min(last[3], box[1]), max(last[4], box[2]), max(last[5], box[3])]
    else:
        characters.append([character, confidence, *box])


def begin(bench: Workbench, page: int, wanted: Iterable[str], model: Recognizer, urgent: bool) -> BegunPage | None:
    """Cut out lines of a page and ask for their texts."""
    project = bench.project
    with project.log.lock:
        row, state = project.row(page), project.log.state(page).copy()
    chosen = [name for name in wanted if name in state.lines and not is_corrected(state.lines[name])]
    if not chosen:
        return None
    sheet = sheet_of(row["image"], bench.pictures.gray(page), state, chosen)
    regions, fitted = cut_lines(model.fitting, sheet)
    polygons = {name: state.lines[name]["polygon"] for name in chosen}
    return BegunPage(page, row["name"], sheet, regions, bench.pool.submit(model, fitted, urgent), polygons)


def finish(bench: Workbench, begun: BegunPage, model: Recognizer, label: str, step: int | None = None) -> int:
    """Wait for the texts and note them; how many lines were read."""
    lines = begun.ticket.done.result()
    page = assemble(begun.sheet, begun.regions, lines, ReadBy.reader(model))
    name = bench.model_name(model)
    readings = {
        text_line.id: reading_of(text_line, line, name, model.estimate)
        for text_line, line in zip(page.lines, lines, strict=True)
    }
    with bench.project.log.transaction():
        after = bench.project.log.state(begun.page).copy()
        for line, reading in readings.items():
            here = after.lines.get(line)
            if here is None or is_corrected(here) or here["polygon"] != begun.polygons[line]:
                continue  # a person was faster
            values = {"text": reading["text"], "by": "machine", "confidence": reading["confidence"]}
            after.lines[line] = {**here, **values, "reading": reading, "stale": False}
        seq, patch = bench.project.change(begun.page, label, after, by_person=False, step=step)
    if patch:
        bench.tell_change(begun.page, seq, patch, label)
    return len(readings)


def find_on_page(
    bench: Workbench, job: BackgroundJob, page: int, name: str, segmenter_name: str, replace: bool
) -> bool:
    """Find a page's lines; whether they were taken."""
    project = bench.project
    row = project.row(page)
    if row["corrected"] and not replace:
        job.problem(row["name"], "has corrected lines, so its lines were left as they are")
        return False
    before = project.log.state(page).copy()
    prefix = "" if row["seq"] == 0 else f"f{row['seq']}"  # an id stands for one line for ever
    find = segmenter(segmenter_name, bench.models.device)
    found = found_state(bench.pictures.gray(page), find, prefix)
    with project.log.transaction():
        if project.log.state(page) != before:
            job.problem(row["name"], "was changed while its lines were looked for, so they were left as they are")
            return False
        seq, patch = project.change(page, "find", found, by_person=False)
    if not found.lines:
        job.problem(row["name"], "no line was found")
    if patch:
        bench.tell_change(page, seq, patch, "find")
    return True


def find_job(bench: Workbench, job: BackgroundJob) -> None:
    options = job.options
    pages = bench.project.page_ids(options["pages"])
    name = options.get("segmenter") or bench.project.settings["segmenter"]
    job.advance(0, len(pages), unit="pages")
    for number, page in enumerate(pages, start=1):
        _try_page(bench, job, page, lambda page=page: find_on_page(bench, job, page, "", name, options["replace"]))
        job.advance(number)


def _try_page(bench: Workbench, job: BackgroundJob, page: int, work: Any) -> Any:
    """Do something with a page; what is wrong with it is noted, and the others go on."""
    title = str(page)
    try:
        title = bench.project.row(page)["name"]
        return work()
    except Cancelled:
        raise
    except SpikeHTRError as error:
        job.problem(title, str(error))
    except OSError as error:
        if (reason := error.strerror or str(error)) and error.errno == 28:
            raise
        job.problem(title, reason)
    except Exception as error:  # one page must not stop the others, whatever is wrong with it
        job.problem(title, f"{type(error).__name__}: {error}")
    return None


def read_job(bench: Workbench, job: BackgroundJob) -> None:
    """Find where there are no lines, and read what is not read: pages are opened ahead while others are read."""
    options = job.options
    pages = bench.project.page_ids(options["pages"])
    bench.wait_until_shown()
    job.check()
    model = bench.model()
    segmenter_name = bench.project.settings["segmenter"]
    job.advance(0, len(pages), "", "pages")
    waiting: deque[BegunPage] = deque()
    read = done = 0

    def end_one() -> None:
        nonlocal read, done
        begun = waiting.popleft()
        read += _try_page(bench, job, begun.page, lambda: finish(bench, begun, model, "read")) or 0
        done += 1
        job.result = {"lines": read, "pages": done}
        job.advance(done)

    try:
        for page in pages:

            def start(page: int = page) -> BegunPage | None:
                if options["find"] and not bench.project.row(page)["lines"]:
                    find_on_page(bench, job, page, "", segmenter_name, False)
                return begin(bench, page, _lines_to_read(bench, page, options), model, urgent=False)

            begun = _try_page(bench, job, page, start)
            if begun is None:
                done += 1
                job.advance(done)
                continue
            waiting.append(begun)
            while len(waiting) > _AHEAD:
                end_one()
            job.check()
        while waiting:
            end_one()
    finally:
        for begun in waiting:
            bench.pool.cancel(begun.ticket)
    job.result = {"lines": read, "pages": done}


def _lines_to_read(bench: Workbench, page: int, options: dict[str, Any]) -> list[str]:
    named = options.get("lines")
    with bench.project.log.lock:
        state = bench.project.log.state(page)
        if named is not None:
            return [name for name in named.get(str(page), []) if name in state.lines]
        return [name for name, line in state.ordered() if options["again"] or line["by"] is None or line["stale"]]
