"""Several processes at a time: who gets which device, what becomes of failures, and two ways to stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from spikehtr.config import Config
from spikehtr.studies import runner
from spikehtr.studies.runner import carry_out_tasks
from spikehtr.studies.study_plan import FAILED, LOG, RESULT, Task

PROGRAMS = {
    "good": "open({result!r}, 'w').write('{{}}')",
    "slow": "import time; time.sleep(0.3); open({result!r}, 'w').write('{{}}')",
    "wrong": "open({log!r}, 'a').write('first\\nno line to train on\\n'); raise SystemExit(2)",
    "lengthy": "open({log!r}, 'a').write('RuntimeError: no room left\\nFor debugging ...\\n'); raise SystemExit(1)",
    "silent": "raise SystemExit(7)",
    "polite": "import os, signal, time; signal.signal(15, lambda *_: os._exit(3)); {up}; time.sleep(60)",
    "deaf": "import signal, time; signal.signal(15, signal.SIG_IGN); {up}; time.sleep(60)",
}


@pytest.fixture
def started(monkeypatch):
    """Processes that only pretend: (variant, device, how many ran at that moment)."""
    seen, processes = [], []

    def start(task, device, threads):
        running = sum(process.poll() is None for process in processes)
        seen.append((task.variant, device, running))
        (task.folder / LOG).touch()
        names = {"result": str(task.folder / RESULT), "log": str(task.folder / LOG)}
        names["up"] = f"open({names['log']!r}, 'a').write('up')"
        code = PROGRAMS[task.variant.split("-")[0]].format(**names)
        processes.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE))
        return processes[-1]

    monkeypatch.setattr(runner, "_start", start)
    yield seen
    assert all(process.poll() is not None for process in processes)


def tasks(folder, *variants):
    return [Task("d", "d", name, name, 0, Config.preset("tiny"), folder / name) for name in variants]


def test_a_failure_is_told_by_its_exception(started, tmp_path):
    carried = carry_out_tasks(tasks(tmp_path, "lengthy-a", "good-c"), ["cpu"], 2, lambda _: None)
    assert carried.failed == {"d, lengthy-a, seed 0": "RuntimeError: no room left"}  # not the advice in the last line
    assert len(started) == 2


def test_lines_that_the_runs_left_out_are_told_once(started, tmp_path, capsys):
    wanted = tasks(tmp_path, "good-a", "good-b")
    for task in wanted:
        task.folder.mkdir()
        (task.folder / "data.json").write_text('{"left_out_by_reading": 3}')
    carry_out_tasks(wanted, ["cpu"], 2, lambda _: None)
    assert capsys.readouterr().err == "3 lines or files of d left out; `spikehtr data check d` lists them\n"


def test_devices_are_shared_out_and_failures_noted(started, tmp_path):
    told, over = [], []
    wanted = tasks(tmp_path, "slow-a", "slow-b", "wrong-a", "good-a", "silent-a", "good-b")
    carried = carry_out_tasks(wanted, ["cuda:0", "cuda:1"], 3, told.append, over.append)
    assert over == [0, 1, 2, 3, 4, 5, 6]
    assert Counter(device for _, device, _ in started[:3]) == {"cuda:0": 2, "cuda:1": 1}
    assert all(running <= 2 for *_, running in started)
    assert sorted(task.variant for task in carried.finished) == ["good-a", "good-b", "slow-a", "slow-b"]
    assert carried.failed == {"d, wrong-a, seed 0": "no line to train on", "d, silent-a, seed 0": "exit code 7"}
    assert (tmp_path / "wrong-a" / FAILED).read_text() == "no line to train on\n"
    assert not carried.stopped
    assert sum("[4/6]" in line for line in told) == 1
    again = carry_out_tasks(wanted, ["cuda:0"], 2, told.append)
    assert [name for name, *_ in started[6:]] == ["wrong-a", "silent-a"]  # what is done is not done again
    assert len(again.finished) == 4


@pytest.mark.parametrize(("program", "signals"), [("polite", 1), ("deaf", 2)])
def test_asked_to_stop(program, signals, started, tmp_path):
    wanted = tasks(tmp_path, f"{program}-a", f"{program}-b", "good-a")

    def ask():
        while not all((task.folder / LOG).exists() and (task.folder / LOG).read_text() for task in wanted[:2]):
            time.sleep(0.01)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.5)

    asking = threading.Thread(target=ask)
    asking.start()
    before = signal.getsignal(signal.SIGTERM)
    begun = time.monotonic()
    carried = carry_out_tasks(wanted, ["cpu"], 2, lambda _: None)
    asking.join()
    assert carried.stopped
    assert (carried.finished, carried.failed) == ([], {})
    assert [name for name, *_ in started] == [f"{program}-a", f"{program}-b"]  # the third was not begun
    assert time.monotonic() - begun < 30
    assert signal.getsignal(signal.SIGTERM) == before
