"""Chains of commands: what goes side by side, what waits, what is told, what is done again."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from spikehtr.errors import SpikeHTRError
from spikehtr.studies import command_chains
from spikehtr.studies.command_chains import Chain, Step, carry_out

NO_ANSWER = 3


class Commands:
    """In place of `subprocess.Popen`: commands that take some looks, and make files."""

    def __init__(self, codes=None, looks=1, at_end=lambda command: None):
        self.codes, self.looks, self.at_end, self.log, self.most, self.now = codes or {}, looks, at_end, [], 0, 0

    def __call__(self, command, **_):
        assert command[:3] == [sys.executable, "-m", "spikehtr"]
        self.log.append(command[3:])
        self.now += 1
        self.most = max(self.most, self.now)
        return Command(self, command[3:])


class Command:
    def __init__(self, commands, words):
        self.commands, self.words, self.left, self.returncode = commands, words, commands.looks, None
        self.pid = len(commands.log)

    def poll(self):
        self.left -= 1
        if self.left <= 0 and self.returncode is None:
            self.commands.now -= 1
            self.returncode = self.commands.codes.get(self.words[0], 0)
            if self.returncode == 0 and self.words[-1] != "nothing":
                Path(self.words[-1]).parent.mkdir(parents=True, exist_ok=True)
                Path(self.words[-1]).touch()
            self.commands.at_end(self.words)
        return self.returncode

    def send_signal(self, sign):
        self.returncode = -sign
        self.commands.now -= 1


def chain(name, *files, after=None, words=("train",), fine=()):
    return Chain(name, [Step(file, [*words, str(file)], fine) for file in files], after)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(command_chains, "_LOOK_EVERY", 0.001)

    def use(commands):
        monkeypatch.setattr(command_chains.subprocess, "Popen", commands)
        return commands

    return use


def test_chains_go_side_by_side_and_some_after_another(quick, tmp_path):
    done = [tmp_path / name for name in "abcdefg"]
    chains = [
        chain("lines", *done[:2]),
        chain("one", done[2]),
        chain("two", done[3]),
        chain("last", done[4], after="lines"),
    ]
    commands = quick(Commands(looks=3))
    said = []
    assert carry_out(chains, 2, tmp_path, said.append)
    order = [Path(words[-1]) for words in commands.log]
    assert sorted(order) == done[:5]
    assert order[-1] == done[4], "it comes after"
    assert order.index(done[0]) < order.index(done[1])
    assert commands.most == 2
    assert carry_out(chains, 2, tmp_path, said.append)
    assert len(commands.log) == 5, "what is done is not done again"


def test_a_failure_is_told_and_holds_up_only_what_needs_it(quick, tmp_path):
    chains = [
        chain("lines", tmp_path / "a", words=("data",)),
        chain("real", tmp_path / "b"),
        chain("drawn", tmp_path / "c", after="lines"),
    ]
    commands, said = quick(Commands(codes={"data": 2})), []
    assert not carry_out(chains, 1, tmp_path, said.append)
    assert [words[-1][-1] for words in commands.log] == ["a", "b"]
    assert any("lines: failed: spikehtr data" in line and "exit code 2" in line for line in said)
    assert said[-1] == "failed: 2 commands are left to do; the same command goes on"


def test_an_answer_is_noted_and_a_failure_is_not(quick, tmp_path):
    for code, noted in ((0, True), (NO_ANSWER, True), (1, False), (-9, False)):
        file = tmp_path / f"tuned{code}"
        quick(Commands(codes={"lm": code}))
        chains = [Chain("tune", [Step(file, ["lm", "tune", "nothing"], (NO_ANSWER,))])]
        assert carry_out(chains, 1, tmp_path, lambda _: None) == noted
        assert file.exists() == noted


def test_a_command_that_made_nothing_has_failed(quick, tmp_path):
    quick(Commands())
    said = []
    chains = [Chain("empty", [Step(tmp_path / "x", ["train", "nothing"])])]
    assert not carry_out(chains, 1, tmp_path, said.append)
    assert "ended without" in said[1]


def test_a_training_goes_on_from_its_checkpoint(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(command_chains, "has_checkpoint", lambda folder: folder.name == "begun")
    commands = quick(Commands())
    carry_out([chain("a", tmp_path / "begun" / "r"), chain("b", tmp_path / "new" / "r")], 1, tmp_path, lambda _: None)
    assert commands.log == [
        ["train", "--resume", "-o", str(tmp_path / "begun")],
        ["train", str(tmp_path / "new" / "r")],
    ]


def test_ctrl_c_stops_what_runs_and_begins_nothing(quick, tmp_path):
    commands = quick(Commands(looks=10**9))
    said = []

    def say(text):
        said.append(text)
        if len(commands.log) == 1:
            signal.raise_signal(signal.SIGTERM)

    assert not carry_out([chain("a", tmp_path / "a"), chain("b", tmp_path / "b")], 2, tmp_path, say)
    assert len(commands.log) == 2
    assert commands.now == 0
    assert said[-1] == "stopped: 2 commands are left to do; the same command goes on"


def test_a_study_is_carried_out_once_at_a_time(tmp_path):
    with FileLock(tmp_path / ".lock"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(carry_out, [], 1, tmp_path, print)
        with pytest.raises(SpikeHTRError, match="another command is at work there"):
            other.result()
