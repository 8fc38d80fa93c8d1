"""A backup of a project: the log as one consistent file, the PAGE files and the models, in a .zip."""

from __future__ import annotations

import sqlite3
import tempfile
import time
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse, Response

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.serve.http_errors import not_found
from spikehtr.serve.jobs import BackgroundJob
from spikehtr.serve.project import STATE

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_LOG = "workbench.sqlite"


def write_backup(folder: Path, target: Path, images: bool = False) -> Path:
    """Everything that cannot be made again, also while a server works on it. Images only where asked for."""
    state = folder / STATE
    if not (state / _LOG).is_file():
        raise SpikeHTRError(f"{folder}: no project (it has no {STATE}/{_LOG}); name the folder that was served")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state) as temporary:
        copy = Path(temporary) / _LOG
        with closing(sqlite3.connect(state / _LOG, timeout=30)) as source, closing(sqlite3.connect(copy)) as backup:
            source.backup(backup)
        with closing(sqlite3.connect(copy)) as database:
            rows = database.execute("SELECT image, file FROM pages").fetchall()
        with whole_file(target) as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(copy, f"{STATE}/{_LOG}")
            for model in sorted((state / "models").glob("*.safetensors")):
                archive.write(model, f"{STATE}/models/{model.name}")
            wanted = [name for row in rows for name in (row[1], row[0] if images else None) if name]
            wanted += [".spikehtr-origins.jsonl", ".spikehtr-read"]
            for name in wanted:
                if (folder / name).is_file():
                    archive.write(folder / name, name)
    return target


def backup_job(bench: Workbench, job: BackgroundJob) -> None:
    bench.files.flush()
    folder = bench.project.private / "backups"
    target = folder / f"{bench.project.folder.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.zip"
    write_backup(bench.project.folder, target)
    job.result = {"url": f"/api/jobs/{job.id}/file", "bytes": target.stat().st_size, "name": target.name}


def file_of_job(bench: Workbench, number: int) -> Response:
    """The backup that a job made."""
    result = bench.jobs.get(number).get("result") or {}
    name = result.get("name")
    file = bench.project.private / "backups" / Path(str(name)).name
    if not name or not file.is_file():
        raise not_found(f"file of job {number}")
    return FileResponse(file, media_type="application/zip", filename=file.name)
