"""A segmenter that some pages crash: in a module of its own, which other processes can import fast."""

import os
import time

from PIL import Image

from spikehtr.pages.found import FoundRegion
from spikehtr.pages.rule_segmenter import find_lines

POISON, SLOW = 13, 14  # grey levels of a page's first pixel


def find_or_crash(page: Image.Image) -> list[FoundRegion]:
    if page.getpixel((0, 0)) == POISON:
        os._exit(9)
    if page.getpixel((0, 0)) == SLOW:
        time.sleep(1.5)
    return find_lines(page)
