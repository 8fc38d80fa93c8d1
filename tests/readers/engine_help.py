"""Networks and lines for the CPU engine."""

import numpy as np
import torch

from conftest import draw_line, micro
from spikehtr import SpikeHTR
from spikehtr.data.batching import pad_right


def network(seed=0, **overrides):
    """Weights that do not sit at a threshold by chance stay the network's own: nothing is trained here."""
    torch.manual_seed(seed)
    settings = {"reducer__eta": 9.0, "reducer__gamma": 0.4, "reducer__tau": 1e-6} | overrides
    net = SpikeHTR(micro(**settings).model, 12).eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.dim() == 1:  # norms, biases and scalars: away from their starting values
                p.add_(0.1 * torch.randn_like(p))
            if "head.linear" in name:
                p.mul_(6)
    return net


def batch(*widths, seed=0):
    rng = np.random.default_rng(seed)
    lines = [draw_line("".join(rng.choice(list("abcdefgh"), 12)), seed=int(seed + w)) for w in widths]
    return pad_right(
        [np.ascontiguousarray(np.tile(line, (1, 4))[:, :w]) for line, w in zip(lines, widths, strict=True)]
    )
