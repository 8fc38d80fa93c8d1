"""Reading line images with a trained model: the class most people need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from spikehtr.config import Config
from spikehtr.data.batching import pad_right
from spikehtr.data.geometry import fit_line
from spikehtr.data.images import load_line, open_gray, to_gray
from spikehtr.decoding.greedy import Decoded, Frames, best_frames, decode_frames
from spikehtr.errors import SpikeHTRError
from spikehtr.inference import Precision, Reader, make_reader, precision_of
from spikehtr.model.network import Network
from spikehtr.model.reducer import HostCopy
from spikehtr.text import Charset
from spikehtr.weights import BUNDLED, load_model

if TYPE_CHECKING:
    from spikehtr.pages.segmenting import Segmenter
    from spikehtr.pages.tree import Page

ImageLike = str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | bytes  # bytes: an encoded image file
WINDOW = 16  # batches whose lines are sorted by width together, so that little is padded


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


class Fitted(NamedTuple):
    """A line image as the network takes it, and the width it had before."""

    pixels: NDArray[np.uint8]  # [height, w]
    original: int


class Recognizer:
    """Reads lines and pages. Keeps no state between calls; a line's text does not depend on the lines beside it."""

    def __init__(
        self,
        net: Network,
        config: Config,
        charset: Charset,
        temperature: float = 1.0,
        name: str = "a model",
        reader: Reader | None = None,
        precision: str | None = None,
    ) -> None:
        """`temperature` divides the logits: above 1 it lowers confidences that are too high, and changes no text.

        `reader` runs the network; by default the fastest way there is on its device. `precision` is what results say
        of it; by default what the reader computes in.
        """
        if not temperature > 0:
            raise SpikeHTRError(f"temperature must be above 0, not {temperature}")
        self.net, self.config, self.charset = net.eval(), config, charset
        self.temperature, self.name = temperature, name
        self.reader = reader or make_reader(self.net)
        self.precision = precision_of(self.reader) if precision is None else precision

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] = BUNDLED,
        device: str | torch.device = "cpu",
        precision: Precision = "auto",
        straighten: bool | None = None,
    ) -> Self:
        """A model file; the bundled one without `path`.

        `precision`: fp32, bf16, or auto, which is bf16 where the device is faster with it (GPUs that have it; CPUs with
        a tile unit, AMX) and fp32 elsewhere; or fp64, which is slow, but no text hangs on rounding.
        `straighten`: whether lines are made level before they are read; by default as the model has it
        (`data.straighten`).
        """
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise SpikeHTRError(f"device {str(device)!r}: PyTorch finds no GPU here; take device='cpu'")
        loaded = load_model(path)
        config = loaded.config
        if straighten is not None:
            config = config.with_overrides({"data.straighten": straighten})
        net = loaded.net.to(device)
        reader = make_reader(net, precision)
        return cls(net, config, loaded.charset, loaded.temperature, Path(path).name, reader)

    @overload  # a string is a path here, not a sequence of them
    def transcribe(self, images: ImageLike, batch_size: int | None = None) -> Line: ...  # type: ignore[overload-overlap]
    @overload
    def transcribe(self, images: Sequence[ImageLike], batch_size: int | None = None) -> list[Line]: ...

    def transcribe(self, images: ImageLike | Sequence[ImageLike], batch_size: int | None = None) -> Line | list[Line]:
        """The Line of an image, or of each in a list, in order.

        An image is a path, a PIL image, an array of bytes ([h, w] grey, or [h, w, c] with c = 1, 3 or 4 for grey, RGB
        or RGBA), or the bytes of an image file. What comes from a file is turned upright, as its EXIF says.
        `batch_size`: lines read at a time; by default what suits the device, 16 on a CPU and 128 on a GPU.
        """
        if isinstance(images, str | os.PathLike | Image.Image | np.ndarray | bytes):
            return self.read([self.fit(images)])[0]
        if not hasattr(images, "__getitem__"):
            raise SpikeHTRError(f"an image or a list of images can be read, not {_kind(images)}")
        batch_size = self.reader.batch_size if batch_size is None else batch_size
        if batch_size < 1:
            raise SpikeHTRError(f"batch_size must be 1 or more, not {batch_size}")
        out: list[Line] = []
        for start in range(0, len(images), batch_size * WINDOW):
            out += self.read_many(
                [self.fit(image) for image in images[start : start + batch_size * WINDOW]], batch_size
            )
        return out

    def transcribe_page(
        self,
        image: ImageLike,
        segmenter: str | Segmenter = "builtin",
        batch_size: int | None = None,
    ) -> Page:
        """Find the lines of a page and read them. `segmenter`: builtin, kraken, or a function of your own.

        A path to a PAGE or ALTO file reads the lines it names, in the image it names.
        """
        from spikehtr.pages.reading import read_page

        return read_page(self, image, segmenter, batch_size or self.reader.batch_size)

    def fit(self, image: ImageLike) -> Fitted:
        """A line image made the network's input."""
        gray = open_image(image)
        data = self.config.data
        return Fitted(fit_line(gray, self.config.model.height, data.max_width, data.straighten), gray.width)

    def read_many(self, lines: Sequence[Fitted], batch_size: int) -> list[Line]:
        """Any number of lines, in batches of like width; in the order they came."""
        order = sorted(range(len(lines)), key=lambda index: lines[index].pixels.shape[1])
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        out: dict[int, Line] = {}
        started: tuple[list[int], _Started] | None = None
        for rows in [*batches, None]:  # a GPU reads one batch while the host decodes the one before
            ahead = None if rows is None else (rows, self._start([lines[row] for row in rows]))
            if started is not None:
                out.update(zip(started[0], self._finish(started[1]), strict=True))
            started = ahead
        return [out[index] for index in range(len(lines))]

    def read(self, lines: Sequence[Fitted]) -> list[Line]:
        """One batch."""
        return self._finish(self._start(lines))

    @torch.no_grad()
    def _start(self, lines: Sequence[Fitted]) -> _Started:
        """Ask for a batch. A GPU has then begun with it."""
        out = self.reader(*pad_right([line.pixels for line in lines]))
        return _Started(lines, best_frames(out.logits / self.temperature, out.lengths), HostCopy(out.spans))

    def _finish(self, started: _Started) -> list[Line]:
        """Wait for it, and decode it."""
        decoded = decode_frames(started.frames, self.charset)
        spans = started.spans.wait().numpy() * self.net.stride
        return [
            _line(text, places, line.pixels.shape[1], line.original)
            for text, places, line in zip(decoded, spans, started.lines, strict=True)
        ]


class _Started(NamedTuple):
    """A batch that is being read."""

    lines: Sequence[Fitted]
    frames: Frames
    spans: HostCopy  # [B, L, 2]


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
        raise SpikeHTRError(f"an image is a path, a PIL image, an array of bytes or a file's bytes, not {_kind(image)}")
    if not image.width or not image.height:
        raise SpikeHTRError(f"an image of {image.width} x {image.height} pixels has nothing to read")
    return to_gray(image)


def _kind(value: object) -> str:
    return "None" if value is None else f"{type(value).__module__}.{type(value).__name__}"


def _line(decoded: Decoded, spans: NDArray[np.int64], fitted: int, original: int) -> Line:
    """Frames -> fitted pixels, by `spans` [L, 2] -> the image's own columns."""
    scale = original / fitted
    characters = []
    for (character, first, end), confidence in zip(decoded.spans, decoded.confidences, strict=True):
        x0, x1 = spans[first, 0], min(spans[end - 1, 1], fitted)
        characters.append(Character(character, confidence, float(x0 * scale), float(x1 * scale)))
    return Line(decoded.text, decoded.confidence, characters)
