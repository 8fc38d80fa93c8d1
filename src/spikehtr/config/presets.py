"""Presets, as what they change in the tree's defaults: the capacity tiers of Table 12 and the baselines.

What the paper leaves open (depths, heads, ConvMix expansion) was worked out from its parameter counts:
docs/explanation/network.md.
"""

from __future__ import annotations

from typing import Any

_NO_AUX = {"aux_weight": 0.0, "kl_weight": 0.0}
# Swift's and fine's. The price is there for a mean firing rate over layers of 0.06 or less
# (docs/explanation/training-spikes.md).
_RECIPE = {
    "batch_size": 64,
    "optimizer": "muon",
    "learning_rate": 1e-3,
    "hold": 0.8,
    "weight_decay": 0.2,
    "ema_decay": 0.999,
    "firing_penalty": 10.0,
    "firing_target": 0.0165,
}
_LINES = {
    "max_width": 1024,
    "straighten": True,
    "augment": {
        "probability": 1.0,
        "rotate": 2.0,
        "shear": 0.65,
        "scale": 0.25,
        "shift": 0.08,
        "stretch": 0.33,
        "elastic": 3.3,
        "noise": 0.07,
        "stroke": 1.0,
        "blank": 0.02,
    },
}
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
    # Not of the paper, but what its diagnosis asks for: a coarse grid from the start, and the widths and depth that
    # saves in stage 3 and the mixer (docs/explanation/speed.md). Width, mixer, neurons, their start, bursts, gamma,
    # lines and training are what read best, most of it on many writers (docs/explanation/training-spikes.md).
    "swift": {
        "model": {
            "dim": 256,
            "timesteps": 1,
            "in_channels": 1,
            "lif": {"start_bias": -0.5},
            "encoder": {
                "stem_stride": (4, 2),
                "strides": ((1, 1), (2, 2), (2, 1)),
                "channels": (64, 128),
                "depths": (1, 1, 3),
                "expansion": 2.0,
                "neurons": "read",
                "bypass_init": 1.0,  # with neurons=all
                "pw1_start_bias": 0.0,
                "pw1_burst": 8,
            },
            "reducer": {"gamma": 0.4},
            "mixer": {
                "blocks": ("LK", "SR", "LK", "SR", "LK", "SR"),
                "heads": 4,
                "mlp_ratio": 2.5,
                "lk_kernel": 15,
                "lk_expansion": 1.0,
                "neurons": "alone",
                "start_bias": 0.0,
                "burst": 8,
            },
        },
        "data": _LINES,
        "training": _RECIPE,
    },
    # Ours too, for accuracy: tiny's width on half its rows (and columns, up to stage 2) and lines twice as wide, with
    # swift's recipe.
    "fine": {
        "model": {
            "dim": 384,
            "timesteps": 1,
            "in_channels": 1,
            "lif": {"start_bias": -0.5},
            "encoder": {
                "stem_stride": (2, 2),
                "strides": ((1, 1), (2, 2), (2, 1)),
                "depths": (1, 1, 2),
                "expansion": 2.5,
                "neurons": "read",
                "bypass_init": 1.0,  # with neurons=all
                "pw1_start_bias": 0.0,
                "pw1_burst": 8,
            },
            "reducer": {"gamma": 0.4, "k": 12},
            "mixer": {
                "blocks": ("LK", "SR", "LK", "SR", "LK", "SR"),
                "heads": 6,
                "mlp_ratio": 2.0,
                "lk_kernel": 15,
                "lk_expansion": 1.0,
                "neurons": "alone",
                "start_bias": 0.0,
                "burst": 8,
            },
        },
        "data": _LINES,
        "training": _RECIPE,
    },
}


def _baseline(arch: str, height: int, max_width: int, **training: float) -> dict[str, Any]:
    return {
        "model": {"arch": arch, "height": height, "in_channels": 1, "reducer": {"mode": "none"}},
        "data": {"max_width": max_width},
        "training": _NO_AUX | training,
    }


def _with(preset: dict[str, Any], baseline: dict[str, float]) -> dict[str, Any]:
    return preset | {"model": preset["model"] | {"baseline": baseline}}


# Widths keep the paper's canvas, 8 times as wide as high. Training values are the sources' where our loop has them
# (docs/reference/baselines.md); schedule, averaging and clipping are shared.
BASELINES: dict[str, dict[str, Any]] = {
    # Puigcerver 2017, experimental setup: batches of 16, learning rate 3e-4 (with RMSProp).
    "cnn-blstm": _baseline("cnn-blstm", 128, 1024, batch_size=16, learning_rate=3e-4),
    # The units of this CRNN are a reading, and so is how it is trained: as CNN+BLSTM.
    "crnn": _baseline("crnn", 60, 960, batch_size=16, learning_rate=3e-4),
    # Bluche and Messina 2017: 4e-4 (with RMSProp). The batch is ours.
    "gated-crnn": _baseline("gated-crnn", 128, 1024, batch_size=16, learning_rate=4e-4),
    # Retsinas et al. 2022, training details: 240 epochs, learning rate 1e-3, 0.1 times the shortcut's loss. Batch size
    # and weight decay are their code's.
    "retsinas": _baseline(
        "retsinas", 128, 1024, batch_size=16, learning_rate=1e-3, weight_decay=5e-5, epochs=240, aux_weight=0.1
    ),
    # Coquenet et al. 2020: Adam 1e-4, 1,000 epochs. Its batch of 2 is not for a GPU. Lines stay as wide as they are.
    "gfcn": _baseline("gfcn", 64, 1024, batch_size=16, learning_rate=1e-4, weight_decay=0.0, epochs=1000),
    # Coquenet et al. 2023 and 2021: Adam 1e-4, batches of 16, up to 5,000 epochs in two days. Lines are as wide as they
    # are at 150 dots an inch, where they are about 64 pixels high.
    "van": _baseline("van", 64, 1024, batch_size=16, learning_rate=1e-4, weight_decay=0.0),
    "span": _baseline("span", 64, 1024, batch_size=16, learning_rate=1e-4, weight_decay=0.0),
    # Yousef and Bishop 2020, iam_ln: batches of 8, Adam 0.02, averaged weights.
    "origaminet": _baseline("origaminet", 32, 600, batch_size=8, learning_rate=0.02, weight_decay=0.0),
    # Li et al. 2025, implementation details: batches of 128, 1e-3, weight decay 0.5, averaged weights with 0.9999.
    "htr-vt": _baseline("htr-vt", 64, 512, batch_size=128, learning_rate=1e-3, weight_decay=0.5, ema_decay=0.9999),
    # Truc et al. 2025: batches of 32 to 64, 1e-3, weight decay 0.05, averaged weights with 0.9999.
    "htr-convtext": _baseline("htr-convtext", 64, 512, batch_size=64, learning_rate=1e-3, ema_decay=0.9999),
    # kraken's defaults for recognition: Adam 1e-3, no weight decay. Its batch of 1 is not for a GPU. It leaves lines as
    # wide as they are, so nearly all of ours.
    "kraken": _baseline("kraken", 120, 1920, batch_size=16, learning_rate=1e-3, weight_decay=0.0),
    # Kang et al. 2022: label smoothing 0.4. Lines stay as wide as they are. Batch and rate are ours.
    "par": _with(
        _baseline("par", 64, 1024, batch_size=16, learning_rate=2e-4),
        {"label_smoothing": 0.4},
    ),
    # Coquenet et al. 2023: Adam 1e-4; a fifth of the characters that the decoder is shown are wrong. Its batch of 1 is
    # not for a GPU.
    "dan": _with(
        _baseline("dan", 64, 1024, batch_size=16, learning_rate=1e-4, weight_decay=0.0),
        {"teacher_noise": 0.2},
    ),
}
# What a model that is gone on from does not bring along: how it was trained, perhaps for days, on thousands of lines.
# Batches and rate are those of docs/results/fine-tuning.md.
FINE_TUNING: dict[str, Any] = {
    "training.batch_size": 16,
    "training.optimizer": "adamw",
    "training.learning_rate": 3e-4,
    "training.epochs": 60,
    "training.warmup_epochs": 3.0,
    "training.hold": 0.0,
    "training.weight_decay": 0.05,
    "training.validate_every": 4,
    "training.freeze": "auto",
    "data.train_lines": 0,
}
# The same on a CPU, where time runs out before steps do: many small ones, and soon at the full rate.
CPU_FINE_TUNING: dict[str, Any] = {"training.batch_size": 4, "training.warmup_epochs": 1.0}
# The most lines a batch has on a CPU, where a preset asks for more. There lines/s do not grow with the batch
# (docs/how-to/train.md), so that larger ones are but fewer and longer steps.
CPU_BATCH = 16
PRESETS = (*TIERS, *BASELINES)
