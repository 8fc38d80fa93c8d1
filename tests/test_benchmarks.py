"""Benchmarks that check what they measure, on very little: they are run rarely, and would go stale in silence."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from pages_help import save_random
from spikehtr.assets import FONTS
from spikehtr.data.synth import synthesise

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
HELPERS = {"served"}  # of other benchmarks


def run(name, *args):
    command = [sys.executable, BENCHMARKS / f"{name}.py", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", sorted(BENCHMARKS.glob("*.py")), ids=lambda file: file.stem)
def test_every_benchmark_finds_what_it_imports(file, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    spec = importlib.util.spec_from_file_location("benchmark", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark", module)
    spec.loader.exec_module(module)
    assert file.stem in HELPERS or callable(module.main)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines") / "drawn"
    synthesise(["le pain", "la plume"], FONTS, 2, folder / "test", height=64)
    return folder


@pytest.mark.slow  # resuming itself: tests/cli/test_transcribe.py
def test_every_page_is_transcribed_or_listed_and_a_killed_run_is_resumed(tmp_path):
    told = run("transcribe", "--model", save_random(tmp_path / "random.safetensors"), "--pages", 8)
    assert "8 pages, 1 of them broken" in told
    assert "transcribed 7; all good ones: True" in told


@pytest.mark.slow  # the readers themselves: tests/readers/test_readers.py
def test_readers_are_compared_with_the_reference(lines):
    told = run("reading", "bundled", "--data", lines, "--lines", 2, "--device", "cpu")
    assert "2 lines of" in told
    reference = next(row for row in told.splitlines() if "reference, fp32" in row)
    assert "100.0%" in reference
