"""How a line image becomes the network's input. One implementation for training, evaluation and transcription.

Height 64 by bicubic interpolation with the aspect kept; a line that would be wider than the maximum is scaled down
further, aspect still kept, and stands in the middle of a 64-pixel canvas filled with the paper's level. Right padding
is the batch's business.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from spikehtr.errors import SpikeHTRError


def load_line(path: str | os.PathLike[str]) -> Image.Image:
    """A line image as 8-bit grey; a file that is not one is an error that names it."""
    if not Path(path).is_file():
        raise SpikeHTRError(f"{path}: no such file")
    try:
        with Image.open(path) as image:
            return image.convert("L")
    except UnidentifiedImageError:
        raise SpikeHTRError(f"{path}: not an image that Pillow can read") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise SpikeHTRError(f"{path}: damaged or too large an image ({error})") from None


def paper_level(gray: NDArray[np.uint8]) -> int:
    """The grey level of the background: the median, since most of a line is paper."""
    return int(np.median(gray))


def fit_line(image: Image.Image, height: int, max_width: int) -> NDArray[np.uint8]:
    """Grey [height, w] with w <= max_width."""
    gray = image.convert("L")
    width = max(1, round(gray.width * height / gray.height))
    tall = height
    if width > max_width:
        width, tall = max_width, max(1, round(gray.height * max_width / gray.width))
    resized = np.asarray(gray.resize((width, tall), Image.Resampling.BICUBIC))
    if tall == height:
        return resized
    canvas = np.full((height, width), paper_level(resized), np.uint8)
    top = (height - tall) // 2
    canvas[top : top + tall] = resized
    return canvas


def to_batch(lines: list[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Fitted lines of one height -> images [B, 1, H, W] in [0, 1], right-padded with white, and widths [B]."""
    widths = torch.tensor([line.shape[1] for line in lines])
    images = torch.ones(len(lines), 1, lines[0].shape[0], int(widths.max()))
    for row, line in zip(images, lines, strict=True):
        row[0, :, : line.shape[1]] = torch.from_numpy(line.astype(np.float32) / 255)
    return images, widths
