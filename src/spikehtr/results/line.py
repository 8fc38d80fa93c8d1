"""What was read in one line image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Alternative(NamedTuple):
    """What else could stand there, and how likely it is; known where a language model took part in reading."""

    text: str  # empty where a character may well not be there
    confidence: float


class Character(NamedTuple):
    """A character, how sure the model is of it, and the columns [x0, x1) of the image it was read from."""

    character: str
    confidence: float
    x0: float
    x1: float
    alternatives: tuple[Alternative, ...] = ()  # likeliest first


@dataclass(frozen=True)
class Line:
    """What was read in one line image."""

    text: str
    confidence: float
    characters: list[Character] = field(repr=False)
    alternatives: tuple[Alternative, ...] = field(default=(), repr=False)  # other texts, likeliest first
