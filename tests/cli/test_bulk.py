"""`spikehtr bulk` and `transcribe --shard` as commands; what Ray does is tested in tests/bulk."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_help import run

from pages_help import save_random, simple_page


def test_bulk_is_bulk_run() -> None:
    for command in (("bulk", "run", "--help"), ("bulk", "--address", "auto", "--help")):
        done = run(*command)
        assert done.returncode == 0
        assert "--readers" in done.stdout
    assert "unpack" in run("bulk", "--help").stdout


def test_without_ray_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without_ray(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "ray":
            raise ImportError("No module named 'ray'")
        return usual(name, *more)

    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_ray)
    done = run("bulk", tmp_path, "-o", tmp_path / "run")
    assert done.returncode == 2
    assert "pip install 'spikehtr[ray]'" in done.stderr


def test_a_folder_without_a_run_cannot_be_unpacked(tmp_path: Path) -> None:
    done = run("bulk", "unpack", tmp_path, "-o", tmp_path / "files")
    assert (done.returncode, "holds no results of a bulk run" in done.stderr) == (2, True)


def test_shards_together_write_what_one_run_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    model = save_random(tmp_path / "m.safetensors")
    (tmp_path / "scans").mkdir()
    for number in range(5):
        simple_page(1, size=(900, 300), seed=number)[0].save(tmp_path / "scans" / f"{number}.png")
    command = ["transcribe", tmp_path / "scans", "-m", model, "-f", "page", "-o"]
    assert run(*command, tmp_path / "whole", "--workers", 0).returncode == 0
    read = 0
    for number in (1, 2, 3):
        done = run(*command, tmp_path / "parts", "--shard", f"{number}/3", "--workers", 0)
        assert done.returncode == 0, done.stderr
        read += int(done.stderr.split(" page")[0])
    assert read == 5
    for file in (tmp_path / "whole").glob("*.xml"):
        assert (tmp_path / "parts" / file.name).read_bytes() == file.read_bytes()
    again = run(*command, tmp_path / "parts", "--shard", "2/3", "--resume", "--workers", 0)
    assert again.stderr.startswith("0 pages")
    wrong = run(*command, tmp_path / "parts", "--shard", "4/3")
    assert (wrong.returncode, "from 1/3 on" in wrong.stderr) == (2, True)
