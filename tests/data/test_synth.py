import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from spikehtr.assets import FONTS
from spikehtr.data import handwriting
from spikehtr.data.handwriting import draw_text, load_font, needs_shaping
from spikehtr.data.synth import split_corpus, synthesise
from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise

TEXTS = ["Ink first, edges later", "spikes read.", "Été à Genève, 1742", "a"]
CAVEAT, AURORE = sorted(FONTS.glob("*.ttf"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def pairs(folder):
    return {name: data for name, data in contents(folder).items() if name != "synth.json"}


@given(st.text(st.sampled_from("ab é\n\t.\u4e2d\u0301"), max_size=400), st.integers(0, 9))
def test_corpus_lines_hold_every_word_in_order(text, seed):
    lines = split_corpus(text, seed, shortest=5, longest=12)
    assert "".join(lines).replace(" ", "") == normalise(text).replace(" ", "")
    assert all(0 < len(line) <= 12 for line in lines)
    assert lines == [normalise(line) for line in lines]
    assert lines == split_corpus(text, seed, shortest=5, longest=12)


def test_corpus_lines_have_a_natural_length_and_end_between_words():
    words = [f"{'word' * (i % 3)}{i}" for i in range(1000)]
    lines = split_corpus("\n".join(" ".join(words[i : i + 7]) for i in range(0, 1000, 7)))
    assert [word for line in lines for word in line.split()] == words
    lengths = np.array([len(line) for line in lines[:-1]])
    assert lengths.max() <= 60
    assert lengths.min() > 8  # 20, less a word that did not fit
    assert 30 < lengths.mean() < 45
    assert lines != split_corpus(" ".join(words), seed=1)


def test_paragraphs_end_lines_and_long_words_are_cut_before_a_letter():
    assert split_corpus("one\ntwo\n\n  \nthree") == ["one two", "three"]
    cut = split_corpus("q\u0301" * 50, longest=21)  # q with an accent has no single code point
    assert "".join(cut) == "q\u0301" * 50
    assert all(line.startswith("q") for line in cut)


def test_pairs_of_the_asked_height_with_their_text(tmp_path):
    told = []
    report = synthesise(TEXTS, FONTS, 8, tmp_path / "new" / "lines", progress=told.append)
    assert (report.written, report.kept, report.fonts, report.texts, report.skipped) == (8, 0, 2, 4, 0)
    assert told == list(range(1, 9))
    files = pairs(tmp_path / "new" / "lines")
    assert sorted(files) == sorted(f"{i:06d}.{kind}" for i in range(8) for kind in ("png", "gt.txt"))
    texts = [files[f"{i:06d}.gt.txt"].decode() for i in range(8)]
    assert sorted(texts[:4]) == sorted(texts[4:]) == sorted(f"{text}\n" for text in TEXTS)  # each once, then again
    for i in range(8):
        with Image.open(tmp_path / "new" / "lines" / f"{i:06d}.png") as image:
            assert image.mode == "L"
            assert image.height == 64
            pixels = np.asarray(image).astype(int)
        assert np.median(pixels) - np.percentile(pixels, 1) > 40  # ink on lighter paper


def test_the_seed_decides_every_byte_and_a_larger_run_extends_a_smaller(tmp_path):
    for name, count, seed in (("few", 3, 5), ("many", 6, 5), ("other", 3, 6)):
        synthesise(TEXTS, FONTS, count, tmp_path / name, seed=seed, height=32)
    few, many, other = (pairs(tmp_path / name) for name in ("few", "many", "other"))
    assert few.items() < many.items()
    assert all(few[name] != other[name] for name in few if name.endswith(".png"))


def test_finished_pairs_are_kept_and_unfinished_made_good(tmp_path):
    synthesise(TEXTS, FONTS, 5, tmp_path, height=32)
    whole = contents(tmp_path)
    (tmp_path / "000001.png").unlink()
    (tmp_path / "000003.gt.txt").unlink()
    (tmp_path / ".000003.gt.txt.tmp").write_bytes(b"cut sh")  # what a killed run leaves
    (tmp_path / "000000.png").write_bytes(b"mine")
    report = synthesise(TEXTS, FONTS, 5, tmp_path, height=32)
    assert (report.written, report.kept) == (2, 3)
    assert contents(tmp_path) == {**whole, "000000.png": b"mine"}


@pytest.mark.parametrize(
    ("change", "named"), [({"seed": 1}, "seed"), ({"height": 40}, "height"), ({"texts": ["else"]}, "texts")]
)
def test_lines_of_two_kinds_are_not_mixed(change, named, tmp_path):
    base = {"texts": TEXTS, "fonts": FONTS, "count": 1, "folder": tmp_path, "seed": 0, "height": 32}
    synthesise(**base)
    with pytest.raises(SpikeHTRError, match=f"other {named}; take another folder"):
        synthesise(**(base | change))
    (tmp_path / "synth.json").write_text("{")
    with pytest.raises(SpikeHTRError, match="damaged"):
        synthesise(**base)
    (tmp_path / "synth.json").unlink()
    with pytest.raises(SpikeHTRError, match="lines of another making"):
        synthesise(**base)


def test_texts_without_glyphs_are_skipped_and_counted(tmp_path):
    report = synthesise([*TEXTS, "\u4e2d\u6587 x", "\u4e2d", "soft\u00adhyphen", "  "], FONTS, 12, tmp_path, height=32)
    assert (report.texts, report.skipped) == (4, 3)
    assert report.missing == {"\u4e2d": 2, "\u6587": 1, "\u00ad": 1}
    assert {path.read_text("utf-8").strip() for path in tmp_path.glob("*.gt.txt")} == set(TEXTS)
    with pytest.raises(SpikeHTRError, match="no font can draw any of the 1 texts"):
        synthesise(["\u4e2d"], FONTS, 1, tmp_path / "none")


def test_a_text_goes_to_the_font_that_has_its_glyphs(tmp_path, monkeypatch):
    characters = frozenset("Жa")
    assert load_font(CAVEAT, characters).characters == {"Ж", "a"}
    assert load_font(AURORE, characters).characters == {"a"}
    used = set()
    monkeypatch.setattr(
        "spikehtr.data.synth.draw_text",
        lambda text, font, height, rng: used.add((text, font.path)) or np.zeros((height, 8), np.uint8),
    )
    synthesise(["Ж", "a"], FONTS, 40, tmp_path)
    assert used == {("Ж", CAVEAT), ("a", CAVEAT), ("a", AURORE)}


def test_damaged_fonts_are_reported_and_the_others_used(tmp_path):
    fonts = tmp_path / "fonts"
    (fonts / "deep").mkdir(parents=True)
    shutil.copy(CAVEAT, fonts / "deep" / "good.TTF")
    (fonts / "cut.ttf").write_bytes(CAVEAT.read_bytes()[:3000])
    (fonts / "empty.otf").write_bytes(b"")
    (fonts / "notes.txt").write_text("no font")
    report = synthesise(TEXTS, fonts, 2, tmp_path / "out", height=32)
    assert report.fonts == 1
    assert [name for name, _ in report.unreadable] == ["cut.ttf", "empty.otf"]
    assert all(reason for _, reason in report.unreadable)
    (fonts / "deep" / "good.TTF").unlink()
    with pytest.raises(SpikeHTRError, match=r"none of its 2 fonts can be used; cut\.ttf: "):
        synthesise(TEXTS, fonts, 2, tmp_path / "out2")


@pytest.mark.parametrize("texts", [[], ["", " \t", "\u00ac"]])
def test_an_empty_corpus_is_refused(texts, tmp_path):
    with pytest.raises(SpikeHTRError, match="corpus is empty"):
        synthesise(texts, FONTS, 1, tmp_path)


def test_places_that_do_not_serve_are_named(tmp_path):
    with pytest.raises(SpikeHTRError, match=r"no fonts there; give a folder that holds \.ttf or \.otf files"):
        synthesise(TEXTS, tmp_path, 1, tmp_path / "out")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpikeHTRError, match="file: cannot be written to"):
        synthesise(TEXTS, FONTS, 1, tmp_path / "file")


@given(st.text(st.sampled_from("aÉgj,. ^f"), min_size=1, max_size=30), st.integers(8, 130), st.integers(0, 2**32))
@settings(max_examples=40)
def test_any_text_is_drawn_whole_at_any_height(text, height, seed):
    text = normalise(text) or "x"
    font = load_font(CAVEAT, frozenset(text))
    line = draw_text(text, font, height, np.random.default_rng(seed))
    assert line.shape[0] == height
    assert line.shape[1] >= height // 8
    assert line.dtype == np.uint8
    cover, _ = handwriting.ink_text(text, font, height, np.random.default_rng(seed))
    assert cover.max() > 0.1
    assert (cover[[0, -1]] == 0).all()  # nothing was cut off above or below


def test_scripts_that_join_are_laid_out_whole():
    assert needs_shaping("\u0633\u0644\u0627\u0645")  # Arabic
    assert needs_shaping("\u0939\u093f")  # Devanagari with a vowel sign that moves
    assert not needs_shaping("Été e\u0301 Ж")
