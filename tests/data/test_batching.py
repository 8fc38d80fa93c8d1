from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_help import WORDS, write_folder
from spikehtr.data.batching import Lines, balanced_sizes, collate, load_batches, padding_waste, plan_epoch, share
from spikehtr.data.compiling import compile_store
from spikehtr.data.store import StoreError
from spikehtr.text import Charset

some_widths = st.lists(st.integers(1, 900), min_size=1, max_size=300).map(lambda w: np.array(w, np.int32))


@given(some_widths, st.integers(1, 40), st.integers(0, 99), st.booleans())
def test_a_plan_holds_every_line_once_and_repeats(widths, size, seed, shuffle):
    plan = plan_epoch(widths, size, seed, epoch=3, shuffle=shuffle)
    assert sorted(np.concatenate(plan)) == list(range(len(widths)))
    assert all(1 <= len(batch) <= size for batch in plan)
    again = plan_epoch(widths, size, seed, epoch=3, shuffle=shuffle)
    assert all(np.array_equal(a, b) for a, b in zip(plan, again, strict=True))


def test_epochs_and_seeds_differ_unless_unshuffled():
    widths = np.arange(100, dtype=np.int32)

    def flat(**changes):
        settings = {"seed": 0, "epoch": 0} | changes
        return np.concatenate(plan_epoch(widths, 8, **settings)).tolist()

    assert flat() != flat(epoch=1)
    assert flat() != flat(seed=1)
    assert flat(shuffle=False) == flat(shuffle=False, epoch=1) == list(range(100))


@given(some_widths, st.integers(1, 12), st.integers(1, 5))
def test_devices_share_a_batch_evenly(widths, size, world):
    for batch in plan_epoch(widths, size, 0, 0):
        parts = [share(batch, rank, world) for rank in range(world)]
        assert len({len(part) for part in parts}) == 1  # equal work
        joined = np.concatenate(parts)
        assert set(joined) == set(batch)
        assert len(joined) - len(batch) == -len(batch) % world  # only what is missing is repeated


@given(st.lists(st.integers(1, 400), min_size=2, max_size=6), st.floats(0.1, 1), st.integers(0, 9))
def test_a_balanced_epoch_is_as_long_every_time_and_repeats_no_line_before_its_turn(sizes, balance, seed):
    starts = np.cumsum([0, *sizes])
    sets = [np.arange(a, b) for a, b in pairwise(starts)]
    widths = np.full(starts[-1], 10, np.int32)
    wanted = balanced_sizes(sizes, balance)
    for epoch in range(2):
        shown = np.concatenate(plan_epoch(widths, 8, seed, epoch, sets=sets, balance=balance))
        times = np.bincount(shown, minlength=len(widths))
        for indices, number in zip(sets, wanted, strict=True):
            assert times[indices].sum() == number
            assert times[indices].max() - times[indices].min() <= 1
            assert times[indices].max() <= 4


def test_balance_goes_from_all_lines_to_all_sets_alike():
    assert balanced_sizes([900, 100], 0.0) == [900, 100]
    assert balanced_sizes([900, 100], 0.5) == [750, 250]  # 30 to 10
    assert balanced_sizes([600, 400], 1.0) == [500, 500]
    assert balanced_sizes([990, 10], 1.0) == [500, 40]  # four times each is the most
    widths = np.arange(50, dtype=np.int32)
    plain, other = plan_epoch(widths, 8, 0, 0), plan_epoch(widths, 8, 0, 0, sets=[np.arange(50)], balance=0.5)
    assert all((a == b).all() for a, b in zip(plain, other, strict=True))  # one set: nothing to balance


def test_padding_waste_is_what_it_says():
    widths = np.array([10, 20, 30, 40], np.int32)
    assert padding_waste(widths, [np.array([0, 1]), np.array([2, 3])]) == pytest.approx(1 - 100 / 120)
    assert padding_waste(widths, [np.array([i]) for i in range(4)]) == 0


def test_buckets_waste_little():
    widths = np.random.default_rng(0).gamma(4, 200, 4000).astype(np.int32) + 20
    bucketed = padding_waste(widths, plan_epoch(widths, 32, 0, 0))
    order = np.random.default_rng(1).permutation(4000)
    unsorted = padding_waste(widths, [order[i : i + 32] for i in range(0, 4000, 32)])
    assert bucketed < 0.1 < unsorted


@pytest.fixture
def lines(tmp_path):
    store, _ = compile_store([write_folder(tmp_path / "src")], tmp_path / "s.arrow")
    return Lines(store, store.rows(), store.charset, max_width=100, cache_mb=1)


def test_batches_hold_the_lines(lines):
    assert lines.widths.max() <= 100
    batch = lines.batch(np.array([3, 0]))
    for place, index in enumerate((3, 0)):
        item = lines[index]
        width = item.pixels.shape[1]
        assert batch.widths[place] == width == lines.widths[index]
        assert np.array_equal(batch.images[place, 0, :, :width].numpy(), item.pixels)
        assert (batch.images[place, 0, :, width:] == 255).all()
        text = lines.charset.decode([label for x in item.labels for label in (x, 0)])
        assert text == WORDS[index]
        assert batch.targets[place, : batch.target_lengths[place]].tolist() == item.labels
        assert batch.rows[place] == lines.rows[index]
    ready = batch.to("cpu").lines()
    assert ready.dtype == torch.float32
    assert ready.max() <= 1


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_loading_keeps_the_plans_order(lines, workers):
    plan = plan_epoch(lines.widths, 3, 0, 0)
    loaded = list(load_batches(lines, plan, workers))
    assert [batch.rows.tolist() for batch in loaded] == [lines.rows[batch].tolist() for batch in plan]
    resumed = list(load_batches(lines, plan[2:], workers))  # resume: skip what was done
    assert torch.equal(resumed[0].images, loaded[2].images)


def test_an_error_reaches_the_reader_and_stopping_early_is_fine(lines):
    stream = load_batches(lines, plan_epoch(lines.widths, 1, 0, 0), workers=2)
    next(stream)
    stream.close()
    lines.store.text = lambda row: "\u2603"  # a character nobody knows
    with pytest.raises(Exception, match="2603"):
        list(load_batches(lines, [np.array([0])], workers=2))


def test_the_cache_serves_and_keeps_to_its_cap(lines):
    first = lines[0].pixels
    assert lines[0].pixels is first
    small = Lines(lines.store, lines.rows, lines.charset, 100)
    small._room = 3 * first.nbytes
    for index in range(8):
        small[index]
        assert small._cached <= small._room
        assert small._cached == sum(p.nbytes for p in small._cache.values())
    none = Lines(lines.store, lines.rows, lines.charset, 100, cache_mb=0)
    assert none[0].pixels is not none[0].pixels


def test_a_store_fitted_to_a_width_serves_that_width_alone(lines, tmp_path):
    fitted, _ = compile_store([tmp_path / "src"], tmp_path / "f.arrow", max_width=100)
    assert fitted.widths.max() <= 100
    same = Lines(fitted, fitted.rows(), fitted.charset, 100)
    assert all(np.array_equal(same[i].pixels, lines[i].pixels) for i in range(8))
    with pytest.raises(StoreError, match=r"data\.max_width=100"):
        Lines(fitted, fitted.rows(), fitted.charset, 512)


def test_lines_without_labels_need_no_charset(lines):
    bare = Lines(lines.store, lines.rows, Charset(("z",)), 100, labelled=False)
    batch = bare.batch(np.array([0, 1]))
    assert batch.targets.shape == (2, 0)
    assert batch.target_lengths.tolist() == [0, 0]


def test_collate_of_a_single_line(lines):
    batch = collate([lines[2]])
    assert batch.images.shape[0] == 1
    assert batch.targets.shape == (1, len(WORDS[2]))
