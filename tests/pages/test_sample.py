from PIL import Image

from spikehtr.assets import SAMPLE_PAGE, SAMPLE_TEXT
from spikehtr.pages.rule_segmenter import find_lines


def test_every_line_of_the_sample_page_is_found_and_the_note_beside_it_stands_apart():
    texts = [region.splitlines() for region in SAMPLE_TEXT.read_text(encoding="utf-8").split("\n\n")]
    with Image.open(SAMPLE_PAGE) as page:
        regions = find_lines(page.convert("L"))
    assert [(region.kind, len(region.lines)) for region in regions] == [
        ("marginalia", len(texts[0])),
        ("paragraph", len(texts[1])),
    ]
    note, letter = (region.lines for region in regions)
    assert max(x for line in note for x, _ in line.polygon) < min(x for line in letter for x, _ in line.polygon)
    # Longer texts are wider lines: each outline belongs to its own line of text.
    widths = [line.baseline[-1][0] - line.baseline[0][0] for line in letter]
    per_character = [width / len(text) for width, text in zip(widths, texts[1], strict=True)]
    assert max(per_character) < 1.6 * min(per_character)
    assert SAMPLE_PAGE.stat().st_size < 300_000
