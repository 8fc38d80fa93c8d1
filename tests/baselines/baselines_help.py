"""Baselines small enough for a test."""

import torch

from spikehtr.config import Config
from spikehtr.config.baseline_section import AUTOREGRESSIVE, GRIDS
from spikehtr.registry import build

SPELLING = AUTOREGRESSIVE
ARCHS = tuple(name for name in GRIDS if name not in SPELLING)
LABELS = 7
# Of the width, where an eighth of it is hardly a network: ReLUs of two channels may all be at rest.
SCALES = {"gfcn": 1 / 4, "van": 1 / 2, "dan": 1 / 4, "origaminet": 1 / 16}
LONG = ("gfcn", "span", "origaminet", "htr-convtext")  # take seconds to train even so


def small(arch, reducer=False, **overrides):
    """Its preset at a part of the width and a low height; `__` stands for a dot."""
    changes = {
        "model.baseline.scale": SCALES.get(arch, 1 / 8),
        "model.height": 32,
        "data.max_width": 96,
        "data.workers": 0,
    }
    if reducer:
        changes |= {"model.reducer.mode": "keep-and-merge", "training.aux_weight": 0.2}
    changes |= {key.replace("__", "."): value for key, value in overrides.items()}
    return Config.preset(arch).with_overrides(changes)


def net(arch, seed=0, **overrides):
    """In float64 and evaluation mode, with running statistics as after some training: at rest a norm hides mistakes."""
    torch.manual_seed(seed)
    made = build(small(arch, **overrides).model, LABELS).double()
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for name, value in (("running_mean", 0.3), ("weight", 0.3), ("bias", 0.5)):
                getattr(module, name).data += value * torch.randn(module.num_features, dtype=torch.double)
            module.running_var *= 0.5 + torch.rand(module.num_features, dtype=torch.double)
    return made.eval()
