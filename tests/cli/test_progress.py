"""What a training shows on the way, and the size of its batches where nobody has said it."""

import queue

import pytest
import typer.testing

from spikehtr.cli import app, progress
from spikehtr.cli.progress import TrainingProgress, spoken
from spikehtr.config import Config
from spikehtr.training import job
from spikehtr.training.monitoring import LogEntry, RunProgress


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def pulse(seconds, share, lines_per_second=0.25, validating=False):
    return RunProgress(1, 12, 79, validating, share, seconds, lines_per_second)


def told(seconds, share):
    return LogEntry(79, 1, share, seconds, 0.25, 1e-3, {"loss": 3.5}, cer=0.5, best=True, epoch_ended=True)


def test_a_log_file_shows_life_within_the_first_minute_and_then_more_rarely(clock):
    said = []
    shown = TrainingProgress(said.append, None)
    for second in range(1, 3601):
        clock[0] = second
        before = len(said)
        shown.beat(pulse(second, second / 36_000))
        said[before:] = [(second, line) for line in said[before:]]
    assert [second for second, _ in said] == [30, 90, 210, 510, 1110, 1710, 2310, 2910, 3510]
    assert said[0][1] == "epoch 1, 12 of 79 batches: 0.25 lines/s, about 10 h 00 min left"


def test_a_batch_that_takes_minutes_is_told_in_a_log_file(monkeypatch):
    monkeypatch.setattr(progress, "_LOOK", 0.01)
    monkeypatch.setattr(progress, "_QUIET", (0.01, 0.01, 0.01, 3600))
    said = queue.Queue()
    shown = TrainingProgress(said.put, None)
    shown.reading(512)
    with shown.told_when_nothing_is_heard():
        told = "the first batch is not done yet (512 lines read so far): after it speed and time left are told"
        assert [said.get(timeout=60) for _ in range(2)] == [told] * 2
        shown.beat(pulse(1, 0.5))
        heard = [said.get(timeout=60)]
    assert heard[0].startswith("epoch 1, 12 of 79 batches") or heard == [told]
    assert said.empty(), "from there on lines are rare"
    shown = TrainingProgress(said.put, None)
    shown.beat(pulse(1, 0.5))
    with shown.told_when_nothing_is_heard():
        told = "epoch 1, 12 of 79 batches; the next batch is still being computed"
        assert told in [said.get(timeout=60) for _ in range(2)]  # the batch itself may have been told first


def test_an_epochs_line_counts_as_life(clock):
    said = []
    shown = TrainingProgress(said.append, None)
    clock[0] = 29
    shown.tell(told(29, 0.01))
    clock[0] = 58
    shown.beat(pulse(58, 0.02))
    assert said == ["epoch 1, step 79: loss 3.5000, validation CER 50.00% (best), 0.25 lines/s, 48 min left"]
    clock[0] = 59
    shown.beat(pulse(59, 0.02))
    assert said[1:] == ["epoch 1, 12 of 79 batches: 0.25 lines/s, about 48 min left"]


def test_a_terminals_bar_moves_with_every_step_and_no_line_is_said(clock):
    said, drawn = [], []
    shown = TrainingProgress(said.append, lambda share, words: drawn.append((share, words)))
    shown.reading(512)
    shown.beat(pulse(60, 0.0, validating=True))  # the start of a fine-tuning is read before the first step
    shown.beat(pulse(60, 0.5, lines_per_second=3.14))
    shown.tell(told(60, 0.5))
    shown.beat(pulse(60, 0.5, lines_per_second=123.4))
    assert drawn == [
        (0.0, "reading lines, 512 so far"),
        (0.0, "validating, 12 of 79 lines, 0.25 lines/s"),
        (0.5, "epoch 1, 12 of 79 batches, 3.1 lines/s, about 60 s left"),
        (0.5, "epoch 1, 12 of 79 batches, loss 3.5000, 123 lines/s, about 60 s left"),
    ]
    assert len(said) == 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(42, "42 s"), (420, "7 min"), (11_100, "3 h 05 min"), (35_999, "10 h 00 min")]
)
def test_times_are_spoken(seconds, words):
    assert spoken(seconds) == words


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """`train` up to where the data would be read: the settings it begins with, and what it said."""
    found = []

    def run_job(one, *_, **__):
        found.append(one)
        return job.Outcome(True, 0, None, None)

    monkeypatch.setattr(job, "run_job", run_job)

    def call(*options, device="cpu"):
        words = ["train", "-d", str(tmp_path), "-o", str(tmp_path / "run"), "--device", device, *map(str, options)]
        done = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return found.pop().config, done.output

    return call


def test_a_preset_for_a_gpu_has_smaller_batches_on_a_cpu_and_says_so_once(begin):
    config, said = begin("-p", "swift")
    assert config == Config.preset("swift").with_overrides({"training.batch_size": 16})
    assert said.count("batches of 16 lines") == 1
    assert "-s training.batch_size=64 for those" in said


@pytest.mark.parametrize("option", ["training.batch_size=64", "training={batch_size: 64}"])
def test_the_size_of_batches_that_is_asked_for_is_taken(begin, option):
    config, said = begin("-p", "swift", "-s", option)
    assert config == Config.preset("swift")
    assert "as suits a CPU" not in said


def test_a_configuration_file_and_small_batches_are_left_alone(begin, tmp_path):
    (tmp_path / "swift.yaml").write_text("preset: swift\n")
    assert begin("-c", tmp_path / "swift.yaml")[0] == Config.preset("swift")
    for preset in ("tiny", "retsinas"):
        config, said = begin("-p", preset)
        assert config == Config.preset(preset)
        assert "as suits a CPU" not in said


def test_a_resumed_run_keeps_its_batches(begin, tmp_path):
    """As it was begun: on a GPU, or before a CPU had batches of its own."""
    (tmp_path / "run").mkdir()
    Config.preset("swift").save(tmp_path / "run" / job.SETTINGS)
    config, said = begin("-p", "swift", "--resume")
    assert config == Config.preset("swift")
    assert "as suits a CPU" not in said
