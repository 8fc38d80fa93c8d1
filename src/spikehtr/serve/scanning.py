"""Looking through a project's folder: images with and without PAGE or ALTO files, PDF and TIFF files of many pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from spikehtr.data.formats import xml
from spikehtr.data.formats.helpers import walk
from spikehtr.data.images import ImageError, count_frames, image_size
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.inputs import OVERLAY, ROOTS, SUFFIXES, find_sources
from spikehtr.pages.page_images import page_image
from spikehtr.pages.page_source import Source, count_pages, load_colour
from spikehtr.serve.jobs import BackgroundJob
from spikehtr.serve.project import Project, stamp_of
from spikehtr.serve.views import summary_view

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_ITS_IMAGE = "its image"
DPI = 300  # of the images of PDF pages
_TIFF = (".tif", ".tiff")


def scan_job(bench: Workbench, job: BackgroundJob) -> None:
    """Take in what is new in the folder, and edits from outside of what is known."""
    bench.read_new(scan(bench, job))


def scan(bench: Workbench, job: BackgroundJob, brought: Collection[Path] = ()) -> list[int]:
    """The pages that are new. `brought`: files that were just taken in; those of them that are of no use are told."""
    project = bench.project
    job.advance(message="looking through the folder", unit="files")
    _look_at_known(bench, job)
    _render_documents(project, job)
    new = _add_pages(bench, job, brought)
    job.result = {"pages": len(new)}
    return new


def _look_at_known(bench: Workbench, job: BackgroundJob) -> None:
    project = bench.project
    for row in project.log.rows("SELECT * FROM pages WHERE NOT removed"):
        job.check()
        problem = _look_at_image(project, row)
        if problem is not None:
            job.problem(row["image"], problem)
            continue
        try:
            bench.files.look(row["id"])
        except SpikeHTRError as error:
            job.problem(row["file"] or row["image"], str(error))


def _look_at_image(project: Project, row: sqlite3.Row) -> str | None:
    """What is wrong with a page's image, which the page then says, too."""
    image = project.folder / row["image"]
    stamp = stamp_of(image)
    said = row["problem"] if (row["problem"] or "").startswith(_ITS_IMAGE) else None
    if stamp == row["stamp"] and said is None:
        return None
    problem = _fault_of_image(image, (row["width"], row["height"]))
    values: dict[str, object] = {"stamp": stamp} if stamp else {}
    if problem is not None or said is not None:
        values["problem"] = problem
    project.set_page(row["id"], **values)
    project.broadcast.tell("page", summary_view(project.row(row["id"])))
    return problem


def _fault_of_image(image: Path, size: tuple[int, int]) -> str | None:
    if not image.is_file():
        return "its image is not there any more: put it back, or remove the page"
    try:
        width, height = image_size(image)
    except ImageError as error:
        return f"its image cannot be read any more ({error}): put a sound one there"
    if (width, height) != size:
        was = f"{size[0]} x {size[1]}"
        return f"its image has {width} x {height} pixels now, its lines were drawn on {was}: put that one back"
    return None


def _render_documents(project: Project, job: BackgroundJob) -> None:
    """The pages of PDF and TIFF files as images of their own, once for each file."""
    waiting: list[tuple[Source, int, str]] = []
    for file in _files(project):
        suffix = file.suffix.lower()
        if suffix not in (".pdf", *_TIFF):
            continue
        name = file.relative_to(project.folder).as_posix()
        stamp = stamp_of(file)
        known = project.log.row("SELECT stamp FROM documents WHERE path = ?", name)
        if known is not None and known["stamp"] == stamp:
            continue
        try:
            if suffix == ".pdf" or count_frames(file) > 1:
                source = Source(file, "pdf" if suffix == ".pdf" else "image", Path(file.name))
                waiting.append((source, count_pages(source), stamp))
        except SpikeHTRError as error:
            job.problem(name, str(error))
    done, total = 0, sum(count for _, count, _ in waiting)
    for source, count, stamp in waiting:
        name = source.path.relative_to(project.folder).as_posix()
        job.advance(done, total, unit="pages")
        try:
            _render(source, count, job)
            project.log.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", name, stamp)
        except SpikeHTRError as error:
            job.problem(name, str(error))
        done += count


def _render(source: Source, count: int, job: BackgroundJob) -> None:
    file, before = source.path, job.done
    for index in range(count):
        job.advance(before + index, message=f"{file.name}, page {index + 1} of {count}")
        target = file.with_name(f"{file.stem}-{index + 1:04d}.png")
        if target.exists():
            continue
        try:
            image = load_colour(source, index, DPI)
        except ImageError as error:
            job.problem(f"{file.name}, page {index + 1}", str(error))
            continue
        data = page_image(image, file.name, index + 1, DPI if source.kind == "pdf" else None)
        from spikehtr.files import whole_file

        with whole_file(target) as temporary:
            temporary.write_bytes(data)


def _files(project: Project) -> list[Path]:
    """Every file that may be a page; links that lead out of the folder are passed over."""
    found = [path for path in walk(project.folder, frozenset(SUFFIXES)) if not path.name.endswith(OVERLAY)]
    return [path for path in found if path.resolve().is_relative_to(project.folder)]


def _add_pages(bench: Workbench, job: BackgroundJob, brought: Collection[Path]) -> list[int]:
    project = bench.project
    rows = project.log.rows("SELECT image, file FROM pages")
    known, own = {row["image"] for row in rows}, {row["file"] for row in rows}
    several = {row["path"] for row in project.log.rows("SELECT path FROM documents")}
    inputs = []
    for path in _files(project):
        name = path.relative_to(project.folder).as_posix()
        if name in several or name in own or path.suffix.lower() == ".pdf":
            continue
        if path.suffix.lower() != ".xml" or xml.sniff(path) in ROOTS:
            inputs.append(str(path))
    new: list[int] = []
    found = find_sources(inputs)
    job.advance(0, len(found.sources), "", "files")
    for number, source in enumerate(found.sources, start=1):
        job.advance(number)
        page = _add(project, source, known, job, source.path in brought)
        if page is not None:
            new.append(page)
            project.broadcast.tell("page", summary_view(project.row(page)))
    return new


def _add(project: Project, source: Source, known: set[str], job: BackgroundJob, is_brought: bool) -> int | None:
    image = source.image if source.kind == "xml" else source.path
    if image is None:
        job.problem(source.path.name, "its image was not found: put it beside the file, then look again")
        return None
    try:
        if not image.resolve().is_relative_to(project.folder):
            raise SpikeHTRError(f"{source.path.name}: its image lies outside the project's folder; copy it there")
        name = image.relative_to(project.folder).as_posix()
        if name in known:
            if is_brought and source.kind == "xml":
                job.problem(source.path.name, _unused(project, name, source.path))
            return None
        known.add(name)
        return project.add_page(image, source.path if source.kind == "xml" else None)
    except (SpikeHTRError, OSError) as error:
        job.problem(source.path.relative_to(project.folder).as_posix(), str(error))
        return None


def _unused(project: Project, image: str, file: Path) -> str:
    """Why the lines of a PAGE or ALTO file were not taken, and how those of PAGE can be."""
    row = project.log.row("SELECT file FROM pages WHERE image = ?", image)
    can_replace = row is not None and row["file"] and xml.sniff(file) == "PcGts"
    fault = f"{image} is a page already, which keeps its own lines"
    return (
        f"{fault}; to take this file's instead, put it in the place of {row['file']}" if row and can_replace else fault
    )
