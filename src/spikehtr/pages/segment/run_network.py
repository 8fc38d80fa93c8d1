"""Images of any sizes through the line network, on a GPU in batches."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import torch

from spikehtr.pages.segment.line_network import LineNetwork
from spikehtr.pages.segment.maps import COARSE, FINE, MULTIPLE, Gray, Logits

PADDED = 2 * MULTIPLE  # sides are padded to multiples of this, alone or in a batch: so that scans of a kind share one
BATCH_PIXELS = 24_000_000  # that go through a GPU together


def look_at(network: LineNetwork, images: Sequence[Gray], half: bool = False) -> list[Logits]:
    """The maps of images, whose sides are made multiples of PADDED by repeating the last row and column.

    On a GPU images of one padded size go through together; what is said of one does not depend on the others. `half`:
    in bf16.
    """
    on_gpu = next(network.parameters()).device.type == "cuda"
    together: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        together.setdefault(tuple(side + -side % PADDED for side in image.shape), []).append(number)
    out: dict[int, Logits] = {}
    for (height, width), numbers in together.items():
        most = max(1, BATCH_PIXELS // (height * width)) if on_gpu else 1
        for first in range(0, len(numbers), most):
            batch = numbers[first : first + most]
            fine, coarse = _run(network, [images[number] for number in batch], height, width, half)
            for number, *maps in zip(batch, fine, coarse, strict=True):
                (h, w), (f, c) = images[number].shape, maps
                out[number] = Logits(f[:, : -(-h // FINE), : -(-w // FINE)], c[:, : -(-h // COARSE), : -(-w // COARSE)])
    return [out[number] for number in range(len(images))]


def _run(
    network: LineNetwork, images: Sequence[Gray], height: int, width: int, half: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Both maps of images of one padded size."""
    device = next(network.parameters()).device
    padded = [
        cv2.copyMakeBorder(one, 0, height - one.shape[0], 0, width - one.shape[1], cv2.BORDER_REPLICATE)
        for one in images
    ]
    # What was computed in bf16 keeps its value in 16 bits that numpy knows: half of what a GPU has to send.
    kept = torch.float16 if half and device.type == "cuda" else torch.float32
    with torch.inference_mode():
        given = torch.from_numpy(np.stack(padded)).to(device)[:, None].float() / 255
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            fine, coarse = network(given.contiguous(memory_format=torch.channels_last))
        return fine.to(kept).cpu().numpy(), coarse.to(kept).cpu().numpy()
