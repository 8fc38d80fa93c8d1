"""A process that edits a page and its project at random and says on its standard output what was acknowledged.

It waits to be killed.

`python editing_process.py FOLDER SEED`
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from editing_help import ADA, PROJECT_KINDS, project_step, step

from spikehtr.serve.page_files import PageFiles
from spikehtr.serve.project import Project


def main(folder: Path, seed: int) -> None:
    project, rng = Project(folder), random.Random(seed)
    files = PageFiles(project)
    files.start()
    page = 1
    print("ready", flush=True)
    while True:
        state = project.log.state(page)
        if rng.random() < 0.2:
            seq, patch = project_step(project, rng.choice(PROJECT_KINDS), rng)
            palette = patch.get("settings", {}).get("palette")
            said = [seq, "/palette", palette[1] and palette[1]["value"]] if palette else [seq, None, None]
            print(json.dumps(said), flush=True)
        elif rng.random() < 0.7 and state.lines:
            name = rng.choice(sorted(state.lines))
            text = f"{rng.random():.12f}"
            op = {"op": "set_text", "line": name, "version": state.version("lines", name), "text": text}
            seq, *_ = project.edit(page, [op], ADA)
            files.note(page)
            print(json.dumps([seq, name, text]), flush=True)
        else:
            step(project, page, rng.choice(["add_line", "undo", "redo", "reshape", "machine", "delete"]), rng)
            files.note(page)
            print(json.dumps([project.log.last, None, None]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
