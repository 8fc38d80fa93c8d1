"""Files shipped with the package: a sample line, and the open fonts it was drawn with (each beside its licence)."""

from pathlib import Path

HERE = Path(__file__).parent
SAMPLE_LINE = HERE / "sample-line.png"
FONTS = HERE / "fonts"
