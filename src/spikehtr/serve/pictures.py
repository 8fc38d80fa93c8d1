"""Page images for the browser: upright, in sizes halved again and again, as files in a cache."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from pathlib import Path

from PIL import Image

from spikehtr.data.geometry import cut_line
from spikehtr.data.images import open_gray, open_whole, orientation, quietly, to_gray
from spikehtr.files import whole_file
from spikehtr.serve.http_errors import not_found
from spikehtr.serve.project import Project
from spikehtr.serve.views import levels_of

THUMBNAIL = 320  # pixels of the longer side
_KEPT = 3  # open pages in grey
_SHOWN_AS_IS = {"JPEG": ("L", "RGB"), "PNG": ("1", "L", "P", "RGB", "RGBA", "LA")}
_MEDIA = {"JPEG": "image/jpeg", "PNG": "image/png"}


class Pictures:
    """Decodes one image at a time: a page of 100 megapixels takes 300 MB."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.cache = project.private / "images"
        self.cache.mkdir(exist_ok=True)
        self._decoding = threading.Lock()
        self._pages: OrderedDict[tuple[str, str], Image.Image] = OrderedDict()

    def level(self, page: int, level: int) -> tuple[Path, str]:
        """The file and media type of a page's image, halved `level` times."""
        row = self.project.row(page)
        if not 0 <= level < levels_of(row["width"], row["height"]):
            raise not_found(f"level {level} of page {page}")
        image = self.project.image(row)
        if level == 0 and (media := _shown_as_is(image)):
            return image, media
        return self._made(row["stamp"], image, str(level)), "image/jpeg"

    def thumbnail(self, page: int) -> tuple[Path, str]:
        row = self.project.row(page)
        return self._made(row["stamp"], self.project.image(row), "t"), "image/jpeg"

    def _made(self, stamp: str, image: Path, what: str) -> Path:
        file = self.cache / f"{stamp}-{what}.jpg"
        if file.is_file():
            return file
        with self._decoding:
            if not file.is_file():
                self._make(stamp, image)
        return file

    def _make(self, stamp: str, image: Path) -> None:
        """All sizes of an image from one decoding."""
        whole = open_whole(image)
        shown = whole.convert("RGB") if whole.mode in ("RGB", "P", "CMYK", "YCbCr") else to_gray(whole)
        levels = levels_of(*shown.size)
        if _shown_as_is(image) is None:
            _save(shown, self.cache / f"{stamp}-0.jpg", 92)
        for level in range(1, levels):
            shown = shown.reduce(2)
            _save(shown, self.cache / f"{stamp}-{level}.jpg", 88)
        shown.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
        _save(shown, self.cache / f"{stamp}-t.jpg", 80)

    def gray(self, page: int) -> Image.Image:
        """The page as it is read, 8-bit grey; the last few are kept."""
        row = self.project.row(page)
        key = row["image"], row["stamp"]
        with self._decoding:
            if key not in self._pages:
                self._pages[key] = open_gray(self.project.image(row))
                while len(self._pages) > _KEPT:
                    self._pages.popitem(last=False)
            self._pages.move_to_end(key)
            return self._pages[key]

    def line(self, page: int, line: str, height: int) -> bytes:
        """A line cut out by its outline, as JPEG."""
        with self.project.log.lock:
            entity = self.project.log.state(page).lines.get(line)
        if entity is None:
            raise not_found(f"line {line} on page {page}")
        cut = cut_line(self.gray(page), [(x, y) for x, y in entity["polygon"]])
        if not cut.width or not cut.height:
            cut = Image.new("L", (1, 1), 255)
        if cut.height > height:
            cut = cut.resize((max(1, round(cut.width * height / cut.height)), height), Image.Resampling.LANCZOS)
        data = io.BytesIO()
        cut.save(data, "JPEG", quality=88)
        return data.getvalue()


def _shown_as_is(file: Path) -> str | None:
    """The media type of an image that every browser shows, upright, as it is; None of others."""
    with quietly():
        image = Image.open(file)
    with image:
        modes = _SHOWN_AS_IS.get(image.format or "", ())
        return _MEDIA[str(image.format)] if image.mode in modes and orientation(image) == 1 else None


def _save(image: Image.Image, file: Path, quality: int) -> None:
    with whole_file(file) as temporary:
        image.save(temporary, "JPEG", quality=quality)
