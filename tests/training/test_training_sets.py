"""Which lines are trained on, and what is said of the others."""

import pytest
from PIL import Image

from conftest import draw_line
from spikehtr.data.compiling import compile_store
from spikehtr.training.sets import held_out, split_rows

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
    train, validation = split_rows(store)
    assert (len(train), len(validation)) == (9, 2)
    assert set(store.sets()[train]) == set(store.sources)
    assert held_out(store).endswith("plain: all 5 lines are trained on")


def test_lines_without_a_mark_among_marked_ones_are_left_out_and_told(make):
    store = make(marked=MARKED | {"": 3})
    assert [len(rows) for rows in split_rows(store)] == [4, 2]
    assert held_out(store) == "3 lines belong to no split and are left out"


def test_no_validation_lines_are_told(make):
    store = make(marked={"train": 4, "test": 1})
    assert [len(rows) for rows in split_rows(store)] == [4, 0]
    assert held_out(store) == "no line is marked as validation: the last weights are kept, not the best"


def test_nothing_is_said_where_all_is_marked(make):
    assert held_out(make(marked=MARKED)) == ""
