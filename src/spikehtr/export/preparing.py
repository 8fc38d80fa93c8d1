"""Line images as an exported graph takes them. Without torch: onnxruntime, numpy, Pillow and OpenCV are enough."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.geometry import fit_line
from spikehtr.data.images import load_line, to_gray

_STRIDE = 4  # of files that do not note it


def prepare_lines(
    lines: Sequence[str | os.PathLike[str] | Image.Image], header: Mapping[str, str]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Paths or Pillow images of lines -> `images` [batch, channels, height, width] and `widths` [batch].

    `header`: the notes of the exported file. Each line is made level where the model wants that, scaled to its height
    and, where it is too wide, down to its greatest width; what is right of it is white.
    """
    config = json.loads(header["config"])
    height, data = config["model"]["height"], config["data"]
    stride = int(header.get("stride") or _STRIDE)
    grays = [to_gray(line) if isinstance(line, Image.Image) else load_line(Path(line)) for line in lines]
    fitted = [fit_line(gray, height, data["max_width"], data["straighten"]) for gray in grays]
    widths = np.array([line.shape[1] for line in fitted], np.int64)
    dtype = np.float64 if header.get("precision") == "fp64" else np.float32
    images = np.ones((len(fitted), int(header["channels"]), height, -(-int(widths.max()) // stride) * stride), dtype)
    for image, line in zip(images, fitted, strict=True):
        image[..., : line.shape[1]] = line / dtype(255)
    return images, widths
