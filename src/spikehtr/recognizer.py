"""Reading line images with a trained model: the class most people need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from spikehtr.config import Config
from spikehtr.data.batching import to_batch
from spikehtr.data.geometry import fit_line
from spikehtr.data.images import load_line, to_gray
from spikehtr.decoding.greedy import Decoded, decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.text import Charset
from spikehtr.weights import load_model

ImageLike = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]


class Character(NamedTuple):
    """A character, how sure the model is of it, and the columns [x0, x1) of the image it was read from."""

    character: str
    confidence: float
    x0: float
    x1: float


@dataclass(frozen=True)
class Line:
    """What was read in one line image."""

    text: str
    confidence: float
    characters: list[Character] = field(repr=False)


class Recognizer:
    """Reads lines. Keeps no state between calls; a line's text does not depend on the lines beside it."""

    def __init__(self, net: Network, config: Config, charset: Charset) -> None:
        self.net, self.config, self.charset = net.eval(), config, charset

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        loaded = load_model(path)
        return cls(loaded.net.to(device), loaded.config, loaded.charset)

    @overload  # a string is a path here, not a sequence of them
    def transcribe(self, images: ImageLike, batch_size: int = 16) -> Line: ...  # type: ignore[overload-overlap]
    @overload
    def transcribe(self, images: Sequence[ImageLike], batch_size: int = 16) -> list[Line]: ...

    def transcribe(self, images: ImageLike | Sequence[ImageLike], batch_size: int = 16) -> Line | list[Line]:
        """The Line of an image (path, PIL image, or bytes [h, w] or [h, w, 3]), or of each in a list, in order."""
        if isinstance(images, str | os.PathLike | Image.Image | np.ndarray):
            return next(self._read([images], 1))
        if batch_size < 1:
            raise SpikeHTRError(f"batch_size must be 1 or more, not {batch_size}")
        return list(self._read(images, batch_size))

    @torch.no_grad()
    def _read(self, images: Sequence[ImageLike], batch_size: int) -> Iterator[Line]:
        device = next(self.net.parameters()).device
        for start in range(0, len(images), batch_size):
            originals = [_open(image) for image in images[start : start + batch_size]]
            fitted = [fit_line(image, self.config.model.height, self.config.data.max_width) for image in originals]
            batch, widths = to_batch(fitted)
            out = self.net(batch.to(device), widths)
            decoded = decode_greedy(out.logits, out.lengths, self.charset)
            spans = out.spans.cpu().numpy()
            for row, (line, original, fit) in enumerate(zip(decoded, originals, fitted, strict=True)):
                yield _line(line, spans[row] * self.net.stride, fit.shape[1], original.width)


def _open(image: ImageLike) -> Image.Image:
    if isinstance(image, str | os.PathLike):
        return load_line(Path(image))
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3) or not image.size:
            raise SpikeHTRError(f"an image array must be bytes [h, w] or [h, w, 3], not {image.dtype} {image.shape}")
        image = Image.fromarray(image)
    return to_gray(image)


def _line(decoded: Decoded, spans: NDArray[np.int64], fitted: int, original: int) -> Line:
    """Frames -> fitted pixels, by `spans` [L, 2] -> the image's own columns."""
    scale = original / fitted
    characters = []
    for (character, first, end), confidence in zip(decoded.spans, decoded.confidences, strict=True):
        x0, x1 = spans[first, 0], min(spans[end - 1, 1], fitted)
        characters.append(Character(character, confidence, float(x0 * scale), float(x1 * scale)))
    return Line(decoded.text, decoded.confidence, characters)
