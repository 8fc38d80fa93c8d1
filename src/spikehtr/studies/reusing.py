"""Runs that another study has made already: the paper's ablations share the row that has everything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from spikehtr.data.compiling import open_lines
from spikehtr.errors import SpikeHTRError
from spikehtr.studies.tasks import RESULT, STUDY, TASK, Task, read_json
from spikehtr.training.records import write_json

_LEFT = ("last.safetensors", "previous.safetensors", ".lock")  # a finished run needs no checkpoints


def take_over(tasks: Sequence[Task], folders: Sequence[Path], say: Callable[[str], None]) -> None:
    """Copy what is finished in other studies' folders, and the same: settings, lines, seed, budget."""
    for folder in folders:
        if not (folder / STUDY).is_file():
            raise SpikeHTRError(f"{folder}: no study here to take runs from")
        made = [Task.read(path.parent) for path in sorted(folder.glob(f"*/*/*/{RESULT}"))]
        for task in tasks:
            if not task.finished and not task.folder.exists():
                same = next((other for other in made if _same(task, other)), None)
                if same is not None:
                    _copy(same, task)
                    say(f"{task.title}: taken from {same.folder}")


def _same(task: Task, other: Task) -> bool:
    renamed = replace(other, data=task.data, variant=task.variant, label=task.label, folder=task.folder)
    if replace(renamed, command=task.command) != task:
        return False
    c, found = task.config, read_json(other.folder / RESULT)
    digest = open_lines([task.source], c.model.height, c.data.max_width).digest()
    return found is not None and found["digest"] == digest  # the lines may have changed since


def _copy(made: Task, task: Task) -> None:
    """The result comes last: without it a run is not finished."""
    left = shutil.ignore_patterns(*_LEFT, TASK, RESULT)
    shutil.copytree(made.folder, task.folder, copy_function=_link, ignore=left)
    task.write()
    found = read_json(made.folder / RESULT) or {}
    write_json(task.folder / RESULT, found | {"variant": task.variant, "data": task.data})


def _link(source: str, target: str) -> str:
    """The same file twice where that can be: models are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
