"""Over which runs a study's intervals are made, from made-up readings whose spread is known."""

import math

import pytest

from spikehtr.studies.comparisons import orderings
from spikehtr.studies.seeds import t_quantile
from spikehtr.studies.study_overlay import load_study
from spikehtr.studies.study_runs import Block
from spikehtr.studies.study_tables import tables
from studies_help import row

CHARACTERS = 600  # of a reading: one error more is 1 / 600
STUDY = load_study("fine-tuning")


def block(**errors):
    """The rows of fine-tuning; errors by seed of those that have run, `_` for `-` in their names."""
    return Block("hand", [row(STUDY, v.name, *errors.get(v.name.replace("-", "_"), ())) for v in STUDY.variants])


def square(one, other):
    """Of the distance of two seeds' logarithms from their mean, both together."""
    return math.log(other / one) ** 2 / 2


def times(squares, freedom, factor):
    """How many times up and down an interval reaches."""
    return math.exp(t_quantile(freedom) * math.sqrt(squares / freedom) * factor)


def test_fine_tuning_pools_the_seeds_of_each_number_of_lines_by_itself():
    """Fifty lines are drawn anew by each seed and differ more than a thousand: their spread is not the others'."""
    found = block(model_50=(6, 10), scratch_50=(30, 36), model_1000=(3, 5), scratch_1000=(4, 4))
    fifty, thousand = square(6, 10) + square(30, 36), square(3, 5)  # a degree of freedom each
    for name, squares, mean in (
        ("model-50", fifty, 8),
        ("scratch-50", fifty, 33),
        ("model-1000", thousand, 4),
        ("scratch-1000", thousand, 4),
    ):
        estimate = found.estimate(found.row(name), "test", "cer")
        wide, middle = times(squares, 2, 1 / math.sqrt(2)), mean / CHARACTERS
        assert estimate.mean == pytest.approx(middle)
        assert estimate.interval == pytest.approx((middle / wide, middle * wide))
    said = "over 2 seeds; their standard deviation, in proportion, is pooled over the variants at the same place"
    assert said in found.how("test")


def test_fine_tuning_compares_by_the_spread_of_that_number_of_lines():
    found = block(model_50=(6, 10), scratch_50=(30, 36), model_200=(5, 5), scratch_200=(9, 9))
    fifty, two_hundred = (o for o in orderings(STUDY, found) if o.metric == "cer")
    assert (fifty.a, fifty.b) == ("50 lines, from scratch", "50 lines, from the model")
    wide = times(square(6, 10) + square(30, 36), 2, 1 / math.sqrt(2))
    down, up = math.hypot(8 - 8 / wide, 33 * wide - 33), math.hypot(8 * wide - 8, 33 - 33 / wide)
    assert fifty.interval == pytest.approx([100 * (8 - 33 + by) / CHARACTERS for by in (-down, up)])
    assert fifty.difference == pytest.approx(100 * (8 - 33) / CHARACTERS)
    assert two_hundred.interval == pytest.approx([100 * (5 - 9) / CHARACTERS] * 2)  # no spread at all there
    assert (fifty.p_value, two_hundred.p_value) == (None, None)


def test_the_model_as_it_is_has_no_spread_over_seeds():
    """It is one model, read again with each seed: that says nothing about training."""
    found = block(as_is=(20, 20), model_50=(6, 10))
    as_is = found.estimate(found.row("as-is"), "test", "cer")
    assert as_is.interval == (20 / 1200, 20 / 300)  # the reading's own, by bootstrap
    assert found.spread("test", "cer").freedom == 1
    assert found.spread("test", "cer", found.row("as-is")) is None


def test_where_a_number_of_lines_has_one_seed_its_rows_are_compared_line_by_line():
    """Seeds are the outermost loop: a study may be stopped with two of some rows and one of others."""
    found = block(model_50=(6, 10), scratch_50=(30, 36), model_200=(5,), scratch_200=(40,))
    fifty, two_hundred = (o for o in orderings(STUDY, found) if o.metric == "cer")
    assert fifty.p_value is None
    assert two_hundred.p_value < 0.05
    assert two_hundred.difference == pytest.approx(100 * (5 - 40) / CHARACTERS)
    assert found.estimate(found.row("model-200"), "test", "cer").interval == (5 / 1200, 5 / 300)


def test_elsewhere_seeds_are_pooled_over_all_variants():
    study = load_study("ann-control")
    found = Block("d", [row(study, "spiking", 6, 10), row(study, "gelu", 30, 36), row(study, "pure", 7)])
    spread = found.spread("test", "cer", found.row("pure"))
    expected = math.sqrt((square(6, 10) + square(30, 36)) / 2)
    assert (spread.freedom, spread.deviation) == (2, pytest.approx(expected))


def test_a_run_that_has_not_learned_to_read_says_nothing_about_the_spread_of_the_others():
    study = load_study("ann-control")
    rows = [row(study, "spiking", 6, 10), row(study, "gelu", 30, 36), row(study, "pure", 36, 480)]
    found = Block("d", rows)
    assert found.spread("test", "cer").freedom == 2
    assert found.estimate(found.row("pure"), "test", "cer").interval is None
    assert found.estimate(found.row("gelu"), "test", "cer").interval is not None
    assert "not all runs of ANN-pure" in found.how("test")
    assert "not all runs" not in Block("d", rows[:2]).how("test")
    cell = tables(study, [found])[0].rows[2][2]
    assert cell == "43.00 (6.00, 80.00)"
    found = {o.b: o for o in orderings(study, found) if o.metric == "cer"}
    pure, gelu = (found[r.variant.label] for r in (rows[2], rows[1]))
    assert gelu.p_value is None  # over seeds
    assert pure.p_value < 0.05  # line by line
    assert pure.difference > 0


def test_a_run_that_failed_to_learn_is_not_hidden_behind_one_that_did():
    study = load_study("ann-control")
    found = Block("d", [row(study, "spiking", 6), row(study, "gelu", 36, 480), row(study, "pure")])
    gelu = found.estimate(found.row("gelu"), "test", "cer")
    assert (gelu.mean, gelu.interval, gelu.values) == (pytest.approx(0.43), None, [0.06, 0.8])
    assert found.estimate(found.row("spiking"), "test", "cer").interval == (6 / 1200, 6 / 300)


def test_where_no_run_reads_all_are_alike():
    study = load_study("ann-control")
    found = Block("d", [row(study, "spiking", 500, 520), row(study, "gelu", 400, 420), row(study, "pure")])
    assert found.spread("test", "cer").freedom == 2
    assert found.estimate(found.row("gelu"), "test", "cer").interval is not None


def test_a_split_that_was_not_read_is_told_from_a_run_that_is_not_there():
    found = block(model_50=(6,))
    del found.row("model-50").runs[0].readings["validation"]
    assert found.how("validation") == "the data set has no validation lines"
    assert "of one seed" in found.how("test")
    assert block().how("validation") == "no run has been finished"
