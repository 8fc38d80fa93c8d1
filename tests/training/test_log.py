import pytest

from spikehtr.training.log import Log, read_log
from spikehtr.training.loop import LogEntry


def told(step, cer=None):
    values = {"loss": 2.0, "ctc": 1.5, "aux": 1.0, "kl": 0.1}
    values |= {"keep_ratio": 0.9, "gradient": 3.0}
    return LogEntry(step, 1 + step // 10, step / 100, 0.5 * step, 80.0, 1e-3, values, cer, epoch_ended=cer is not None)


def test_rows_come_back_as_numbers(tmp_path):
    log = Log(tmp_path)
    log(told(5))
    log(told(10, cer=0.25))
    first, second = read_log(tmp_path)
    assert (first["step"], first["epoch"], first["loss"], first["validation_cer"]) == (5, 1, 2.0, None)
    assert (second["step"], second["validation_cer"], second["seconds"]) == (10, 0.25, 5.0)
    log.close()


def test_a_resumed_run_takes_back_what_was_never_saved_and_goes_on(tmp_path):
    log = Log(tmp_path)
    for step in (5, 10, 15):
        log(told(step))
    log.close()
    with (tmp_path / "log.csv").open("a") as file:
        file.write("20,3,10.0,1e-")  # a row cut short by a kill
    again = Log(tmp_path, step=10)
    again(told(15, cer=0.5))
    again.close()
    assert [(row["step"], row["validation_cer"]) for row in read_log(tmp_path)] == [(5, None), (10, None), (15, 0.5)]


def test_a_new_run_starts_a_new_log(tmp_path):
    log = Log(tmp_path)
    log(told(5))
    log.close()
    Log(tmp_path).close()
    assert read_log(tmp_path) == []


def test_tensorboard_has_the_same_numbers(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    log = Log(tmp_path)
    log(told(5))
    log(told(10, cer=0.25))
    log.close()
    board = events.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert {"loss", "learning_rate", "validation_cer"} <= set(board.Tags()["scalars"])
    assert [(e.step, e.value) for e in board.Scalars("validation_cer")] == [(10, 0.25)]
    assert [e.step for e in board.Scalars("loss")] == [5, 10]
