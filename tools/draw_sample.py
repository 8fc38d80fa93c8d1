"""Draws the sample line that the package ships: `python tools/draw_sample.py`. Seeded, so it always draws the same."""

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from spikehtr.assets import FONTS, SAMPLE_LINE

TEXT = "Ink first, edges later: spikes read."
HEIGHT, INK, PAPER = 112, 52, 224


def main() -> None:
    rng = np.random.default_rng(1742)
    font = ImageFont.truetype(str(FONTS / "LaBelleAurore-Regular.ttf"), 58)
    width = int(font.getlength(TEXT)) + 48
    mask = Image.new("L", (width, HEIGHT), 0)
    ImageDraw.Draw(mask).text((22, HEIGHT * 0.66), TEXT, font=font, fill=255, anchor="ls")
    mask = mask.transform(mask.size, Image.Transform.AFFINE, (1, 0.06, -4, 0.004, 1, -2), Image.Resampling.BICUBIC)
    cover = np.asarray(mask.filter(ImageFilter.GaussianBlur(0.9)), np.float32) / 255

    def clouds(rows: int, columns: int) -> np.ndarray:  # smooth noise over the whole line, in [0, 1]
        coarse = Image.fromarray(rng.uniform(0, 255, (rows, columns)).astype(np.uint8))
        return np.asarray(coarse.resize(mask.size, Image.Resampling.BICUBIC)) / 255

    cover *= 0.72 + 0.28 * clouds(4, width // 40)  # ink that thins and darkens along the line
    shade = np.linspace(0, -14, width)[None, :]  # the page darkens towards its fold
    paper = PAPER + shade + (clouds(HEIGHT // 2, width // 2) - 0.5) * 14
    page = paper * (1 - cover) + INK * cover + rng.normal(0, 2.0, paper.shape)
    Image.fromarray(page.clip(0, 255).astype(np.uint8)).save(SAMPLE_LINE, optimize=True)
    print(f"{SAMPLE_LINE.name}: {width}x{HEIGHT}, {TEXT!r}")


if __name__ == "__main__":
    main()
