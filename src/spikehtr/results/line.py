"""What was read in one line image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Character(NamedTuple):
    """A character, how sure the model is of it, and the columns [x0, x1) of the image it was read from."""

    character: str
    confidence: float
    x0: float
    x1: float


@dataclass(frozen=True)
class Line:
    """What was read in one line image."""

    text: str
    confidence: float
    characters: list[Character] = field(repr=False)
