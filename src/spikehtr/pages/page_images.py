"""The pages of PDF and TIFF files as image files of their own, beside the results, which then name them.

Programs that import PAGE or ALTO, and training, want one image a page. A PNG of ours notes which page of which file it
is, so that it is known for a result of that file where both are among the inputs.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from spikehtr.data.images import quietly, to_gray

SUFFIX = ".png"
_NOTE = "spikehtr-page"  # the key of a PNG's text
_MODES = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}  # that PNG can hold
_COMPRESSION = 3  # of 9: half the time of the default for a few per cent in size


def page_image(image: Image.Image, source: str, page: int, dpi: int | None = None) -> bytes:
    """The PNG file of a page, from 1, of a file."""
    image = _for_png(image)
    note = PngInfo()
    note.add_text(_NOTE, json.dumps({"source": source, "page": page}))
    kept = {key: image.info[key] for key in ("dpi", "icc_profile", "transparency") if image.info.get(key) is not None}
    if dpi is not None:
        kept["dpi"] = (dpi, dpi)
    data = io.BytesIO()
    image.save(data, "PNG", pnginfo=note, compress_level=_COMPRESSION, **kept)
    return data.getvalue()


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
    about = _about(path) if path.suffix.lower() == SUFFIX and path.is_file() else None  # a pipe would never end
    return path.parent / about["source"] if about else None


def _about(path: Path) -> dict[str, str] | None:
    """What a PNG of ours notes; None of any other file."""
    try:
        with quietly(), Image.open(path) as image:
            about = json.loads(image.info.get(_NOTE, "null"))
    except Exception:  # whatever is wrong with it is told when it is read
        return None
    good = isinstance(about, dict) and isinstance(about.get("source"), str)
    return about if good and Path(about["source"]).name == about["source"] else None
