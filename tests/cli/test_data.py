"""`spikehtr data ...` as a person meets it."""

import json

import pytest
from cli_help import run
from PIL import Image

from data_help import write_folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    return write_folder(tmp_path / "src")


def test_check_says_what_to_mend_and_exits_with_1(folder, tmp_path):
    clean = run("data", "check", folder)
    assert clean.returncode == 0
    assert "nothing to mend" in clean.stdout
    (folder / "train" / "000.png").write_bytes(b"")
    (folder / "train" / "001.png").write_bytes(b"x")
    bad = run("data", "check", folder, "-o", tmp_path / "report.json")
    assert bad.returncode == 1
    assert "unreadable image: 2 lines" in bad.stdout
    assert "2 to mend" in bad.stdout
    assert "001.png" not in bad.stdout  # one example of each kind
    assert "001.png" in run("data", "check", folder, "--all").stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] is False
    assert len(report["problems"]) == 2
    assert {"kind", "where", "message", "remedy", "severity"} == set(report["problems"][0])
    assert json.loads(run("data", "check", folder, "--json").stdout) == report


def test_stats(folder):
    text = run("data", "stats", folder).stdout
    assert "8 lines" in text
    assert json.loads(run("data", "stats", folder, "--json").stdout)["splits"]["train"]["lines"] == 8
    assert "to mend" not in text
    (folder / "train" / "000.png").write_bytes(b"")
    assert "unreadable image: 1 line" in run("data", "stats", folder).stdout


def test_compile_then_use_the_store(folder, tmp_path):
    target = tmp_path / "lines.arrow"
    done = run("data", "compile", folder, "-o", target)
    assert done.returncode == 0
    assert "8 lines (8 train)" in done.stdout
    assert run("data", "check", target).returncode == 0
    assert run("data", "check", f"store:{target}").returncode == 0
    (folder / "train" / "000.png").write_bytes(b"")
    again = run("data", "compile", folder, "-o", target)
    assert again.returncode == 1
    assert "000.png" in again.stdout


def test_preview_draws(folder, tmp_path):
    done = run("data", "preview", folder, "-o", tmp_path / "sheet.png", "-n", 3, "--versions", 2)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 300


def test_synth_makes_a_set_that_checks_clean(tmp_path):
    (tmp_path / "corpus.txt").write_text("The ink was dry before the letter was read.\n" * 5 + "Only ☃ here.\n")
    done = run("data", "synth", "--text", tmp_path / "corpus.txt", "-n", 6, "-o", tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert "6 lines drawn" in done.stdout
    assert "U+2603" in done.stdout
    assert run("data", "check", tmp_path / "made").returncode == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["check", "nowhere"], "nowhere"),
        (["check", "pge:nowhere"], "page"),
        (["compile", "nowhere", "-o", "x.arrow"], "nowhere"),
        (["compile", ".", "-o", "no/x.arrow"], "make it first"),
        (["synth", "--text", "nowhere.txt", "-o", "made"], "nowhere.txt"),
        (["preview", "nowhere"], "nowhere"),
        (["check", ".", "-s", "data.augment.strech=1"], "data.augment.stretch"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(args, says, tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    done = run("data", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
