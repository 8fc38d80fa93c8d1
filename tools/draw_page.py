"""Draws the sample page that the package ships, with its text: `python tools/draw_page.py`. Seeded: always the same.

Lines are written by the machinery of `spikehtr data synth` with the package's own fonts, and laid on one sheet.
"""

import numpy as np
from PIL import Image

from spikehtr.assets import FONTS, SAMPLE_PAGE, SAMPLE_TEXT
from spikehtr.data.handwriting import Font, ink_text, load_font, on_paper

HAND, PAPER, WIDTH, HEIGHT = 3, 0, 1540, 1600
TRIES = 40  # renderings of each line, of which the one that looks most like the same hand is taken
BODY, NOTE = "Caveat-Regular.ttf", "LaBelleAurore-Regular.ttf"
DATE = ["March 3rd, 1789"]
LETTER = [
    "My dear sister,",
    "I have read your letter by the window,",
    "where the light is best, and some of it",
    "twice, for your pen runs fast and leaves",
    "its edges thin. The clerk at the archive",
    "tells me that a line which no one reads",
    "is only ink. So I copy them all out, page",
    "after page: names, 14 barrels of flour,",
    "a debt of 27 livres, the weather, a wedding.",
    "When the evening comes I hear the words",
    "before I see them. Write to me soon, and",
    "tell me if the river has frozen again.",
    "Your brother, Emile",
]
MARGIN = ["answered", "on the 9th,", "by post"]


def main() -> None:
    rng = np.random.default_rng(HAND)
    sheet = np.zeros((HEIGHT, WIDTH), np.float32)
    write(sheet, DATE, BODY, (980, 150), 78, 0, rng)
    write(sheet, LETTER, BODY, (410, 290), 80, 92, rng)
    write(sheet, MARGIN, NOTE, (36, 612), 70, 60, rng)
    page = Image.fromarray(on_paper(sheet, -1e6, np.random.default_rng(PAPER)))  # a ruling, if any, off the page
    page.save(SAMPLE_PAGE, quality=80, optimize=True)
    regions = (MARGIN, DATE + LETTER)  # in reading order: the note stands to the left of the letter
    SAMPLE_TEXT.write_text("\n\n".join("\n".join(part) for part in regions) + "\n", encoding="utf-8")
    print(f"{SAMPLE_PAGE.name}: {WIDTH}x{HEIGHT}, {SAMPLE_PAGE.stat().st_size / 1000:.0f} kB")


def write(
    sheet: np.ndarray,
    lines: list[str],
    font: str,
    start: tuple[int, int],
    height: int,
    pitch: int,
    rng: np.random.Generator,
) -> None:
    """Lines below each other from `start`, their left end on the baseline; ink over ink stays ink."""
    face = load_font(FONTS / font, frozenset("".join(lines)))
    for number, text in enumerate(lines):
        cover, baseline = in_one_hand(text, face, height, rng)
        left = start[0] + round(rng.uniform(-8, 8))
        top = round(start[1] + number * pitch - baseline)
        place = sheet[top : top + cover.shape[0], left : left + cover.shape[1]]
        assert place.shape == cover.shape, f"{text!r} runs off the page"
        np.maximum(place, cover, out=place)


def in_one_hand(text: str, font: Font, height: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """The synthesiser gives every line a hand of its own; on a letter pen, size and slant stay much the same."""
    tried = [ink_text(text, font, height, rng) for _ in range(TRIES)]
    ink = np.array([[cover.sum() / len(text), cover.shape[1] / len(text), slant(cover)] for cover, _ in tried])
    typical = np.median(ink, axis=0)
    return tried[int((np.abs(ink - typical) / np.ptp(ink, axis=0)).sum(1).argmin())]


def slant(cover: np.ndarray) -> float:
    """The shear at which upright strokes fill the fewest columns: their columns' sums vary most."""
    steps = np.linspace(-0.4, 0.6, 21)
    rows = np.arange(len(cover)) - len(cover) / 2
    spread = []
    for step in steps:
        moved = [np.roll(row, round(step * place)) for row, place in zip(cover, rows, strict=True)]
        spread.append(np.sum(moved, axis=0).var())
    return float(steps[int(np.argmax(spread))])


if __name__ == "__main__":
    main()
