"""Spike-HTR as a recognition model of kraken 7: the class its registry `kraken.models` finds for our exported files.

kraken makes the model from the file's `kraken_meta`, loads the weights into it, and hands it pages with their lines.
Lines are cut out and read as everywhere here, so the text is that of `spikehtr transcribe` for the same outlines.
Imported by kraken alone: nothing else here needs kraken to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from kraken.containers import BaselineOCRRecord, BBoxOCRRecord
from kraken.models.base import RecognitionBaseModel
from lightning.fabric import Fabric
from PIL import Image
from torch import nn

from spikehtr.config import Config
from spikehtr.data.geometry import FittedLine, cut_line
from spikehtr.data.images import to_gray
from spikehtr.decoding.decoders import decoder_for
from spikehtr.export.kraken_files import MINIMUM, LanguageModelBuffers
from spikehtr.pages.word_boxes import slice_box
from spikehtr.readers import Precision, make_reader
from spikehtr.readers.line_reader import POOLED_BATCHES, LineReader
from spikehtr.registry import build
from spikehtr.results import Line
from spikehtr.text import Charset


class SpikeHTRModel(nn.Module, RecognitionBaseModel):  # type: ignore[misc]
    """What kraken's `ocr` and its tasks call. Takes lines with baselines and lines with boxes alike."""

    _kraken_min_version: ClassVar[str] = MINIMUM

    def __init__(
        self,
        config: dict[str, Any],
        charset: Sequence[str],
        temperature: float = 1.0,
        language_model: dict[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """`language_model`: what `LanguageModelBuffers` is made of, where the file has one. `others`: what else stands
        in the file, kept for whom it may concern when kraken writes the model again."""
        super().__init__()
        self.config, self.charset = Config.from_dict(config, "the model's file"), Charset(tuple(charset))
        self.net = build(self.config.model, len(self.charset))
        self.user_metadata = others | {"config": config, "charset": list(charset), "temperature": temperature}
        self.user_metadata.pop("model_type", None)
        self.language_model = LanguageModelBuffers(language_model) if language_model else None
        if language_model:
            self.user_metadata["language_model"] = language_model
        self._inference: Any = None
        self._recognizer: LineReader | None = None
        self._ready: tuple[Any, Precision, float] | None = None  # what the recogniser was made for

    @property
    def model_type(self) -> list[str]:
        return ["recognition"]

    def prepare_for_inference(self, config: Any) -> None:
        """Move to the device that kraken's configuration asks for; half precision is bf16, whatever its kind.

        kraken calls it for every page: what is ready is not made again.
        """
        device = Fabric(accelerator=config.accelerator, devices=config.device).device
        asked = str(config.precision)
        precision: Precision = "fp64" if "64" in asked else "fp32" if "32" in asked else "bf16"
        temperature = self.user_metadata["temperature"] * config.temperature
        self._inference = config
        if self._recognizer is None or self._ready != (device, precision, temperature):
            reader = make_reader(self.net.to(device).eval(), precision)
            carried = self.language_model.model() if self.language_model else None
            decoder = decoder_for(self.charset, temperature, carried=carried)
            self._recognizer = LineReader(
                self.net, self.config, self.charset, temperature, reader=reader, decoder=decoder
            )
            self._ready = device, precision, temperature

    def predict(self, im: Image.Image, segmentation: Any) -> Iterator[Any]:
        """A record for each line of the page, in order; one without text where a line is empty or off the page."""
        if self._recognizer is None:
            raise RuntimeError("prepare_for_inference comes first")
        page = to_gray(im)
        ahead = POOLED_BATCHES * max(1, self._inference.batch_size)
        for start in range(0, len(segmentation.lines), ahead):
            yield from self._records(page, segmentation.lines[start : start + ahead], self._recognizer)

    def _records(self, page: Image.Image, lines: Sequence[Any], recognizer: LineReader) -> Iterator[Any]:
        cut = [_cut(page, line) for line in lines]
        fitted: list[FittedLine] = [recognizer.fit(image) for image in cut if image is not None]
        read = iter(recognizer.read_lines(fitted, max(1, self._inference.batch_size)))
        for line, image in zip(lines, cut, strict=True):
            record = _record(line, None if image is None else next(read), image, self._inference)
            direction = self._inference.bidi_reordering
            if direction:
                yield record.logical_order(base_dir=direction if direction in ("L", "R") else None)
            else:
                yield record.display_order(None)


def _cut(page: Image.Image, line: Any) -> Image.Image | None:
    """The line's part of the page, None where there is none."""
    if line.type == "bbox":
        left, top, right, bottom = map(float, line.bbox)
        image = cut_line(page, None, (left, top, right, bottom))
    elif line.boundary:
        image = cut_line(page, [(float(x), float(y)) for x, y in line.boundary])
    else:
        return None
    return image if image.width and image.height else None


def _record(line: Any, read: Line | None, image: Image.Image | None, config: Any) -> Any:
    """kraken's record of a line, in the order in which characters stand on the page."""
    kind = BBoxOCRRecord if line.type == "bbox" else BaselineOCRRecord
    characters = read.characters if read is not None else []
    text, sure = "".join(c.character for c in characters), [c.confidence for c in characters]
    spans = [(c.x0, c.x1) for c in characters]
    cuts = _boxes(line.bbox, spans) if line.type == "bbox" else _along(line, spans)
    return kind(text, cuts, sure, line, image=image if config.return_line_image else None)


def _boxes(bbox: Sequence[int], spans: Sequence[tuple[float, float]]) -> list[list[list[int]]]:
    """Columns of the line image as boxes on the page."""
    left, top, right, bottom = bbox
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    out = []
    for x0, x1 in spans:
        a, b, c, d = (round(value) for value in slice_box(corners, left + x0, left + x1))
        out.append([[a, b], [a, d], [c, d], [c, b]])
    return out


def _along(line: Any, spans: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Columns of the line image as distances along the baseline, in pixels, which is how kraken has them."""
    points = np.asarray(line.baseline, dtype=np.float64).reshape(-1, 2)
    if len(points) < 2:
        return [[round(x0), round(x1)] for x0, x1 in spans]
    done = np.concatenate([[0.0], np.hypot(*np.diff(points, axis=0).T).cumsum()])
    order = np.argsort(points[:, 0], kind="stable")  # np.interp wants rising x; baselines seldom turn back
    left = max(0, round(min(x for x, _ in line.boundary) - 1))  # where `cut_line` begins
    places = np.interp(np.array(spans).reshape(-1, 2) + left, points[order, 0], done[order])
    return [[round(low), round(high)] for low, high in np.sort(places, axis=1).tolist()]
