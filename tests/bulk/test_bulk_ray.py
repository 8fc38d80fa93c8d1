"""Bulk runs on a local Ray: they end, they go on after kills, and no page is lost or there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bulk_help import HERE, write_pages

from spikehtr.bulk.report import result_files, summarise
from spikehtr.bulk.unpack import unpack

pytest.importorskip("ray", reason="Ray is not installed: pip install 'spikehtr[ray]'")
pytestmark = pytest.mark.slow  # a local Ray takes ten seconds to start


def begin(folder: Path, pages: Path, delay: float = 0.0) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(HERE / "bulk_help.py"), str(folder), str(pages), str(delay)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, pages: Path) -> None:
    process = begin(folder, pages)
    out, errors = process.communicate(timeout=400)
    assert process.returncode == 0, out + errors


def ids(folder: Path) -> Counter[str]:
    return Counter(name for file in result_files(folder / "results") for name in pq.read_table(file)["id"].to_pylist())


def children(process: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        parents.setdefault(parent, []).append(int(place.name))
    found, waiting = [], [process]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def named(processes: list[int], *words: str) -> list[int]:
    found = []
    for number in processes:
        try:
            line = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if any(word in line.split("\0")[0] for word in words):
            found.append(number)
    return found


def test_every_page_is_a_row_and_a_second_call_finds_nothing_to_do(tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "scans", 40, poisoned=(7, 30))
    finish(tmp_path / "run", pages)
    report = summarise(tmp_path / "run" / "results", tmp_path / "run" / "pages.parquet")
    assert (report.pages, report.errors, report.missing, report.twice) == (38, {"crash": 2}, 0, 0)
    assert unpack(tmp_path / "run", tmp_path / "files").written == 38
    before = ids(tmp_path / "run")
    finish(tmp_path / "run", pages)
    assert ids(tmp_path / "run") == before
    assert set(before.values()) == {1}


@pytest.mark.parametrize("whom", ["worker", "driver", "ray"])
def test_after_a_kill_at_any_moment_a_run_goes_on_and_every_page_is_there_once(whom: str, tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "scans", 120, poisoned=(5,))
    choice = random.Random(whom)
    for _ in range(int(os.environ.get("SPIKEHTR_KILLS", "1"))):
        process = begin(tmp_path / "run", pages, delay=0.05)
        deadline = time.monotonic() + 200
        while not named(children(process.pid), "ray::") and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(choice.uniform(0, 12))
        below = children(process.pid)
        words = {"worker": ("ray::",), "ray": ("raylet", "gcs_server")}
        victims = [process.pid] if whom == "driver" else named(below, *words[whom])
        for number in victims[:1] if whom == "worker" else victims:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if whom == "worker":
            process.communicate(timeout=400)
        else:
            time.sleep(1)
            for number in [process.pid, *below]:  # what Ray leaves behind when it is killed itself
                try:
                    os.kill(number, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.communicate()
    finish(tmp_path / "run", pages)
    found = ids(tmp_path / "run")
    assert len(found) == 120, "none is lost"
    assert set(found.values()) == {1}, "none is there twice"
    report = summarise(tmp_path / "run" / "results", tmp_path / "run" / "pages.parquet")
    assert (report.pages, report.errors) == (119, {"crash": 1})
