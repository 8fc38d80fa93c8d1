"""Every variant of the network, at a size for tests."""

import torch

from conftest import draw_line, micro
from spikehtr import SpikeHTR
from spikehtr.config.presets import TIERS
from spikehtr.data.batching import to_batch

_SIZES = ("dim", "channels", "depths", "expansion", "heads", "mlp_ratio", "lk_kernel", "lk_expansion")


def own_settings(preset):
    """What a preset sets beside the network's size; of blocks in a row that are alike, two."""
    found = {}
    for key, value in flat(TIERS[preset].get("model", {})):
        if key.split("__")[-1] not in _SIZES:
            found[key] = value
    if blocks := found.get("mixer__blocks"):
        found["mixer__blocks"] = [b for i, b in enumerate(blocks) if blocks[max(0, i - 2) : i].count(b) < 2]
    return found


def flat(settings, above=""):
    for key, value in settings.items():
        yield from flat(value, f"{above}{key}__") if isinstance(value, dict) else [(above + key, value)]


VARIANTS = {
    **{f"preset {name}": own_settings(name) for name in TIERS if TIERS[name]},
    "default": {},
    "T=1": {"timesteps": 1},
    "T=4": {"timesteps": 4},
    "repeat": {"entry": "repeat"},
    "poisson": {"entry": "poisson"},
    "ttfs": {"entry": "ttfs"},
    "intensity-only": {"inkcoder__evidence": "intensity"},
    "edge-only": {"inkcoder__evidence": "edge"},
    "fixed-theta": {"inkcoder__theta": "fixed"},
    "no-reduction": {"reducer__mode": "none"},
    "prune-only": {"reducer__mode": "prune-only"},
    "merge-only": {"reducer__mode": "merge-only"},
    "preview-gradient": {"reducer__preview_gradient": True},
    "no-bypass": {"encoder__bypass": False},
    "no-dual-resolution": {"encoder__dual_resolution": False},
    "avg-only": {"encoder__downsample": "avg"},
    "max-only": {"encoder__downsample": "max"},
    "all-LA": {"mixer__layout": "all-LA"},
    "all-QK": {"mixer__layout": "all-QK"},
    "all-LK": {"mixer__layout": "all-LK"},
    "all-SR": {"mixer__layout": "all-SR"},
    "ann-isomorphic": {"neuron": "gelu", "timesteps": 1},
    "ann-pure": {"neuron": "gelu", "timesteps": 1, "entry": "repeat", "encoder__bypass": False},
    "grey": {"in_channels": 1},
    "sigmoid": {"lif__surrogate": "sigmoid"},
    "spikes-first": {"encoder__spikes_first": True},
    "stem-2x2": {"encoder__stem_stride": [2, 2], "encoder__strides": [[1, 1], [2, 2], [2, 1]]},
    "stem-4x4": {
        "encoder__stem_stride": [4, 4],
        "encoder__strides": [[1, 1], [2, 1], [1, 1]],
        "encoder__channels": [4, 12],
    },
    "stem-4x1": {"encoder__stem_stride": [4, 1], "encoder__strides": [[1, 1], [1, 2], [2, 2]]},
}


WORDS = ["ink", "a rather long line", "so", "spiking"]


def build(seed=0, **overrides):
    """A micro network whose untrained preview calls many positions blank, so that reduction has work to do."""
    torch.manual_seed(seed)
    overrides = {"reducer__eta": 9.0, "reducer__gamma": 0.4} | overrides
    net = SpikeHTR(micro(**overrides).model, 12)
    with torch.no_grad():
        net.head.linear.weight *= 4
        net.head.linear.bias[0] = 9.0
    return net.eval()


def batch(dtype=torch.float32):
    images, widths = to_batch([draw_line(word, seed=i) for i, word in enumerate(WORDS)])
    return images.to(dtype), widths
