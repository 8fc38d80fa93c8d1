"""Folders of drawn lines."""

from PIL import Image

from conftest import draw_line

WORDS = ["ink", "a longer line", "so", "spiking neurons", "hand", "quill", "page", "abbé"]


def write_folder(folder, words=WORDS, split="train"):
    """A folder of x.png + x.gt.txt, as people keep them."""
    place = folder / split
    place.mkdir(parents=True)
    for i, word in enumerate(words):
        Image.fromarray(draw_line(word, height=40 + i, seed=i)).save(place / f"{i:03d}.png")
        (place / f"{i:03d}.gt.txt").write_text(word + "\n", encoding="utf-8")
    return folder
