"""What was read: plain data, and the formats it can be written in."""

from spikehtr.results.line import Character, Line
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word

__all__ = ["Character", "Glyph", "Line", "Page", "Region", "TextLine", "Word"]
