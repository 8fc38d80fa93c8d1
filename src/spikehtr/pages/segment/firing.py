"""How much the neurons of a spiking line network fire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.pages.segment.line_network import LineNetwork, Neurons
from spikehtr.pages.segment.maps import MULTIPLE


@torch.no_grad()
def firing(network: LineNetwork, images: Iterable[NDArray[np.uint8]]) -> dict[str, float]:
    """Over all neurons at all places of these pages: spikes a neuron, and the share that fires at all."""
    count, spikes, fired = 0, 0.0, 0

    def note(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal count, spikes, fired
        count += output.numel()
        spikes += float(output.sum(dtype=torch.float64))
        fired += int((output > 0).sum())

    hooks = [m.register_forward_hook(note) for m in network.modules() if isinstance(m, Neurons)]
    device = next(network.parameters()).device
    try:
        for image in images:
            rows, columns = (side - side % MULTIPLE for side in image.shape)
            if rows and columns:
                network(torch.from_numpy(image[None, None, :rows, :columns]).to(device) / 255)
    finally:
        for hook in hooks:
            hook.remove()
    return {"spikes a neuron": spikes / max(1, count), "neurons that fire": fired / max(1, count)}
