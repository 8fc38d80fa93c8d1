"""Reading lines and pages with a trained model: the class most people need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self, overload

import numpy as np
import torch
from PIL import Image

from spikehtr.data.images import ImageLike, open_image, type_name
from spikehtr.decoding.decoders import GreedyDecoder, decoder_for
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import LayoutOptions, Segmenter
from spikehtr.pages.read_pages import read_page
from spikehtr.pages.segmenters import segmenter as segmenter_named
from spikehtr.readers import LineReader, Precision, make_reader
from spikehtr.readers.line_reader import POOLED_BATCHES
from spikehtr.results import Line, Page
from spikehtr.results.expected_error import ErrorEstimate
from spikehtr.weights import BUNDLED, load_model


class Recognizer(LineReader):
    """Reads lines and pages. Keeps no state between calls; a line's text does not depend on the lines beside it."""

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] = BUNDLED,
        device: str | torch.device = "cpu",
        precision: Precision = "auto",
        straighten: bool | None = None,
        lm: str | os.PathLike[str] | LanguageModel | None = None,
        beam: int | None = None,
        lm_weight: float | None = None,
    ) -> Self:
        """A model file; the bundled one without `path`.

        `precision`: fp32, bf16, or auto, which is bf16 where the device is faster with it (GPUs that have it; CPUs with
        a tile unit, AMX) and fp32 elsewhere; or fp64, which is slow, but no text hangs on rounding.
        `straighten`: whether lines are made level before they are read; by default as the model has it
        (`data.straighten`).
        `lm`: a language model (`spikehtr lm train`): a file, "bundled" or "none"; by default the one that the model's
        file carries, if any. `beam` and `lm_weight`: how many texts are followed, and what the language model counts;
        by default what it was tuned to.
        """
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise SpikeHTRError(f"device {str(device)!r}: PyTorch finds no GPU here; take device='cpu'")
        loaded = load_model(path)
        config = loaded.config
        if straighten is not None:
            config = config.with_overrides({"data.straighten": straighten})
        net = loaded.net.to(device)
        reader = make_reader(net, precision)
        decoder = decoder_for(loaded.charset, loaded.temperature, lm, loaded.language_model, beam, lm_weight)
        # Of confidences with a language model nothing is known beyond the hands that they were calibrated on.
        estimate = ErrorEstimate.noted(loaded.notes) if isinstance(decoder, GreedyDecoder) else None
        name = Path(path).name
        return cls(net, config, loaded.charset, loaded.temperature, name, reader, decoder=decoder, estimate=estimate)

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
            return self.read_lines([self.fit(open_image(images))])[0]
        if not hasattr(images, "__getitem__"):
            raise SpikeHTRError(f"an image or a list of images can be read, not {type_name(images)}")
        pooled = self.check_batch_size(batch_size) * POOLED_BATCHES
        out: list[Line] = []
        for start in range(0, len(images), pooled):
            out += self.read_lines(
                [self.fit(open_image(image)) for image in images[start : start + pooled]], batch_size
            )
        return out

    def transcribe_page(
        self,
        image: ImageLike,
        segmenter: str | Segmenter = "builtin",
        batch_size: int | None = None,
        layout: LayoutOptions | None = None,
    ) -> Page:
        """Find the lines of a page and read them. `segmenter`: network, rules, kraken, the weight file of a line
        network, or a function of your own; builtin is the one that comes along. `layout`: what is known of the page.

        A path to a PAGE or ALTO file reads the lines it names, in the image it names.
        """
        if isinstance(segmenter, str):
            segmenter = segmenter_named(segmenter, str(next(self.net.parameters()).device), layout)
        return read_page(self, image, segmenter, batch_size)
