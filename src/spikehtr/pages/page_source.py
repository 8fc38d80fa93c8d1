"""A file or address with pages, one page of it, and its image."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Literal

from PIL import Image

from spikehtr.data.images import ImageError, count_frames, open_gray, open_whole, to_gray
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import ClientOptions
from spikehtr.pages.origins import Origin
from spikehtr.pages.page_images import SUFFIX
from spikehtr.pages.remote import canvas_file, manifest_of

Kind = Literal["image", "xml", "pdf", "iiif"]
TIFF = (".tif", ".tiff")
_PDFIUM = threading.Lock()


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, and where it stands below the folder that was asked for."""

    path: Path
    kind: Kind
    place: PurePath  # relative; its results are named after it
    given: frozenset[int] = frozenset()  # pages that are left to XML files among the inputs
    image: Path | None = None  # that an XML file names
    address: str = ""  # of a manifest, or of what `path` is a copy of
    client: ClientOptions = field(default_factory=ClientOptions)  # how images are fetched

    @property
    def origin(self) -> Origin:
        """What its pages are of."""
        return self.address or self.image or self.path

    @property
    def title(self) -> str:
        """For messages."""
        return self.address or str(self.path)

    @property
    def name(self) -> str:
        """Of the image, in results."""
        return self.address or self.path.name


@dataclass(frozen=True, slots=True)
class PageJob:
    """One page of a source. `name` is that of its result, without a suffix, unique in a run."""

    source: Source
    index: int  # of the page within the file
    name: str
    renamed: bool = False  # an earlier page, of this run or another, had the name it would have got
    pages: int = 1  # that the file holds

    @property
    def title(self) -> str:
        """The file, and the page where it has several: for messages."""
        if self.source.kind == "iiif":
            return f"{self.source.title}, canvas {self.index + 1}"
        several = self.index or self.source.kind == "pdf"
        return f"{self.source.title}, page {self.index + 1}" if several else self.source.title

    @property
    def image_wanted(self) -> bool:
        """Whether the page is part of a PDF or TIFF file, or fetched; whatever else there is are images already."""
        remote = self.source.kind == "pdf" or bool(self.source.address)
        return remote or (self.source.image or self.source.path).suffix.lower() in TIFF

    @property
    def image(self) -> str:
        """The name of the page's own image, in the folder of its result."""
        return f"{PurePath(self.name).name}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be read, and why."""

    title: str
    reason: str


def count_pages(source: Source) -> int:
    if source.kind == "pdf":
        with _pdf(source.path) as document:
            return len(document)
    if source.kind == "iiif":
        return len(manifest_of(source.address, source.client).canvases)
    return count_frames(source.path) if source.kind == "image" else 1


def load_page(source: Source, index: int, dpi: int) -> Image.Image:
    """One page as 8-bit grey, turned upright where the camera noted how it was held."""
    if source.kind == "pdf":
        return to_gray(_render(source.path, index, dpi, grayscale=True))
    if source.kind == "iiif":
        return open_gray(canvas_file(source.address, index, source.client))
    return open_gray(source.path, index + 1)


def load_colour(source: Source, index: int, dpi: int) -> Image.Image:
    """The same with the colours that the file has."""
    if source.kind == "pdf":
        return _render(source.path, index, dpi, grayscale=False).convert("RGB")
    if source.kind == "iiif":
        return open_whole(canvas_file(source.address, index, source.client))
    return open_whole(source.image or source.path, index + 1)


def _render(path: Path, index: int, dpi: int, grayscale: bool) -> Image.Image:
    with _pdf(path) as document:
        sheet = document[index]
        if sheet.get_width() * sheet.get_height() * (dpi / 72) ** 2 > (Image.MAX_IMAGE_PIXELS or 1 << 30):
            raise ImageError(f"too large at {dpi} dpi: give a lower --dpi")
        image: Image.Image = sheet.render(scale=dpi / 72, grayscale=grayscale).to_pil()
        return image


@contextmanager
def _pdf(path: Path) -> Iterator[Any]:
    """An open PDF, to be used up within the block: no other thread calls PDFium meanwhile, which would not bear it."""
    try:
        pdfium = import_module("pypdfium2")
    except ImportError:
        raise SpikeHTRError("PDF files need pypdfium2: pip install 'spikehtr[pdf]'") from None
    try:
        with _PDFIUM, pdfium.PdfDocument(path) as document:
            yield document
    except (pdfium.PdfiumError, OSError) as error:
        raise ImageError(f"not a PDF that can be read ({error})") from None
