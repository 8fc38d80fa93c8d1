"""Opening image files, whatever state they are in."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from spikehtr.data.geometry import cut_line
from spikehtr.data.samples import Sample
from spikehtr.errors import SpikeHTRError

_FILTERS = threading.Lock()  # warnings have one list of filters for all threads
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


ImageLike = str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | bytes  # bytes: an encoded image file


class ImageError(SpikeHTRError):
    """An image that cannot be used; the message says why, without the file's name."""


@contextmanager
def quietly() -> Iterator[None]:
    """For a look at a header: without Pillow's warnings of odd ones, and of size (it raises at twice that)."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load_line(path: str | os.PathLike[str]) -> Image.Image:
    """A whole image file as 8-bit grey; what is not one is an error that names the file."""
    try:
        return open_gray(Path(path))
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from None


def open_gray(source: Path | bytes, frame: int | None = None) -> Image.Image:
    """An image file, or an encoded image, fully decoded to 8-bit grey and turned upright.

    `frame`: which page of a file that has several, from 1.
    """
    with _opened(source, frame) as image:
        return to_gray(upright(image))


def open_whole(path: Path, frame: int | None = None) -> Image.Image:
    """An image file, fully decoded and turned upright, with the colours it has."""
    with _opened(path, frame) as image:
        whole = upright(image).copy()  # a copy outlives the file
        whole.info = dict(image.info)
        return whole


def count_frames(path: Path) -> int:
    """How many pages an image file has. What others than TIFF hold beside the picture is none: a preview, say."""
    with _opened(path) as image:
        return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1


def image_size(path: Path, frame: int | None = None) -> tuple[int, int]:
    """Width and height of an image file (or of one page of it, from 1), as it stands upright; nothing is decoded."""
    with _opened(path, frame) as image:
        width, height = image.size
        return (width, height) if orientation(image) < 5 else (height, width)


@contextmanager
def _opened(source: Path | bytes, frame: int | None = None) -> Iterator[Image.Image]:
    """An image in any state, at page `frame` from 1, to be used within the block; an error says what is wrong."""
    if isinstance(source, Path) and not source.is_file():
        reason = "a folder, not an image" if source.is_dir() else "not an ordinary file"
        raise ImageError(reason if source.exists() else "no such file")
    if (source.stat().st_size if isinstance(source, Path) else len(source)) == 0:
        raise ImageError("the file is empty (0 bytes)")
    try:
        # A file is not opened by its name: Pillow would map a plain TIFF into memory, and garble it in turning it.
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
            with quietly():
                image = Image.open(stream)
            with image:
                if frame is not None:
                    image.seek(frame - 1)
                yield image
    except UnidentifiedImageError:
        raise ImageError("not an image that Pillow can read") from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise ImageError(f"claims more than {limit:,} pixels, Pillow's limit; scale it down") from None
    except Exception as error:  # not OSError alone: TypeError, IndexError, whatever its decoders run into
        raise ImageError(f"damaged image ({str(error) or type(error).__name__})") from None


def orientation(image: Image.Image) -> int:
    """How the camera was held, 1 to 8, as the file's header (EXIF) says; nothing is decoded."""
    if image.format == "TIFF":  # Pillow turns these itself
        return 1
    try:
        with quietly():
            # Not PNG's own method, which decodes the image to look behind its pixels as well.
            return int(Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1))
    except (OSError, ValueError, TypeError, LookupError, SyntaxError, struct.error):
        return 1


def upright(image: Image.Image) -> Image.Image:
    """An image just opened, turned the way the camera noted that it was held."""
    turn = _TURNS.get(orientation(image))
    return image if turn is None else image.transpose(turn)


def to_gray(image: Image.Image) -> Image.Image:
    """8-bit grey: transparency laid over white, 16-bit scaled down (Pillow alone would clip it)."""
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value / 257).convert("L")
    if image.mode == "F":  # floating point: in [0, 1] by custom, else in the range of 8 bits
        high = np.asarray(image).max(initial=0.0)
        return image.point(lambda value: value * (255 if high <= 1 else 1)).convert("L")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("L")
    return image.convert("L")


@lru_cache(maxsize=4)
def _open_page(path: Path, changed: int, frame: int | None) -> Image.Image:
    """A page, kept while its lines are cut: readers yield a page's lines together. One that has changed is another."""
    return open_gray(path, frame)


def line_image(sample: Sample) -> Image.Image:
    """The grey image of one line, cut out of its page where it is part of one."""
    if sample.polygon is None and sample.box is None:
        return open_gray(sample.image, sample.frame)
    if isinstance(sample.image, Path) and sample.image.is_file():
        page = _open_page(sample.image, sample.image.stat().st_mtime_ns, sample.frame)
    else:
        page = open_gray(sample.image, sample.frame)
    line = cut_line(page, sample.polygon, sample.box)
    if not line.width or not line.height:
        raise ImageError("its outline is empty or lies outside the page")
    return line


def open_image(image: ImageLike) -> Image.Image:
    """Whatever stands for an image, as 8-bit grey."""
    if isinstance(image, str | os.PathLike):
        return load_line(Path(image))
    if isinstance(image, bytes):
        return open_gray(image)
    if isinstance(image, np.ndarray):
        channels = image.shape[2:]
        if image.dtype != np.uint8 or image.ndim < 2 or channels not in ((), (1,), (3,), (4,)) or not image.size:
            raise SpikeHTRError(
                f"an image array must be bytes [h, w], or [h, w, c] with c = 1 (grey), 3 (RGB) or 4 (RGBA), "
                f"not {image.dtype} {list(image.shape)}"
            )
        image = Image.fromarray(image[..., 0] if channels == (1,) else image)
    if not isinstance(image, Image.Image):
        raise SpikeHTRError(
            f"an image is a path, a PIL image, an array of bytes or a file's bytes, not {type_name(image)}"
        )
    if not image.width or not image.height:
        raise SpikeHTRError(f"an image of {image.width} x {image.height} pixels has nothing to read")
    return to_gray(image)


def type_name(value: object) -> str:
    return "None" if value is None else f"{type(value).__module__}.{type(value).__name__}"
