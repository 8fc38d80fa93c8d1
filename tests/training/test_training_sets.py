"""Which lines are trained on, and what is said of the others."""

import numpy as np
import pytest
from PIL import Image

from conftest import draw_line
from spikehtr.config import Config
from spikehtr.data.compiling import compile_store
from spikehtr.training.datasets import split_rows, training_sets

MARKED = {"train": 4, "validation": 2, "test": 1}


@pytest.fixture
def make(tmp_path):
    """A store of sets, each with so many lines in folders of these names ('' for none)."""

    def made(**sets):
        for name, folders in sets.items():
            for folder, count in folders.items():
                place = tmp_path / name / folder
                place.mkdir(parents=True, exist_ok=True)
                for number in range(count):
                    Image.fromarray(draw_line("ab", seed=number)).save(place / f"{number:02d}.png")
                    (place / f"{number:02d}.gt.txt").write_text("ab")
        return compile_store([tmp_path / name for name in sets], tmp_path / "s.arrow")[0]

    return made


def test_a_set_without_marks_beside_one_with_them_is_trained_on_and_told(make):
    store = make(marked=MARKED, plain={"": 5})
    train, validation, _ = split_rows(store)
    assert (len(train), len(validation)) == (9, 2)
    assert set(store.sets()[train]) == set(store.sources)
    assert split_rows(store).remark.endswith("plain: all 5 lines are trained on")


def test_lines_without_a_mark_among_marked_ones_are_left_out_and_told(make):
    store = make(marked=MARKED | {"": 3})
    assert [len(rows) for rows in split_rows(store)[:2]] == [4, 2]
    assert split_rows(store).remark == "3 lines belong to no split and are left out"


def test_no_validation_lines_are_told(make):
    store = make(marked={"train": 4, "test": 1})
    assert [len(rows) for rows in split_rows(store)[:2]] == [4, 0]
    said = "no line is marked as validation: all 4 are trained on, too few to hold any out to validate"
    assert split_rows(store).remark.startswith(said)


def test_of_lines_marked_as_training_only_some_are_held_out_as_well(make):
    train, validation, remark = split_rows(make(marked={"train": 20, "test": 1}, plain={"": 5}))
    assert (len(train), len(validation)) == (20, 5)
    assert not set(train) & set(validation)
    assert remark.endswith(
        "no line is marked as validation: every 5th of 25 is held out to validate (5 lines: a rough guide)"
    )


@pytest.mark.parametrize(
    ("count", "held", "says"),
    [
        (19, [], "all 19 are trained on, too few to hold any out to validate: no score will be given"),
        (20, [4, 9, 14, 19], "every 5th of 20 is held out to validate (4 lines: a rough guide)"),
        (50, [9, 19, 29, 39, 49], "every 10th of 50 is held out to validate (5 lines: a rough guide)"),
        (100, list(range(9, 100, 10)), "every 10th of 100 is held out to validate"),
    ],
)
def test_with_few_lines_none_is_held_out(make, count, held, says):
    store = make(plain={"": count})
    train, validation, _ = split_rows(store)
    assert validation.tolist() == held
    assert sorted([*train, *held]) == list(range(count))
    assert split_rows(store).remark.startswith(f"no line is marked as training: {says}")


def test_what_a_model_read_is_never_validated_on(make):
    store = make(plain={"": 40})
    store.machine[10:] = True  # as with --machine-lines
    assert [len(rows) for rows in split_rows(store)[:2]] == [40, 0]
    assert "all 40 are trained on; the 10 that are not a model's: too few to hold any out" in split_rows(store).remark
    store.machine[:] = np.arange(40) % 2 == 0
    train, validation, _ = split_rows(store)
    assert validation.tolist() == [9, 19, 29, 39]
    assert len(train) == 36
    assert "every 5th of the 20 that are not a model's is held out" in split_rows(store).remark
    marked = make(marked=MARKED)
    marked.machine[marked.rows("validation")[:1]] = True
    assert len(split_rows(marked)[1]) == 1
    remarks = training_sets(marked, Config()).remarks
    assert "1 line marked as validation is as the model read it: not validated on" in remarks


def test_nothing_is_said_where_all_is_marked(make):
    assert split_rows(make(marked=MARKED)).remark == ""


def test_plain_transcripts_are_taught_and_the_texts_as_they_are_judged(tmp_path):
    for split, texts in {"train": ["a^b", "^", "ab\u2014"], "validation": ["a^b"]}.items():
        (tmp_path / "set" / split).mkdir(parents=True)
        for number, text in enumerate(texts):
            Image.fromarray(draw_line("ab")).save(tmp_path / "set" / split / f"{number}.png")
            (tmp_path / "set" / split / f"{number}.gt.txt").write_text(text, encoding="utf-8")
    store = compile_store([tmp_path / "set"], tmp_path / "s.arrow")[0]
    as_is = training_sets(store, Config())
    assert "".join(as_is.train.charset.characters) == "^ab\u2014"
    plainly = training_sets(store, Config().with_overrides({"data.transcripts": "plain"}), allow_unknown=True)
    assert "".join(plainly.train.charset.characters) == "-ab"
    taught = [plainly.train.charset.decode(item.labels) for item in (plainly.train[0], plainly.train[1])]
    assert sorted(taught) == ["ab", "ab-"]
    assert any("nothing is left to teach" in remark for remark in plainly.remarks)
    assert plainly.validation.store.text(int(plainly.validation.rows[0])) == "a^b"
