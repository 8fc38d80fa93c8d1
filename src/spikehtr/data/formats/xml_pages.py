"""From an XML file of one page to the samples of its lines: what PAGE and ALTO have in common.

A page's id is the XML file's stem (without `.alto`), a line's id is `page/line`. A folder named like a split (`train`,
`Validation`) gives the split, the nearest other folder the document. Coordinates come out in pixels of the image that
is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

from spikehtr.data.formats import xml
from spikehtr.data.formats.frames import frame_meant
from spikehtr.data.formats.helpers import (
    IMAGE_SUFFIXES,
    UniqueNames,
    document_of,
    image_missing,
    page_name,
    split_of,
    walk,
)
from spikehtr.data.formats.machine import By, ReadLists
from spikehtr.data.formats.outlines import LineOutline, band_height, bounds, usable
from spikehtr.data.images import ImageError, image_size
from spikehtr.data.samples import CORRECTED_ELSEWHERE, ImportReport, Sample, Severity, has_text

XML = frozenset({".xml"})
_IMAGE_FOLDERS = ("images", "Images", "image", "img", "imgs", "jpg")


@dataclass(frozen=True, slots=True)
class PageLine:
    id: str
    text: str
    shape: LineOutline
    element: xml.Element = field(repr=False, compare=False)  # <TextLine>
    by: By | None = None  # whose text it is, where the file says so
    elsewhere: str | None = None  # what its words or its region say ("its words say ..."), where that differs


@dataclass(frozen=True, slots=True)
class PageFile:
    """What an XML file says of its page."""

    image: str | None  # the image's file name
    size: tuple[float, float] | None  # the page's width and height in the unit of the coordinates
    lines: list[PageLine] = field(default_factory=list)
    unit: str = "pixel"
    frame: int | None = None  # which page of the image file is meant, from 1, if that is said


def recognises(path: Path, root: str) -> bool:
    """Whether a file, or one of the first XML files of a folder, has this root element."""
    return any(xml.sniff(file) == root for file in islice(walk(path, XML), 50))


def named_image(file: Path) -> str | None:
    """The image that a PAGE or ALTO file names; the file is read no further than that."""
    element = xml.first(file, whole="fileName", begun="Page")
    if element is None:
        return None
    name: str | None = element.text if xml.name_of(element) == "fileName" else element.get("imageFilename")
    return name


def read_pages(
    path: Path, report: ImportReport, root: str, parse: Callable[[xml.Element], PageFile]
) -> Iterator[Sample]:
    """The lines of every XML file at `path` whose root element is `root`, in reading order."""
    names = UniqueNames()
    images = ImageFinder()
    read = ReadLists(path)
    for file in walk(path, XML, report):
        element = xml.load(file, report)
        if element is None:
            continue
        if (found := xml.name_of(element)) != root:
            message = f"its root element is <{found}>, not <{root}>"
            severity: Severity = "error" if file == path else "warning"
            report.add("other XML", file, message, "name its format (format:path), or take it out", severity)
            continue
        yield from _samples(file, path, parse(element), images, names, read, report)


def _samples(
    file: Path,
    root: Path,
    page: PageFile,
    images: ImageFinder,
    names: UniqueNames,
    read: ReadLists,
    report: ImportReport,
) -> Iterator[Sample]:
    if not page.lines:
        report.add("no lines", file, "holds no text line", "segment the page, or take the file out", "warning")
        return
    image = images.find(file, page.image)
    if image is None:
        message = f"the image {page.image or file.stem!r} of its {len(page.lines)} lines was not found"
        image_missing(file, message, report, "put the image beside the XML file or into a folder named images")
        return
    try:
        frame = frame_meant(file, page.frame, image, report)
    except ImageError as error:
        report.add("no such page", file, str(error), "make sure that the image is the one the XML was made for")
        return
    scale = pixel_scale(file, page, image, frame, report)
    if scale is None:
        return
    x, y, width, height = scale
    shapes = [line.shape.scaled(x, y) for line in page.lines]
    band = band_height(shapes, height)
    name = page_name(file)
    page_id = names.take(name, file, report)
    line_names = UniqueNames()
    split, document = split_of(file, root), document_of(file, root, name)
    for line, raw in zip(page.lines, shapes, strict=True):
        where = f"{file}, line {line.id}"
        if not has_text(line.text, where, report):
            continue
        shape = usable(raw, band, where, report)
        if shape is None:
            continue
        left, top, right, bottom = shape.box or bounds(shape.polygon)
        if right <= 0 or bottom <= 0 or left >= width or top >= height:
            message = f"lies outside its page of {width:.0f} x {height:.0f} pixels"
            report.add("outside the page", where, message, "check the coordinates and that the image is the right one")
            continue
        yield Sample(
            id=f"{page_id}/{line_names.take(line.id, where, report)}",
            text=line.text,
            image=image,
            origin=where,
            split=split,
            document=document,
            page=name,
            polygon=shape.polygon or None,
            box=shape.box,
            baseline=shape.baseline or None,
            frame=frame,
            machine=_is_machines(line, file, page.image or file.stem, read, where, report),
        )


def _is_machines(line: PageLine, file: Path, image: str, read: ReadLists, where: str, report: ImportReport) -> bool:
    """Whether a line's text is a model's, and no person changed or confirmed it."""
    if line.by == "person" or (line.by is None and not read.holds(file, image, line.id, line.text)):
        return False
    if line.elsewhere is not None:
        message = f"{line.elsewhere}, but the line itself {line.text!r}, as it was read: that is what counts"
        remedy = "correct the text of the line itself too: the last <Unicode> of its <TextLine>"
        report.add(CORRECTED_ELSEWHERE, where, message, remedy, "warning")
    return True


def pixel_scale(
    file: Path, page: PageFile, image: Path, frame: int | None, report: ImportReport
) -> tuple[float, float, float, float] | None:
    """What to multiply the file's x and y with to get the image's pixels, and the image's size.

    `frame`: which page of an image file of several, from 1.
    """
    try:
        width, height = image_size(image, frame)
    except ImageError as error:
        message = f"the image {image.name!r} of its {len(page.lines)} lines cannot be used: {error}"
        report.add("unreadable image", file, message, "replace the image by a sound copy")
        return None
    stated = page.size if page.size and min(page.size) > 0 else None
    if page.unit != "pixel":
        if stated is None:
            message = f"coordinates in {page.unit!r}, and no page size to convert them to pixels by"
            remedy = "export with pixel coordinates, or state the page's WIDTH and HEIGHT"
            report.add("unknown unit", file, message, remedy)
            return None
        return width / stated[0], height / stated[1], width, height
    if stated is None or stated == (width, height):
        return 1.0, 1.0, width, height
    x, y = width / stated[0], height / stated[1]
    which = f"page {frame} of {image.name!r}" if frame else repr(image.name)
    stated_size = f"{stated[0]:g} x {stated[1]:g}"
    message = f"made for an image of {stated_size} pixels, but {which} has {width} x {height}: coordinates are scaled"
    if abs(x / y - 1) > 0.02:
        message = f"{message}, though the two differ in shape, so lines may be cut wrongly"
    report.add("size differs", file, message, "make sure that the image is the one the XML was made for", "warning")
    return x, y, width, height


class ImageFinder:
    """Finds a page's image near its XML file, listing each folder once."""

    def __init__(self) -> None:
        self._folders: dict[Path, list[Path]] = {}
        self._listings: dict[Path, dict[str, Path]] = {}

    def find(self, file: Path, name: str | None) -> Path | None:
        """By the stated name; else by that name's stem or the XML file's stem, with any common image suffix."""
        name = (name or "").strip().replace("\\", "/")
        if name and os.path.isfile(file.parent / name):  # noqa: PTH113 (False, not an error, for impossible names)
            return file.parent / name
        base = PurePosixPath(name).name
        keys = [base, PurePosixPath(base).stem, file.stem, page_name(file)]
        for key in filter(None, keys):
            for folder in self._places(file.parent):
                if found := self._listing(folder).get(key.lower()):
                    return found
        return None

    def _places(self, folder: Path) -> list[Path]:
        """The XML file's folder, the one above it, and their image folders; doubled too: page/page, Images/Images."""
        if folder not in self._folders:
            above = folder.absolute().parent
            near = [folder, above, above.parent] if above.name == folder.name else [folder, above]
            inside = [place / name for place in near for name in _IMAGE_FOLDERS]
            places = near + inside + [place / place.name for place in inside]
            self._folders[folder] = [place for place in places if place.is_dir()]
        return self._folders[folder]

    def _listing(self, folder: Path) -> dict[str, Path]:
        """The folder's images by lower-case name and by lower-case stem; a name goes before a stem."""
        if folder not in self._listings:
            try:
                images = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
            except OSError:  # a folder we may not list: the image is then reported as missing
                images = []
            stems = {image.stem.lower(): image for image in reversed(images)}
            self._listings[folder] = stems | {image.name.lower(): image for image in reversed(images)}
        return self._listings[folder]
