"""How lines are prepared and changed for training (`data`). Defaults are the paper's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spikehtr.config.section import BelowOne, Count, Fraction, NonNegative, Section


class AugmentConfig(Section):
    """Training augmentation (Table 10). A strength of 0 switches an operation off; the paper gives no strengths."""

    probability: Fraction = 0.5
    """Probability that a line meets an operation; drawn for each line and operation."""
    rotate: NonNegative = 1.0
    """Largest rotation, degrees, either way."""
    shear: NonNegative = 0.3
    """Largest tangent of the slant, either way."""
    scale: BelowOne = 0.1
    """Largest change of the height, as a share of it, either way."""
    shift: Fraction = 0.04
    """Largest shift up or down, as a share of the height."""
    stretch: BelowOne = 0.15
    """Largest change of the width, as a share of it, either way."""
    elastic: NonNegative = 1.5
    """Largest displacement of the elastic warp, pixels."""
    noise: NonNegative = 0.03
    """Standard deviation of the noise, of the range 0 to 1."""
    sharpen: NonNegative = 0.7
    """How much of the detail is added."""
    stroke: Fraction = 0.5
    """How far erosion or dilation of the strokes is blended in."""
    invert: Fraction = 0.0
    """Probability that black and white change places."""
    blank: BelowOne = 0.0
    """Share of the lines that are shown without ink and text, so that empty paper is read as nothing."""


class DataConfig(Section):
    """How lines are read and scaled."""

    max_width: Count = 512
    """A wider line is scaled down to this, pixels, with its aspect kept."""
    straighten: bool = False
    """Make lines level, and cut off empty rows above and below, before they are scaled."""
    train_lines: Annotated[int, Field(ge=0)] = 0
    """Train on so many lines, drawn by training.seed; 0: on all."""
    balance: Fraction = 0.0
    """How evenly sets are trained on where several are given: each is shown in proportion to its lines to the power of
    one minus this. 0: every line once an epoch; 0.5: square roots; 1: all sets alike. A line is shown at most four
    times an epoch, so that a small set is not learned by heart."""
    transcripts: Literal["as-is", "plain"] = "as-is"
    """What is taught: transcripts as they are, or plain text, in which letters after ^ stand on the line, all dashes,
    apostrophes and quotation marks are of one kind, and = or - ends a parted word. Error rates are of the texts as they
    are, with either."""
    workers: Annotated[int, Field(ge=0)] = 4
    """Threads that read lines."""
    cache_mb: Annotated[int, Field(ge=0)] = 2048
    """Memory for decoded lines, MB, shared out over the workers."""
    augment: AugmentConfig = AugmentConfig()
