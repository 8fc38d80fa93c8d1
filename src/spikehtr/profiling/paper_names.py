"""The paper's names for the network's parts: Enc-S1-B0-PW1, Seq-4-LK-OUT."""

from __future__ import annotations

import re

from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.spike_htr import SpikeHTR

ENCODER, MIXER = "2D encoder", "1D mixer"


def spiking_modules(net: SpikeHTR) -> dict[str, MultiStepLIF]:
    """Every spiking neuron layer by its paper name, in the order of the forward pass. Empty for the GELU control."""
    return {_paper_name(net, path): m for path, m in net.named_modules() if isinstance(m, MultiStepLIF)}


def group(name: str) -> str:
    """Which of the paper's two groups a module belongs to."""
    return ENCODER if name.startswith("Enc-") else MIXER


def _paper_name(net: SpikeHTR, path: str) -> str:
    if found := re.fullmatch(r"encoder\.stage(\d)\.conv\.neuron", path):
        return f"Enc-S{found[1]}-CONV"
    if found := re.fullmatch(r"encoder\.stage(\d)\.blocks\.(\d+)\.(\w+)\.neuron", path):
        return f"Enc-S{found[1]}-B{found[2]}-{found[3].upper()}"
    if found := re.fullmatch(r"mixer\.blocks\.(\d+)\.(operator|mlp)\.(\w+?)[._]neuron", path):
        index, part, site = found.groups()
        operator = "MLP" if part == "mlp" else net.config.mixer.operators[int(index)]
        return f"Seq-{index}-{operator}-{site.upper()}"
    raise KeyError(f"a spiking module without a name: {path}")
