import json

import numpy as np
import pytest
from PIL import Image
from test_store import write_folder

from conftest import draw_line
from spikehtr.config import Config
from spikehtr.data.check import check_data, frames_needed, histogram_bars
from spikehtr.model.reducer import ctc_min_length
from spikehtr.text import Charset


def add(folder, name, text, image=None):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = draw_line(text or "x", seed=len(name)) if image is None else image
    Image.fromarray(pixels).save(folder / f"{name}.png")
    (folder / f"{name}.gt.txt").write_text(text, encoding="utf-8")


def kinds(found, severity):
    return {kind: number for (level, kind), number in found.report.counts.items() if level == severity}


def test_a_clean_set_is_clean(tmp_path):
    write_folder(tmp_path / "d")
    found = check_data([tmp_path / "d"], Config())
    assert found.ok
    assert not found.report.counts
    assert found.splits["train"].lines == 8
    assert json.loads(json.dumps(found.to_dict()))["splits"]["train"]["lines"] == 8


def test_every_kind_of_trouble_is_found_with_its_place_and_a_remedy(tmp_path):
    train, test = tmp_path / "d" / "train", tmp_path / "d" / "test"
    write_folder(tmp_path / "d")
    add(train, "empty", " \u00ac ")
    add(train, "narrow", "far too many letters for this", np.full((64, 40), 200, np.uint8))
    add(train, "tight", "abcdefghij", np.full((64, 40), 200, np.uint8))
    add(train, "strip", "a line", np.full((4, 900), 200, np.uint8))
    add(train, "control", "with a \u0007 bell")
    add(train, "apart", "cafe\u0301")
    (train / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    (train / "broken.gt.txt").write_text("broken")
    add(test, "other", "snow")
    Image.open(train / "003.png").save(test / "leak.png")
    (test / "leak.gt.txt").write_text("spiking neurons")
    near = np.asarray(Image.open(train / "001.png")).copy()
    near[::7, ::9] ^= 3
    add(test, "near", "a longer line", near)
    found = check_data([tmp_path / "d"], Config())
    assert not found.ok
    errors, warnings = kinds(found, "error"), kinds(found, "warning")
    assert errors == {"too narrow": 1, "unreadable image": 1, "leak": 1}
    assert warnings["no text"] == 1
    expected = {"narrow when squeezed", "odd shape", "odd characters", "decomposed text", "near leak"}
    assert expected <= warnings.keys()
    for problem in found.report.problems:
        assert problem.where
        assert problem.message
        assert problem.remedy
    by_kind = {problem.kind: problem for problem in found.report.problems}
    assert "narrow" in by_kind["too narrow"].where
    assert {"003.png", "leak.png"} <= {part.split("/")[-1] for part in str(by_kind["leak"]).replace("'", " ").split()}
    assert "U+0007" in by_kind["odd characters"].message


def test_a_wide_line_squeezed_by_the_maximum_names_that_setting(tmp_path):
    add(tmp_path / "d", "long", "ab" * 100, np.full((64, 2000), 200, np.uint8))
    found = check_data([f"folder:{tmp_path / 'd'}"], Config())
    (problem,) = [p for p in found.report.problems if p.kind == "too narrow"]
    assert "data.max_width above 800" in problem.remedy
    fine = check_data([f"folder:{tmp_path / 'd'}"], Config().with_overrides({"data.max_width": 2048}))
    assert "too narrow" not in kinds(fine, "error")


@pytest.mark.parametrize("text", ["", "a", "aa", "aab", "abab", "letter", "aaa"])
def test_frames_needed_agrees_with_the_reducer(text):
    import torch

    labels = Charset.from_texts(["abcdefghijklmnopqrstuvwxyz"]).encode(text)
    padded = torch.tensor([[*labels, 0]])
    assert frames_needed(text) == int(ctc_min_length(padded, torch.tensor([len(labels)])))


def test_stats_alone_look_for_nothing(tmp_path):
    write_folder(tmp_path / "d")
    add(tmp_path / "d" / "train", "narrow", "far too many letters for this", np.full((64, 40), 200, np.uint8))
    found = check_data([tmp_path / "d"], Config(), deep=False)
    assert found.splits["train"].lines == 9
    assert not found.report.counts


def test_progress_is_told(tmp_path):
    told = []
    check_data([write_folder(tmp_path / "d")], Config(), told.append)
    assert told[-1] == 8


def test_histogram_bars():
    assert histogram_bars([1, 1, 1, 2], bins=2) == "█▃"
    assert histogram_bars([5], bins=4).count("█") == 1


def test_texts_that_normalising_changes_are_told(tmp_path):
    (tmp_path / "d").mkdir()
    add(tmp_path / "d", "old", "\u017fes ca\u017fes, pre\u00ac")
    add(tmp_path / "d", "new", "ses cases, cafe\u0301")
    found = [p for p in check_data([tmp_path / "d"], Config()).report.problems if p.kind == "respelled"]
    assert len(found) == 1
    assert "'\u017f' (U+017F) as 's'" in found[0].message
    assert "'\u00ac' (U+00AC) as ''" in found[0].message


def test_a_set_without_marks_beside_one_with_them_counts_as_trained_on(tmp_path):
    add(tmp_path / "a" / "train", "one", "abc")
    add(tmp_path / "a" / "test", "two", "abd")
    add(tmp_path / "b", "three", "dzz")
    Image.open(tmp_path / "a" / "train" / "one.png").save(tmp_path / "b" / "twin.png")
    (tmp_path / "b" / "twin.gt.txt").write_text("abc")
    found = check_data([tmp_path / "a", tmp_path / "b"], Config())
    assert "leak" not in kinds(found, "error")
