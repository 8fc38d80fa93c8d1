import numpy as np
import pytest
import torch
from training_help import Epochs, Killed, kill_at, run

from spikehtr import Recognizer
from spikehtr.data.batching import Lines
from spikehtr.training.loop import BEST, TrainingError, TrainingRun
from spikehtr.training.monitoring import MEASURED
from spikehtr.weights import load_model


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """A run that nothing disturbed, and what it told: for those that were killed or stopped."""
    done, told = run(store, tmp_path_factory.mktemp("whole")), Epochs()
    done.fit(save_every=2, tell=told)
    return done, told


def test_every_step_and_every_validation_shows_life(store, tmp_path):
    one, shown, told = run(store, tmp_path / "r", training__batch_size=5, training__epochs=2), [], []
    one.beat = shown.append
    one.fit(tell=told.append)
    steps = [(p.epoch, p.done, p.of) for p in shown if not p.validating]
    assert steps == [(epoch, done, 5) for epoch in (1, 2) for done in (1, 2, 3, 4, 5)]
    assert [(p.epoch, p.done, p.of) for p in shown if p.validating] == [(1, 5, 6), (1, 6, 6), (2, 5, 6), (2, 6, 6)]
    assert all(p.lines_per_second > 0 and 0 < p.progress <= 1 for p in shown)
    # Both count the 24 lines of an epoch, not five batches of 5, and what is told is told a moment later.
    last = [p for p in shown if not p.validating and p.done == 5]
    assert all(t.lines_per_second <= p.lines_per_second for t, p in zip(told, last, strict=True))


@pytest.mark.parametrize("at", [4, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 7))])
def test_a_killed_and_resumed_run_ends_with_the_very_same_weights(store, whole, tmp_path, at, monkeypatch):
    whole, _ = whole
    killed = run(store, tmp_path / "killed")
    kill_at(killed, at, monkeypatch)
    resumed = run(store, tmp_path / "killed")
    resumed.resume()
    assert resumed.step == at
    resumed.fit(save_every=2)
    assert resumed.step == whole.step == 9
    for a, b in zip(whole.net.parameters(), resumed.net.parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(whole.average.values[k], resumed.average.values[k]) for k in whole.average.values)
    assert whole.best == resumed.best


def test_a_kill_before_validation_does_not_lose_it(store, whole, tmp_path, monkeypatch):
    whole, told = whole

    def killed(self):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "_validate", killed)
        with pytest.raises(Killed):
            run(store, tmp_path / "killed").fit(save_every=1)
    resumed, again = run(store, tmp_path / "killed"), Epochs()
    resumed.resume()
    resumed.fit(save_every=1, tell=again)
    assert told
    assert [(e.epoch, e.cer) for e in again] == [(e.epoch, e.cer) for e in told]
    assert resumed.best == whole.best


@pytest.mark.parametrize("at", [4, 5])  # within an epoch, and at the end of one
def test_a_run_that_is_asked_to_stop_does_so_after_the_step_and_goes_on_exactly(
    store, whole, tmp_path, monkeypatch, at
):
    whole, _ = whole
    stopped = run(store, tmp_path / "stopped")
    step = TrainingRun._train_on

    def ask(self, batch, indices):
        self.stopping = self.step == at
        return step(self, batch, indices)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "_train_on", ask)
        stopped.fit()
    assert stopped.step == at + 1
    resumed = run(store, tmp_path / "stopped")
    resumed.resume()
    resumed.fit()
    assert all(torch.equal(a, b) for a, b in zip(whole.net.parameters(), resumed.net.parameters(), strict=True))
    assert resumed.best == whole.best


def test_every_epoch_is_told_and_the_best_model_can_be_read(store, whole):
    done, told = whole
    assert [epoch.epoch for epoch in told] == [1, 2, 3]
    assert told[-1].step == 9
    assert told[-1].progress == 1.0
    assert all(epoch.values["loss"] > 0 and epoch.cer is not None for epoch in told)
    assert done.best == min(epoch.cer for epoch in told)
    recognizer = Recognizer.load(done.folder / BEST)
    assert recognizer.charset == store.charset
    assert isinstance(recognizer.transcribe(store.line(0)).text, str)


@pytest.mark.slow  # from a shell: tests/cli/test_learning.py
def test_training_learns(store, tmp_path):
    told = Epochs()
    easy = {"data__augment__probability": 0.0, "model__mixer__dropout": 0.0, "model__mixer__drop_path": 0.0}
    easy |= {"model__encoder__expansion": 1.0, "model__encoder__bypass_init": 1.0, "model__mixer__blocks": ["LK"]}
    learner = run(store, tmp_path / "r", training__epochs=25, training__learning_rate=6e-3, **easy)
    learner.fit(tell=told)
    assert told[-1].values["loss"] < 0.3 * told[0].values["loss"]
    assert learner.best < 0.2


def test_a_run_from_a_model_is_never_worse_than_its_start(store, whole, tmp_path, monkeypatch):
    begun = {name: value.clone() for name, value in whole[0].net.state_dict().items()}
    learner = run(store, tmp_path / "r", start=begun)
    rates = iter([0.2, 0.5, 0.3, 0.4])
    monkeypatch.setattr(learner, "_validate", lambda: next(rates))
    assert learner.validate_start(keep=True) == 0.2
    learner.fit()
    kept = load_model(learner.folder / BEST)
    assert (learner.best, kept.notes["validation_cer"], kept.notes["epochs"]) == (0.2, 0.2, 0)
    assert all(torch.equal(value, begun[name]) for name, value in kept.net.state_dict().items())


def test_resuming_with_other_settings_is_refused(store, whole):
    with pytest.raises(TrainingError, match=r"other settings \(training.seed was 0, is 1\): resume with those"):
        run(store, whole[0].folder, training__seed=1).resume()


def test_resuming_with_other_lines_is_refused(store, tmp_path):
    first = run(store, tmp_path / "r")
    first.notes = {"data": {"digest": "of some lines"}}
    first.save()
    again = run(store, tmp_path / "r")
    again.notes = first.notes
    again.resume()
    again.notes = {"data": {"digest": "of other lines"}}
    with pytest.raises(TrainingError, match="other lines"):
        again.resume()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_no_number_names_the_lines_and_keeps_the_last_good_checkpoint(store, tmp_path, monkeypatch, what):
    broken = run(store, tmp_path / "r")
    step = TrainingRun._train_on

    def poisoned(self, batch, indices):
        numbers = step(self, batch, indices).clone()
        if self.step == 4:
            numbers[MEASURED.index(what)] = float("nan")
        return numbers

    monkeypatch.setattr(TrainingRun, "_train_on", poisoned)
    with pytest.raises(TrainingError, match=r"not finite at step 4; look at its lines: 0000"):
        broken.fit(save_every=2)
    again = run(store, tmp_path / "r")
    again.resume()
    assert again.step == 4  # saved before the bad step
    assert len((tmp_path / "r" / "bad-lines.txt").read_text().splitlines()) == 8


def test_out_of_memory_names_the_batch_and_what_to_change(store, tmp_path, monkeypatch):
    def full(self, batch, indices):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TrainingRun, "_train_on", full)
    with pytest.raises(
        TrainingError, match=r"a batch of 8 lines, 24 x \d+ px, T = 1: lower training.batch_size \(now 8"
    ):
        run(store, tmp_path / "r").fit()


def test_other_errors_are_not_taken_for_lack_of_memory(store, tmp_path, monkeypatch):
    def broken(self, batch, indices):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(TrainingRun, "_train_on", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run(store, tmp_path / "r").fit()


def test_a_run_by_the_clock_ends_with_it_and_resumes_its_time(store, tmp_path, monkeypatch):
    clock = iter(range(10_000))  # every look at the clock takes a second
    monkeypatch.setattr("spikehtr.training.loop.time.monotonic", lambda: float(next(clock)))
    told = Epochs()
    timed = run(store, tmp_path / "r", max_minutes=0.5)
    timed.fit(tell=told)
    assert timed.finished
    assert timed.seconds >= 30
    assert told[-1].cer is not None  # the last, unfinished epoch is validated too
    assert timed.optimizer.param_groups[0]["lr"] < 0.1 * 2e-3  # the schedule came to its end
    again = run(store, tmp_path / "r", max_minutes=0.5)
    again.resume()
    assert again.finished
    with pytest.raises(TrainingError, match="other settings"):
        run(store, tmp_path / "r", max_minutes=0.6).resume()


def test_validation_can_be_rarer_but_never_misses_the_end(store, tmp_path):
    told = Epochs()
    run(store, tmp_path / "r", training__validate_every=2).fit(tell=told)
    assert [epoch.cer is not None for epoch in told] == [False, True, True]


def test_how_a_machine_loads_lines_may_change_on_the_way(store, tmp_path):
    run(store, tmp_path / "r", data__workers=0).save()
    other = run(store, tmp_path / "r", data__workers=3, data__cache_mb=7)
    assert other.resume() is None


def test_sets_can_be_shown_more_evenly(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "by_set", lambda lines: [np.arange(4), np.arange(4, len(lines))])
    shown = np.concatenate(run(store, tmp_path, data__balance=1.0).plan(1))
    assert (shown < 4).sum() == len(shown) / 2 == 12


@pytest.mark.slow
def test_a_stopped_run_ends_the_same_where_sets_are_shown_more_evenly(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "by_set", lambda lines: [np.arange(4), np.arange(4, len(lines))])
    whole = run(store, tmp_path / "whole", data__balance=1.0)
    whole.fit()
    stopped = run(store, tmp_path / "stopped", data__balance=1.0)
    stopped.beat = lambda _: setattr(stopped, "stopping", stopped.step >= 4)
    stopped.fit()
    assert 4 <= stopped.step < whole.step
    again = run(store, tmp_path / "stopped", data__balance=1.0)
    again.resume()
    again.fit()
    pairs = zip(whole.average.values.values(), again.average.values.values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
