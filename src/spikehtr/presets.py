"""The capacity tiers of Table 12, as what they change in the tree's defaults; base is those defaults.

What the paper leaves open (depths, heads, ConvMix expansion) was worked out from its parameter counts: docs/network.md.
"""

from __future__ import annotations

from typing import Any

_NO_AUX = {"aux_weight": 0.0, "kl_weight": 0.0}
TIERS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": {
            "dim": 384,
            "encoder": {"depths": (1, 1, 2), "expansion": 2.5},
            "reducer": {"gamma": 0.75, "tau": 0.90},
            "mixer": {
                "blocks": ("LA", "QK", "LK", "LA"),
                "heads": 6,
                "mlp_ratio": 2.5,
                "lk_kernel": 15,
                "lk_expansion": 1.0,
            },
        },
        "training": _NO_AUX,
    },
    "small": {
        "model": {
            "dim": 512,
            "encoder": {"depths": (1, 1, 3), "expansion": 3.0},
            "mixer": {
                "blocks": ("LA", "QK", "LK", "LA"),
                "heads": 8,
                "mlp_ratio": 3.0,
                "lk_kernel": 21,
                "lk_expansion": 1.25,
            },
        },
    },
    "medium": {
        "model": {
            "dim": 640,
            "encoder": {"depths": (1, 1, 4), "expansion": 3.5},
            "mixer": {
                "blocks": ("LA", "QK", "QK", "LK", "LA"),
                "heads": 10,
                "mlp_ratio": 3.5,
                "lk_kernel": 27,
                "lk_expansion": 1.6,
            },
        },
    },
    "base": {},
}
PRESETS = tuple(TIERS)
