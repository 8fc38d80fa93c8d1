"""Runs that another study has made already: the paper's ablations share the row that has everything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spikehtr.data.compiling import open_lines
from spikehtr.errors import SpikeHTRError
from spikehtr.files import read_json, write_json
from spikehtr.studies.study_plan import RESULT, STUDY, TASK, Task

_LEFT = ("last.safetensors", "previous.safetensors", ".lock", "*.tmp")  # a finished run needs no checkpoints


def made_elsewhere(tasks: Sequence[Task], folders: Sequence[Path]) -> dict[Path, Task]:
    """By the folder of a task that is not begun: a finished run of another study that is the same in all but its name.

    The same settings, lines and seed, by epochs and from scratch: what fits into minutes hangs on the machine.
    """
    made = []
    for folder in folders:
        if not (folder / STUDY).is_file():
            raise SpikeHTRError(f"{folder}: no study here to take runs from")
        made += [Task.read(path.parent) for path in sorted(folder.glob(f"*/*/*/{RESULT}"))]
    if made and any(task.max_minutes or task.start for task in tasks):
        raise SpikeHTRError("--reuse is for runs from scratch by --epochs: what --budget allows hangs on the machine")
    found = {}
    for task in tasks:
        same = None if task.folder.exists() else next((other for other in made if _same(task, other)), None)
        if same is not None:
            found[task.folder] = same
    return found


def _same(task: Task, other: Task) -> bool:
    renamed = replace(other, data=task.data, variant=task.variant, label=task.label, folder=task.folder)
    # Where the lines were, on another machine perhaps, says nothing: what they are does, below. But evaluations name
    # each line's set as its place is called.
    if Path(other.source).name != Path(task.source).name:
        return False
    if replace(renamed, source=task.source, command=task.command) != task:
        return False
    c, found = task.config, read_json(other.folder / RESULT)
    digest = open_lines([task.source], c.model.height, c.data.max_width, straighten=c.data.straighten).digest()
    return found is not None and found["digest"] == digest  # the lines may have changed since


def take_over(task: Task, made: Task) -> None:
    """Make a finished run the task's; its folder is whole or not there."""
    task.folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = task.folder.with_name(f".{task.folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(made.folder, temporary, copy_function=_copy, ignore=shutil.ignore_patterns(*_LEFT))
    write_json(temporary / TASK, task.to_dict())
    found = read_json(made.folder / RESULT) or {}
    write_json(temporary / RESULT, found | {"variant": task.variant, "data": task.data})
    temporary.rename(task.folder)


def _copy(source: str, target: str) -> str:
    """Models are large: the same file twice, where that can be."""
    if source.endswith(".safetensors"):
        try:
            os.link(source, target)
            return target
        except OSError:
            pass
    return shutil.copy2(source, target)
