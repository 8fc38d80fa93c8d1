"""How lines are prepared and changed for training (`data`). Defaults are the paper's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spikehtr.config.model_section import BelowOne, Count, Fraction, NonNegative, Section


class AugmentConfig(Section):
    """Training augmentation (Table 10). A strength of 0 switches an operation off; the paper gives no strengths."""

    probability: Fraction = 0.5  # that a line meets an operation; drawn for each line and operation
    rotate: NonNegative = 1.0  # degrees, either way
    shear: NonNegative = 0.3  # tangent of the slant, either way
    scale: BelowOne = 0.1  # share of the height, either way
    shift: Fraction = 0.04  # share of the height, up or down
    stretch: BelowOne = 0.15  # share of the width, either way
    elastic: NonNegative = 1.5  # largest displacement, pixels
    noise: NonNegative = 0.03  # standard deviation, of the range 0 to 1
    sharpen: NonNegative = 0.7  # how much of the detail is added
    stroke: Fraction = 0.5  # how far erosion or dilation is blended in
    invert: Fraction = 0.0  # probability of black and white changing places; off in the paper
    blank: BelowOne = (
        0.0  # share of the lines that are shown without their ink and text: empty paper is to read as nothing
    )


class DataConfig(Section):
    max_width: Count = 512  # a wider line is scaled down with its aspect kept
    straighten: bool = False  # lines are made level, and empty rows above and below cut off, before they are scaled
    train_lines: Annotated[int, Field(ge=0)] = 0  # train on so many lines, drawn by training.seed; 0: on all
    workers: Annotated[int, Field(ge=0)] = 4
    cache_mb: Annotated[int, Field(ge=0)] = 2048  # memory for decoded lines, shared out over the workers
    augment: AugmentConfig = AugmentConfig()
