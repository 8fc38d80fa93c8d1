"""The shapes in which pages, lines and changes go to the browser."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from spikehtr.serve.documents import ORDER, Entity, PageState, Patch, touched
from spikehtr.serve.draft import Conflict
from spikehtr.serve.event_steps import Author

if TYPE_CHECKING:
    from spikehtr.serve.project import Project

SMALLEST = 1024  # pixels of the longer side at which images are halved no further
_MOST_LINES = 200  # of a change that is sent to every browser


def levels_of(width: int, height: int) -> int:
    return 1 + max(0, math.ceil(math.log2(max(width, height, 1) / SMALLEST)))


def state_name(row: sqlite3.Row) -> str:
    if not row["lines"]:
        return "new"
    if row["corrected"] == row["lines"]:
        return "corrected"
    if row["corrected"]:
        return "started"
    return "read" if row["read"] == row["lines"] else "found"


def summary_view(row: sqlite3.Row) -> dict[str, Any]:
    base = f"/api/pages/{row['id']}"
    return {
        "id": row["id"],
        "name": row["name"],
        "image": row["image"],
        "file": row["file"],
        "width": row["width"],
        "height": row["height"],
        "state": state_name(row),
        "lines": row["lines"],
        "lines_read": row["read"],
        "lines_corrected": row["corrected"],
        "expected_error": None if row["expected"] is None else round(row["expected"], 4),
        "seq": row["seq"],
        "order": row["position"],
        "levels": levels_of(row["width"], row["height"]),
        "image_url": f"{base}/image?v={row['stamp']}",
        "thumbnail_url": f"{base}/thumbnail?v={row['stamp']}",
        "problem": row["problem"],
        "removed": bool(row["removed"]),
        "folder": str(PurePosixPath(row["image"]).parent),
    }


def line_view(state: PageState, name: str) -> dict[str, Any]:
    line = state.lines[name]
    return {
        "id": name,
        "region": line["region"],
        "version": state.version("lines", name),
        "baseline": line["baseline"],
        "polygon": line["polygon"],
        "text": line["text"],
        "by": line["by"],
        "corrected": line["by"] == "person",
        "confidence": line["confidence"],
        "reading": line["reading"],
        "stale": line["stale"],
    }


def region_view(state: PageState, name: str) -> dict[str, Any]:
    region = state.regions[name]
    polygon = region["polygon"] or _box_around(state.lines[line] for line in region["lines"])
    about = {"id": name, "kind": region["kind"], "polygon": polygon, "version": state.version("regions", name)}
    return about | {"lines": region["lines"]}


def _box_around(lines: Iterable[Entity]) -> list[list[int]]:
    points = [point for line in lines for point in line["polygon"]] or [[0, 0], [1, 1]]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return [[min(xs), min(ys)], [max(xs), min(ys)], [max(xs), max(ys)], [min(xs), max(ys)]]


def page_view(project: Project, page: int) -> dict[str, Any]:
    with project.log.lock:
        row, state = project.row(page), project.log.state(page)
        return {
            "page": summary_view(row),
            "regions": [region_view(state, name) for name in state.order],
            "lines": [line_view(state, name) for name, _ in state.ordered()],
            "seq": row["seq"],
            "order_version": state.version(ORDER, ""),
            **project.steps(page),
        }


def change_view(
    project: Project,
    page: int,
    seq: int,
    patch: Patch,
    label: str,
    author: Author | None = None,
    created: dict[str, str] | None = None,
) -> dict[str, Any]:
    with project.log.lock:
        row, state = project.row(page), project.log.state(page)
        names = touched(patch, "lines")
        return {
            "seq": seq,
            "page": summary_view(row),
            "lines": [line_view(state, name) for name in names if name in state.lines],
            "deleted": [name for name in names if name not in state.lines],
            "regions": [region_view(state, name) for name in state.order],
            "order_version": state.version(ORDER, ""),
            "created": created or {},
            "label": label,
            "client": author.client if author else None,
            **project.steps(page),
        }


def project_change_view(project: Project, seq: int, patch: Patch, label: str, author: Author) -> dict[str, Any]:
    """A change of the project: the settings and pages that it is about, and what undo and redo would do now."""
    return {
        "seq": seq,
        "label": label,
        "client": author.client,
        "settings": touched(patch, "settings"),
        "pages": [int(name) for name in touched(patch, "pages")],
        **project.history.steps(),
    }


def sent_to_all(change: dict[str, Any]) -> dict[str, Any]:
    """A change as every browser hears of it: without its lines where they are many."""
    return change if len(change["lines"]) <= _MOST_LINES else change | {"lines": None}


def conflict_view(project: Project, page: int, conflict: Conflict) -> dict[str, Any]:
    """What the sender saw, and what is there now."""
    with project.log.lock:
        state = project.log.state(page)
        about: dict[str, Any] = {"op": conflict.op, "line": None, "region": None, "sent_version": conflict.sent_version}
        if conflict.part is None:
            return about | {"current": {"regions": state.order, "version": state.version(ORDER, "")}, "base": None}
        seen = project.log.seen_at(page, conflict.part, conflict.name, conflict.sent_version)
        view = line_view if conflict.part == "lines" else region_view
        current, base = (
            view(one, conflict.name) if conflict.name in one.part(conflict.part) else None for one in (state, seen)
        )
        about["line" if conflict.part == "lines" else "region"] = conflict.name
        return about | {"current": current, "base": base}
