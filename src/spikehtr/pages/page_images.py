"""The pages of PDF and TIFF files as image files of their own, beside the results, which then name them.

Programs that import PAGE or ALTO, and training, want one image a page. A PNG of ours notes which page of which file it
is, and a digest of its pixels: so it is known again, and one that somebody changed is never replaced.
"""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from spikehtr.data.images import ImageError, open_whole, quietly, to_gray
from spikehtr.files import whole_file

SUFFIX = ".png"
_NOTE = "spikehtr-page"  # the key of a PNG's text
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}  # that PNG can hold
_COMPRESSION = 3  # of 9: half the time of the default for a few per cent in size


def save_image(image: Image.Image, path: Path, source: str, page: int, dpi: int | None = None) -> None:
    """Write the image of a page of a file, from 1. An OSError where a file has its name that we did not write, or that
    was changed since."""
    if path.exists() and not _unchanged(path):
        reason = f"{path.name} is there and not as we write it: move it away, or give another folder"
        raise FileExistsError(errno.EEXIST, reason)
    image = _for_png(image)
    note = PngInfo()
    note.add_text(_NOTE, json.dumps({"source": source, "page": page, "pixels": _digest(image)}))
    kept = {key: image.info[key] for key in ("dpi", "icc_profile", "transparency") if image.info.get(key) is not None}
    if dpi is not None:
        kept["dpi"] = (dpi, dpi)
    with whole_file(path) as temporary:
        image.save(temporary, "PNG", pnginfo=note, compress_level=_COMPRESSION, **kept)


def _for_png(image: Image.Image) -> Image.Image:
    """In a mode that PNG can hold; grey where all colours are grey, since that is a third of the size."""
    if image.mode == "RGB":
        red, green, blue = np.asarray(image).transpose(2, 0, 1)
        return image.getchannel(0) if (red == green).all() and (green == blue).all() else image
    if image.mode in _MODES:
        return image
    if image.mode.startswith("I"):
        return image.convert("I").convert("I;16")
    return to_gray(image) if image.mode == "F" else image.convert("RGB")


def made_from(path: Path) -> Path | None:
    """The PDF or TIFF file of which a PNG is a page that we wrote; in the same folder."""
    about = _about(path) if path.suffix.lower() == SUFFIX else None
    return path.parent / about["source"] if about else None


def _about(path: Path) -> dict[str, str] | None:
    """What a PNG of ours notes; None of any other file."""
    try:
        with quietly(), Image.open(path) as image:
            about = json.loads(image.info.get(_NOTE, "null"))
    except Exception:  # whatever is wrong with it is told when it is read
        return None
    good = isinstance(about, dict) and isinstance(about.get("source"), str) and isinstance(about.get("pixels"), str)
    return about if good and Path(about["source"]).name == about["source"] else None


def _unchanged(path: Path) -> bool:
    about = _about(path)
    try:
        return about is not None and _digest(open_whole(path)) == about["pixels"]
    except ImageError:
        return False


def _digest(image: Image.Image) -> str:
    """Of the pixels alone: a program may rewrite a file and its notes without touching them."""
    pixels = np.asarray(image.convert("RGBA") if image.mode in ("P", "1") else image)
    return hashlib.blake2b(f"{image.size}".encode() + pixels.tobytes(), digest_size=16).hexdigest()
