"""A server is killed at any moment: no acknowledged edit is lost, and after the start log and PAGE file agree."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from editing_help import in_file, same
from serve_help import draw_page, opened, page_with_lines

from spikehtr.serve import project_tables
from spikehtr.serve.event_log import PROJECT, unpacked
from spikehtr.serve.page_files import PageFiles
from spikehtr.serve.project import Project


def killed(folder: Path, seed: int, seconds: float) -> list[tuple[int, str | None, str | None]]:
    """What a process that edits acknowledged before it was killed."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), str(here.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, str(here / "editing_process.py"), str(folder), str(seed)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(seconds)
    process.kill()
    lines = process.stdout.read().split(b"\n")[:-1]  # what follows the last end of line was not said
    process.stdout.close()
    process.wait()
    return [tuple(json.loads(line)) for line in lines]


def palettes(project: Project) -> dict[int, str | None]:
    """What each event made of a setting."""
    found: dict[int, str | None] = {}
    for row in project.log.rows("SELECT seq, patch FROM events WHERE page = ?", PROJECT):
        pair = unpacked(row["patch"]).get("settings", {}).get("palette")
        if pair is not None:
            found[row["seq"]] = pair[1] and pair[1]["value"]
    return found


def check(folder: Path, acknowledged: list[tuple[int, str | None, str | None]]) -> None:
    with opened(folder) as project:
        page = 1
        assert project.log.row("PRAGMA integrity_check")[0] == "ok"  # type: ignore[index]
        assert project.log.last >= max(seq for seq, *_ in acknowledged)
        assert project.log.replayed(page) == project.log.state(page)
        settings = palettes(project)
        assert all(settings[seq] == text for seq, name, text in acknowledged if name == "/palette")
        assert project.log.replayed_project() == project_tables.stored(project.log)
        assert not project.log.row("SELECT 1 FROM events WHERE label = 'outside'"), (
            "the tables held what the log did not"
        )
        acknowledged = [one for one in acknowledged if one[1] != "/palette"]
        named = {name for _, name, _ in acknowledged if name is not None}
        versions = {name: project.log.texts_of_line(page, name, 10**6) for name in named}
        texts = {(one["seq"], name): one["text"] for name, found in versions.items() for one in found}
        assert all(texts[seq, name] == text for seq, name, text in acknowledged if name is not None)
        files = PageFiles(project)
        files.start()
        files.stop()
        assert project.row(page)["written"] == project.row(page)["seq"]
        assert same(in_file(project, page), project.log.state(page))


def kill_again_and_again(folder: Path, longest: float, edits: int, least: int) -> int:
    """Until so many edits were acknowledged and so many kills made; how many times it was killed."""
    with opened(folder) as project:
        page_with_lines(project)
        for number in range(3):
            draw_page(folder / f"more-{number}.png")
            project.add_page(folder / f"more-{number}.png", None)
    rng, acknowledged, kills = random.Random(0), [], 0
    while len(acknowledged) < edits or kills < least:
        acknowledged += killed(folder, kills, rng.uniform(0.05, longest))
        kills += 1
    check(folder, acknowledged)
    print(f"{len(acknowledged)} edits acknowledged, {kills} kills, none lost")
    return kills


def test_no_acknowledged_edit_is_lost_to_a_kill(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path, 0.8, 1, 1) > 0


@pytest.mark.slow
def test_no_acknowledged_edit_of_a_thousand_is_lost_to_many_kills(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path, 2.0, 1000, 10) >= 10
