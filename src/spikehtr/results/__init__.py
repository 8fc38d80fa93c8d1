"""What was read: plain data, and the formats it can be written in."""

from spikehtr.results.line import Character, Line
from spikehtr.results.page import CanvasPlace, Glyph, Page, Region, TextLine, Word

__all__ = ["CanvasPlace", "Character", "Glyph", "Line", "Page", "Region", "TextLine", "Word"]
