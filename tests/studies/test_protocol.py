"""A protocol states what the command line would have to."""

import json

import pytest

from spikehtr.errors import SpikeHTRError
from spikehtr.studies.study_overlay import Study, load_study, with_protocol

OVERLAY = """
title: A
preset: kraken
set: {training.learning_rate: 0.002, training.batch_size: 32}
variants: [{name: a, label: A}, {name: b, label: B, set: {training.batch_size: 8}}]
protocol: {epochs: 7, seeds: 2, chooses: validation CER, set: {training.learning_rate: 0.004}}
"""


def study(tmp_path, text=OVERLAY):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_study(str(path))


def test_its_settings_go_between_the_studys_and_the_users(tmp_path):
    mine = study(tmp_path)
    assert (mine.protocol.epochs, mine.protocol.seeds) == (7, 2)
    a, b = mine.variants
    assert mine.config(a).training.learning_rate == 0.004
    assert mine.config(a, overrides=("training.learning_rate=0.008",)).training.learning_rate == 0.008
    assert [mine.config(v).training.batch_size for v in (a, b)] == [32, 8]


def test_a_file_takes_its_place_and_has_the_last_word_on_a_variant(tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text("epochs: 900\nvariants: {b: {training.batch_size: 4, data.max_width: 480}}")
    mine = with_protocol(study(tmp_path), file)
    assert (mine.protocol.epochs, mine.protocol.seeds) == (900, 1)
    a, b = (mine.config(v) for v in mine.variants)
    assert a.training.learning_rate == 0.002
    assert (b.training.batch_size, b.data.max_width) == (4, 480)
    assert Study.model_validate(json.loads(json.dumps(mine.model_dump(mode="json", by_alias=True)))) == mine


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seeds: 1", "epochs: Field required"),
        ("epochs: 0", "epochs: Input should be greater than or equal to 1"),
        ("{epochs: 1, chooses: test CER}", "chooses"),
        ("{epochs: 1, rate: 2}", "rate"),
        ("{epochs: 1, variants: {c: {}}}", "no variant is called c"),
    ],
)
def test_mistakes_are_named(text, says, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(SpikeHTRError, match=f"p.yaml: .*{says}"):
        with_protocol(study(tmp_path), file)


def test_every_row_of_the_main_table_can_be_made_by_its_protocol():
    main = load_study("main")
    assert main.protocol.epochs == 100
    assert [v.name for v in main.variants if v.why] == []


def test_reduction_is_the_one_thing_that_differs():
    reduction, main = load_study("ann-reduction"), load_study("main")
    for first, second in (("crnn", "crnn-reduced"), *reduction.compare):
        whole, reduced = (reduction.config(reduction.variant(name)).flat() for name in (first, second))
        changed = {key for key in whole if whole[key] != reduced[key]}
        assert changed - {"training.aux_weight"} == {"model.reducer.mode"}
        assert main.config(main.variant(first)).flat() == whole  # so that --reuse finds it
