"""The names of all networks (`model.arch`); apart from the settings, so that help need not load those."""

from typing import Literal

Arch = Literal[
    "spike-htr",
    "cnn-blstm",
    "crnn",
    "gated-crnn",
    "retsinas",
    "gfcn",
    "van",
    "span",
    "origaminet",
    "htr-vt",
    "htr-convtext",
    "kraken",
    "par",
    "dan",
]
