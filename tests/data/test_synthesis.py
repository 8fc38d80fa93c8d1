import gzip
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from conftest import draw_line, real_lines
from spikehtr.assets import FONTS
from spikehtr.cli import app
from spikehtr.data.handwriting import load_font
from spikehtr.data.store import LineStore
from spikehtr.data.synthesis import drawn_store
from spikehtr.data.synthesis.drawing import Sources, draw_part
from spikehtr.data.synthesis.drawn_store import DrawnReport, draw_store, gather
from spikehtr.data.synthesis.paper import lay_paper, lift_paper, lift_papers
from spikehtr.data.synthesis.texts import Texts, flat, plain_characters, read_texts
from spikehtr.data.synthesis.writing import RAISED, new_hand, spelled, write
from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise

WORDS = ["ink", "pen", "été", "nib", "sassafras", "Genève"]
TEXTS = Texts([["Reçu de M^r Dupont", "a b^e"], ["dud."]], [["spikes", "read", "what", "is", "there"] * 9], [WORDS])
CAVEAT = load_font(FONTS / "Caveat-Regular.ttf", plain_characters(TEXTS))


def sources(papers=(), height=32):
    return Sources(TEXTS, [CAVEAT], list(papers), height)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(drawn_store, "PART", 4)


@given(st.integers(0, 2**64), st.integers(0, 3))
def test_a_part_is_decided_by_seed_and_number(seed, part):
    once, again = (draw_part(sources(), seed, part, 3)[0] for _ in range(2))
    assert [line.text for line in once] == [line.text for line in again]
    assert all((a.pixels == b.pixels).all() for a, b in zip(once, again, strict=True))


def test_no_line_comes_twice_in_other_parts_or_seeds():
    pixels = [
        line.pixels.tobytes() for seed in (0, 1) for part in range(3) for line in draw_part(sources(), seed, part, 8)[0]
    ]
    assert len(set(pixels)) == len(pixels) == 48


@given(st.integers(0, 2**32))
def test_a_line_has_its_height_a_text_and_ink(seed):
    for line in draw_part(sources(), seed, 0, 2)[0]:
        assert line.pixels.shape[0] == 32
        assert line.pixels.dtype == np.uint8
        assert line.text == normalise(line.text) != ""
        assert not set(line.text) & {RAISED, "^"}
        level = np.median(line.pixels)
        assert level - line.pixels.min() > 20  # something darker than the paper


@given(st.integers(0, 2**32))
def test_what_is_composed_is_normalised_and_may_be_written(seed):
    text = TEXTS.compose(np.random.default_rng(seed))
    assert text == normalise(text)
    assert flat(text)
    assert plain_characters(TEXTS) >= set(text) - {RAISED}


@given(st.text(st.sampled_from("usévisé ls"), min_size=1, max_size=30))
def test_old_letter_forms_stay_the_same_text(text):
    text = normalise(text)
    hand = replace(new_hand(CAVEAT, 32, np.random.default_rng(0)), long_s=True)
    assert normalise(spelled(text, hand)) == text
    assert not spelled(text, hand).endswith("\u017f")


def test_a_font_never_draws_what_it_lacks():
    poor = replace(CAVEAT, characters=CAVEAT.characters - set("k"))
    only = Texts([], [], [["ink", "pen"]])
    lines, skipped = draw_part(Sources(only, [poor], [], 32), 0, 0, 30)
    assert lines
    assert not any("k" in line.text for line in lines)
    assert skipped["characters that the font lacks"] > 0
    none, skipped = draw_part(
        Sources(Texts([], [], [["k"]]), [replace(poor, characters=frozenset("x"))], [], 32), 0, 0, 3
    )
    assert none == []
    assert skipped["no text that the font can draw"] == 3


@given(st.integers(0, 2**32), st.sampled_from(["ij", "Ajg f", f"M{RAISED}r", "."]))
def test_all_letters_leave_ink_within_the_line(seed, spelling):
    rng = np.random.default_rng(seed)
    hand = new_hand(CAVEAT, 40, rng)
    cover, baseline, _ = write(spelling, hand, 40, rng)
    assert cover.shape[0] == 40
    assert cover.max() > 0.3
    assert not cover[:, [0, -1]].max() > 0.2  # nothing runs out at the sides
    assert 0 < baseline < 55


def test_raised_letters_stand_above_the_line():
    hand = replace(new_hand(CAVEAT, 64, np.random.default_rng(1)), slant=0.0, wander=0.0, jitter=0.0, letters=True)
    rows = []
    for spelling in ("xn", f"x{RAISED}n"):
        cover, baseline, _ = write(spelling, hand, 64, np.random.default_rng(5))
        inked = np.flatnonzero(cover.max(axis=0) > 0.3)
        right = cover[:, inked[-1] - 3 : inked[-1] + 1]  # the end of the last letter
        rows.append(baseline - np.flatnonzero(right.max(axis=1) > 0.3)[-1])
    assert rows[1] > rows[0] + 4


def test_paper_keeps_its_grain_and_loses_its_ink():
    line = draw_line("pen and ink", 64)
    paper = lift_paper(line, np.random.default_rng(0))
    assert paper is not None
    assert paper.tile.shape == line.shape
    assert paper.tile.min() > 190  # the ink was 40, the paper 230
    assert 1 < paper.tile.std() < 12
    assert paper.contrast > 100
    assert lift_papers([np.full((64, 200), 230, np.uint8)], 0) == []  # no ink: nothing is known of it


@given(st.integers(1, 900), st.integers(8, 80), st.integers(0, 999))
def test_paper_of_any_size_is_laid(width, height, seed):
    papers = lift_papers([draw_line("pen and ink", 64)], 0)
    page, contrast = lay_paper(papers, height, width, np.random.default_rng(seed))
    assert page.shape == (height, width)
    assert contrast > 0
    assert np.isfinite(page).all()


def test_files_are_lists_or_running_text(tmp_path):
    (tmp_path / "list.txt").write_text("un\ndeux\ntrois\n", encoding="utf-8")
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress("Il était une fois.\nEt voilà.".encode()))
    found = read_texts([tmp_path / "list.txt", tmp_path / "text.txt.gz"], [["a^b", "x [?]", "<y>", " "]])
    assert found.listed == [["un", "deux", "trois"]]
    assert found.running == [["Il", "était", "une", "fois.", "Et", "voilà."]]
    assert found.transcripts == [["a^b"]]  # editors' signs are not on the paper
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpikeHTRError, match=r"bad\.txt: not UTF-8"):
        read_texts([tmp_path / "bad.txt"])
    with pytest.raises(SpikeHTRError, match="no text to draw"):
        read_texts([])


def test_a_damaged_packed_text_is_told(tmp_path):
    packed = gzip.compress(b"une fois " * 999)
    broken = packed[:20] + bytes(byte ^ 0x55 for byte in packed[20:30]) + packed[30:]
    for made in (packed[:-12], broken, b"plain text", packed[:-5] + b"12345", b"\x1f\x8b"):
        (tmp_path / "cut.txt.gz").write_bytes(made)
        with pytest.raises(SpikeHTRError, match=r"cut\.txt\.gz: no gzip file, or damaged \(.+\); get it again"):
            read_texts([tmp_path / "cut.txt.gz"])
    with pytest.raises(SpikeHTRError, match="nowhere: no such file"):
        read_texts([tmp_path / "nowhere"])
    with pytest.raises(SpikeHTRError, match="cannot be read"):
        read_texts([tmp_path])


def line_set(folder, name, texts):
    """A folder of lines: the first is trained on, the others are not."""
    for split, text in zip(("train", "validation", "test"), texts, strict=True):
        place = folder / name / split
        place.mkdir(parents=True)
        Image.fromarray(draw_line(text, 64)).save(place / "0.png")
        (place / "0.gt.txt").write_text(text, encoding="utf-8")
    return str(folder / name)


def test_only_training_lines_lend_texts_and_paper(tmp_path):
    one = line_set(tmp_path, "one", ["learn this", "validate", "examined"])
    found, report = gather([], [one], FONTS)
    assert found.texts.transcripts == [["learn this"]]
    assert (report.papers, report.texts, report.fonts.fonts) == (1, 1, 2)
    drawn = " ".join(line.text for part in range(2) for line in draw_part(found, 0, part, 40)[0])
    assert "learn" in drawn
    assert "examined" not in drawn
    assert "validate" not in drawn


def test_a_set_that_is_not_named_lends_nothing(tmp_path):
    one, two = (line_set(tmp_path, name, [f"{name} text", "v", "t"]) for name in ("one", "two"))
    both, alone = gather([], [one, two], FONTS)[0], gather([], [one], FONTS)[0]
    assert sorted(both.texts.transcripts) == [["one text"], ["two text"]]
    assert alone.texts.transcripts == [["one text"]]
    assert (len(both.papers), len(alone.papers)) == (2, 1)


def test_a_real_set_lends_paper():
    lines = [np.asarray(image.convert("L")) for image, _ in real_lines("bronod", "train", 20)]
    papers = lift_papers(lines, 0)
    assert len(papers) >= 10
    for paper in papers:
        assert paper.tile.std() < 30


def drawn(tmp_path, name, count, workers=1, seed=0, validation=0, max_width=None):
    return draw_store(sources(), DrawnReport(), tmp_path / f"{name}.arrow", count, seed, validation, max_width, workers)


def test_a_store_is_the_same_for_any_number_of_workers(tmp_path, small_parts):
    one, two = (drawn(tmp_path, str(workers), 10, workers) for workers in (1, 2))
    assert len(one) == 10
    assert one.digest() == two.digest()
    assert not list(tmp_path.glob(".*.parts"))
    assert drawn(tmp_path, "other", 10, seed=1).digest() != one.digest()


def test_a_larger_store_begins_as_a_smaller_one(tmp_path, small_parts):
    few, many = drawn(tmp_path, "few", 8), drawn(tmp_path, "many", 12)
    assert [few.text(row) for row in range(8)] == [many.text(row) for row in range(8)]
    assert all((few.line(row) == many.line(row)).all() for row in range(8))


def test_a_run_that_was_killed_goes_on_behind_its_parts(tmp_path, small_parts, monkeypatch):
    whole = drawn(tmp_path, "whole", 12)

    def killed(done):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw_store(sources(), DrawnReport(), tmp_path / "cut.arrow", 12, workers=1, progress=killed)
    assert not (tmp_path / "cut.arrow").exists()
    redrawn = []
    plain = drawn_store.draw_part
    monkeypatch.setattr(drawn_store, "draw_part", lambda *a: (redrawn.append(a[2]), plain(*a))[1])
    assert drawn(tmp_path, "cut", 12).digest() == whole.digest()
    assert redrawn == [2]


def test_parts_of_other_fonts_or_other_code_are_not_gone_on_with(tmp_path, small_parts, monkeypatch):
    font = shutil.copyfile(FONTS / "Caveat-Regular.ttf", tmp_path / "hand.ttf")
    of_font = replace(sources(), fonts=[replace(CAVEAT, path=font)])

    def redrawn():
        """Parts that are drawn anew after a run was killed behind its second one."""
        drawn = []
        with monkeypatch.context() as patch:
            patch.setattr(drawn_store, "draw_part", lambda *a: (drawn.append(a[2]), plain(*a))[1])
            with pytest.raises(KeyboardInterrupt):
                draw_store(of_font, DrawnReport(), tmp_path / "s.arrow", 12, workers=1, progress=killed)
        return drawn

    def killed(done):
        if done == 8:
            raise KeyboardInterrupt

    plain = drawn_store.draw_part
    with monkeypatch.context() as patch:
        patch.setattr(drawn_store, "draw_part", lambda *a: ([], {}))  # what the font's other bytes would draw
        with pytest.raises(KeyboardInterrupt):
            draw_store(of_font, DrawnReport(), tmp_path / "s.arrow", 12, workers=1, progress=killed)
    stamp = font.stat()
    content = bytearray(font.read_bytes())
    content[-1] ^= 1
    font.write_bytes(content)
    os.utime(font, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert redrawn() == [0, 1]
    monkeypatch.setattr(drawn_store, "drawing_digest", lambda: "another version")
    assert redrawn() == [0, 1]


def test_the_code_that_draws_has_a_digest_of_its_own(tmp_path):
    names = {file.name for file in drawn_store._DRAWING}
    assert {"handwriting.py", "writing.py", "drawing.py", "paper.py", "texts.py"} <= names
    (tmp_path / "a.py").write_text("x = 1")
    once = drawn_store.drawing_digest([tmp_path / "a.py"])
    (tmp_path / "a.py").write_text("x = 2")
    assert drawn_store.drawing_digest([tmp_path / "a.py"]) != once


def test_lines_to_validate_on_are_others_than_those_trained_on(tmp_path, small_parts):
    store = drawn(tmp_path, "s", 8, validation=5)
    assert store.meta["lines"] == {"train": 8, "validation": 5}
    lines = {split: {store.line(int(row)).tobytes() for row in store.rows(split)} for split in ("train", "validation")}
    assert not lines["train"] & lines["validation"]


def test_lines_can_be_fitted_to_a_width(tmp_path, small_parts):
    store = drawn(tmp_path, "s", 12, max_width=100)
    assert store.widths.max() <= 100
    assert store.max_width == 100


def test_the_command_writes_a_store_and_says_what_it_did(tmp_path):
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    command = ["data", "synth", "--text", str(tmp_path / "words.txt"), "-n", "6", "--workers", "1", "--height", "32"]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "s.arrow")])
    assert done.exit_code == 0, done.output
    assert "6 lines" in done.output
    assert "1 texts, 2 fonts, 0 pieces of paper" in done.output
    assert len(LineStore(tmp_path / "s.arrow")) == 6
    refused = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "folder")])
    assert refused.exit_code != 0
    assert not (tmp_path / "folder").exists()
