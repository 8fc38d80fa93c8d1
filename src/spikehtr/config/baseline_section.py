"""The recognisers to compare with: their grids, and the `model.baseline` part of the settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spikehtr.config.section import BelowOne, Count, Fraction, NonNegative, Section

AUTOREGRESSIVE = ("par", "dan")  # they spell a line character by character
GRIDS = {  # pixels a token, and what the height must be a multiple of
    "cnn-blstm": (8, 8),
    "crnn": (4, 4),
    "gated-crnn": (4, 32),
    "retsinas": (8, 16),
    "gfcn": (4, 32),
    "van": (8, 32),
    "span": (8, 32),
    "origaminet": (4, 4),
    "htr-vt": (4, 1),
    "htr-convtext": (4, 1),
    "kraken": (8, 8),
    "par": (16, 32),
    "dan": (8, 32),
}


class BaselineConfig(Section):
    """The recognisers to compare with."""

    scale: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Factor of every width: 1 as published, less for quick trials."""
    dropout: Fraction = 1.0
    """Share of the published dropout rates; 0 switches dropout off."""
    mask_ratio: BelowOne = 0.4
    """HTR-VT, HTR-ConvText: share of the tokens that is masked in training."""
    mask_span: Count = 8
    """HTR-VT, HTR-ConvText: how many neighbouring tokens are masked together."""
    context_weight: NonNegative = 0.2
    """HTR-ConvText: weight of the loss by which each character is told from those around it, in training only."""
    teacher_noise: BelowOne = 0.0
    """PAR, DAN: share of the characters before one that training shows as others than they are."""
    label_smoothing: BelowOne = 0.0
    """PAR, DAN: how much of a character's probability training gives to all others."""
