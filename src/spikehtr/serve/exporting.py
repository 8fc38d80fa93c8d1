"""Pages of a project in every format: what people corrected, and what machines read where nobody did."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from lxml import etree

from spikehtr.data.formats.outlines import bounds
from spikehtr.data.geometry import cut_line
from spikehtr.errors import SpikeHTRError
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word
from spikehtr.results.xml_text import UniqueIds, clean, listed, serialised
from spikehtr.serve.documents import Entity, PageState
from spikehtr.serve.http_errors import invalid

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

SUFFIXES = {"page": ".xml", "alto": ".alto.xml", "hocr": ".html", "tei": ".tei.xml", "text": ".txt", "json": ".json"}
MEDIA = {
    "page": "application/vnd.prima.page+xml",
    "alto": "application/alto+xml",
    "hocr": "text/html",
    "tei": "application/tei+xml",
    "text": "text/plain; charset=utf-8",
    "json": "application/json",
}
TEI = "http://www.tei-c.org/ns/1.0"


def page_of(state: PageState, image: str, width: int, height: int, model: str = "") -> Page:
    """A page's state as a result."""
    regions = []
    for name in state.order:
        region = state.regions[name]
        lines = tuple(_text_line(line, state.lines[line]) for line in region["lines"])
        regions.append(Region(name, lines, region["kind"], tuple((float(x), float(y)) for x, y in region["polygon"])))
    return Page(image, width, height, tuple(regions), model)


def _text_line(name: str, line: Entity) -> TextLine:
    polygon, baseline = (tuple((float(x), float(y)) for x, y in line[key]) for key in ("polygon", "baseline"))
    words: tuple[Word, ...] = ()
    reading = line["reading"]
    if reading is not None and reading["text"] == line["text"] and reading["characters"]:
        words = _words(reading["characters"])
    elif line["by"] == "machine" and line["text"]:
        words = _words(_spread(line))
    confidence = line["confidence"] or 0.0
    return TextLine(name, polygon, baseline, words, confidence, line["text"] if line["by"] == "person" else None)


def _words(characters: list[list[Any]]) -> tuple[Word, ...]:
    groups = groupby(characters, lambda character: character[0].isspace())
    return tuple(
        Word(tuple(Glyph(c[0], c[1], (c[2], c[3], c[4], c[5])) for c in group))
        for is_space, group in groups
        if not is_space
    )


def _spread(line: Entity) -> list[list[Any]]:
    """Characters whose places are not known, side by side along the line."""
    left, top, right, bottom = bounds([(x, y) for x, y in line["polygon"]])
    step = (right - left) / len(line["text"])
    sure = line["confidence"] or 0.0
    return [[c, sure, left + i * step, top, left + (i + 1) * step, bottom] for i, c in enumerate(line["text"])]


def exported(bench: Workbench, page: int, form: str) -> bytes:
    """One page in one format."""
    project = bench.project
    if form == "page":
        try:
            bench.files.write(page)
        except (SpikeHTRError, OSError):  # the page says why; what is written here goes out nevertheless
            return bench.files.content(page)
        file = project.row(page)["file"]
        if file is not None and project.path(file).is_file():
            return project.path(file).read_bytes()  # with all that other programs wrote into it
    with project.log.lock:
        row, state = project.row(page), project.log.state(page).copy()
    result = page_of(state, Path(row["image"]).name, row["width"], row["height"], bench.current_model)
    if form == "tei":
        return tei(result).encode()
    write = {
        "page": result.to_page,
        "alto": result.to_alto,
        "hocr": result.to_hocr,
        "text": result.to_text,
        "json": result.to_json,
    }
    return write[form]().encode()


def archive(bench: Workbench, pages: list[int], form: str, images: bool, target: Path) -> None:
    """A .zip of pages, under their names."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as file:
        for page in pages:
            row = bench.project.row(page)
            file.writestr(f"{row['name']}{SUFFIXES[form]}", exported(bench, page, form))
            if images:
                name = str(PurePosixPath(row["name"]).parent / PurePosixPath(row["image"]).name)
                file.write(bench.project.image(row), name, zipfile.ZIP_STORED)


def tei(page: Page) -> str:
    """TEI P5: a facsimile with a zone for each region and line, and the text with its line beginnings."""
    root = etree.Element(f"{{{TEI}}}TEI", nsmap={None: TEI})
    description = _add(_add(root, "teiHeader"), "fileDesc")
    _add(_add(description, "titleStmt"), "title").text = clean(page.image)
    _add(_add(description, "publicationStmt"), "p").text = "not published"
    _add(_add(description, "sourceDesc"), "p").text = clean(f"transcribed from {page.image}")
    surface = _add(_add(root, "facsimile"), "surface", ulx="0", uly="0", lrx=str(page.width), lry=str(page.height))
    _add(surface, "graphic", url=clean(page.image), width=f"{page.width}px", height=f"{page.height}px")
    body = _add(_add(root, "text"), "body")
    names = UniqueIds()
    division = _add(body, "div")
    _add(division, "pb", facs=clean(page.image))
    for region in page.regions:
        zone_name = names.take(f"zone_{region.id}")
        zone = _zone(surface, zone_name, region.outline)
        paragraph = _add(division, "head" if region.kind == "heading" else "ab", facs=f"#{zone_name}", type=region.kind)
        for line in region.lines:
            name = names.take(f"zone_{line.id}")
            _zone(zone, name, line.polygon).set("type", "line")
            beginning = _add(paragraph, "lb", facs=f"#{name}")
            beginning.tail = clean(line.text)
    return serialised(root)


def _add(parent: Any, tag: str, /, **attributes: str) -> Any:
    return etree.SubElement(parent, f"{{{TEI}}}{tag}", attributes)


def _zone(parent: Any, name: str, points: tuple[tuple[float, float], ...]) -> Any:
    zone = _add(parent, "zone", points=listed([(round(x), round(y)) for x, y in points]))
    zone.set("{http://www.w3.org/XML/1998/namespace}id", name)
    return zone


def lines_of(bench: Workbench, pages: list[int], corrected: bool) -> Iterator[dict[str, Any]]:
    """Line images with their texts: rows of a Parquet file as training takes it."""
    project = bench.project
    for page in pages:
        with project.log.lock:
            row, state = project.row(page), project.log.state(page).copy()
        chosen = [
            (name, line)
            for name, line in state.ordered()
            if line["text"] and (line["by"] == "person" or (not corrected and line["by"] == "machine"))
        ]
        if not chosen:
            continue
        gray = bench.pictures.gray(page)
        for name, line in chosen:
            cut = cut_line(gray, [(x, y) for x, y in line["polygon"]])
            if not cut.width or not cut.height:
                continue
            data = io.BytesIO()
            cut.save(data, "PNG", compress_level=3)
            yield {
                "image": {"bytes": data.getvalue(), "path": None},
                "text": line["text"],
                "id": name,
                "page": row["name"],
                "document": str(PurePosixPath(row["image"]).parent),
            }


def write_parquet(rows: Iterator[dict[str, Any]], target: Path) -> int:
    """The number of rows; columns image, text, id, page, document and, where rows have it, split."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("text", "id", "page", "document", "split")
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", image), *((name, pa.string()) for name in names)])
    count, waiting = 0, []
    with pq.ParquetWriter(target, schema) as writer:
        for row in rows:
            waiting.append({"split": None, **row})
            count += 1
            if len(waiting) == 256:
                writer.write_table(pa.Table.from_pylist(waiting, schema))
                waiting = []
        writer.write_table(pa.Table.from_pylist(waiting, schema))
    return count


def check_format(form: str) -> str:
    if form not in (*SUFFIXES, "parquet"):
        raise invalid("format", f"must be one of {', '.join((*SUFFIXES, 'parquet'))}")
    return form
