"""IAM, as its archives unpack: `lines/` or `forms/` images, `lines.txt` or `xml/` transcripts, list files for splits.

Where both are there, the XML's text is taken: `lines.txt` sets punctuation apart from its word. Lines marked `err` are
used, since the mark speaks of the segmentation into words, not of the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from spikehtr.data.formats import xml
from spikehtr.data.formats.helpers import IMAGE_SUFFIXES, image_missing, rows, walk
from spikehtr.data.formats.iam_splits import form_of, read_splits
from spikehtr.data.formats.outlines import Box, bounds
from spikehtr.data.samples import ImportReport, Sample, has_text

LOOKS_FOR = "lines/ or forms/ with lines.txt (also in ascii/) or xml/"


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    box: Box | None  # on its form
    origin: str


def recognises(path: Path) -> bool:
    if not path.is_dir() or not _image_folders(path):
        return False
    forms = (xml.sniff(file) == "form" for file in walk(path / "xml", frozenset({".xml"})))
    return _lines_txt(path) is not None or next(forms, False)


def _image_folders(path: Path) -> list[Path]:
    """`lines`, then `forms`, `formsA-D` and so on."""
    folders = sorted(place for place in path.iterdir() if place.is_dir() and place.name.startswith("forms"))
    return [place for place in [path / "lines"] if place.is_dir()] + folders


def _lines_txt(path: Path) -> Path | None:
    places = (path / "lines.txt", path / "ascii" / "lines.txt", path / "lines" / "lines.txt")
    return next((place for place in places if place.is_file()), None)


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    if not path.is_dir():
        return
    lines = _from_text(path, report) | _from_xml(path, report)
    images = {
        image.stem: image for folder in reversed(_image_folders(path)) for image in walk(folder, IMAGE_SUFFIXES, report)
    }
    splits = read_splits(path, lines, report)
    for line_id, line in lines.items():
        form = form_of(line_id)
        image = images.get(line_id) or images.get(form)
        if image is None:
            image_missing(line.origin, f"neither a line image {line_id} nor a form image {form}", report)
            continue
        if image.stem != line_id and line.box is None:
            message = "only the form's image is there, and no box says where on it the line is"
            report.add("no outline", line.origin, message, "add the line images, or lines.txt")
            continue
        if has_text(line.text, line.origin, report):
            yield Sample(
                id=line_id,
                text=line.text,
                image=image,
                origin=line.origin,
                split=splits.get(line_id),
                document=form,
                page=form,
                box=line.box if image.stem != line_id else None,
            )
    _report_unused(images, lines, report)


def _report_unused(images: dict[str, Path], lines: dict[str, _Line], report: ImportReport) -> None:
    known = lines.keys() | set(map(form_of, lines))
    for stem in sorted(images.keys() - known):
        report.add("text missing", images[stem], "no transcript for this image", "add it to lines.txt or xml/")


def _from_text(path: Path, report: ImportReport) -> dict[str, _Line]:
    """`lines.txt`: id, ok or err, grey level, components, x, y, w, h, and the words with | between them."""
    file = _lines_txt(path)
    lines: dict[str, _Line] = {}
    for number, row in rows(file, report) if file else ():
        where = f"{file}, row {number}"
        fields = row.split(maxsplit=8)
        box = _box([fields[4:8]]) if len(fields) >= 8 else None
        if len(fields) < 8 or fields[0] in lines:
            message = "this id was there before" if fields[0] in lines else "fewer than nine fields"
            report.add("bad row", where, f"{message}: {row[:60]!r}", "mend the row, or take it out")
            continue
        words = fields[8] if len(fields) == 9 else ""
        lines[fields[0]] = _Line(words.replace("|", " "), box, f"{where} ({fields[0]})")
    return lines


def _from_xml(path: Path, report: ImportReport) -> dict[str, _Line]:
    """`xml/*.xml`: each line's text, and the box around the components of its words."""
    lines: dict[str, _Line] = {}
    for file in walk(path / "xml", frozenset({".xml"}), report) if (path / "xml").is_dir() else ():
        root = xml.load(file, report, dtd_may_be_named=True)  # every file of the archive names the same one
        for number, line in enumerate(root.iterfind("handwritten-part/line") if root is not None else [], start=1):
            line_id, text = line.get("id"), line.get("text")
            where = f"{file}, line {line_id or number}"
            if not line_id or text is None or line_id in lines:
                message = "this id was there before" if line_id in lines else "no id or no text attribute"
                report.add("bad row", where, message, "mend the file, or unpack the archive again")
                continue
            parts = [[part.get(side, "") for side in ("x", "y", "width", "height")] for part in line.iter("cmp")]
            # The archive escapes quotation marks twice.
            lines[line_id] = _Line(unescape(text), _box(parts), where)
    return lines


def _box(parts: list[list[str]]) -> Box | None:
    """The box around parts given as left, top, width, height."""
    corners: list[tuple[float, float]] = []
    for part in parts:
        numbers = [xml.number(side) for side in part]
        left, top, width, height = (value if value is not None else -1.0 for value in numbers)
        if width > 0 and height > 0:
            corners += [(left, top), (left + width, top + height)]
    return bounds(corners) if corners else None
