"""Random edits of a page, as several people send them; without torch, so that a process of them starts at once."""

from __future__ import annotations

import random
from typing import Any

from spikehtr.serve.documents import PageState
from spikehtr.serve.event_steps import Author
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.page_parsing import parse_file
from spikehtr.serve.project import Project

ADA, BOB = Author("ada", "Ada"), Author("bob", "Bob")
PROJECT_KINDS = ("settings", "order", "remove", "put_back", "undo", "redo")
KINDS = ("set_text", "confirm", "split", "join", "delete", "reshape", "place", "add_line", "machine", "undo", "redo")


def random_op(kind: str, state: PageState, rng: random.Random) -> dict[str, object] | None:
    """An operation on a random line, as somebody would send it who sees the page as it is."""
    if kind == "add_line":
        return boxes()[rng.randrange(4)]
    lines = [name for name, _ in state.ordered()]
    if not lines:
        return None
    name = rng.choice(lines)
    op: dict[str, object] = {"op": kind, "line": name, "version": state.version("lines", name)}
    left, right = (pick(x for x, _ in state.lines[name]["polygon"]) for pick in (min, max))
    if kind == "set_text":
        op["text"] = rng.choice(["eins", "zwei drei", "", "שלום", "é̀"])
    elif kind == "split":
        if right - left < 20:
            return None
        op["x"] = rng.uniform(left + 5, right - 5)
    elif kind == "join":
        other = rng.choice(lines)
        if other == name:
            return None
        op = {"op": kind, "lines": [name, other], "versions": [state.version("lines", n) for n in (name, other)]}
    elif kind == "reshape":
        shift = rng.randrange(-9, 10)
        op["polygon"] = [[x + shift, y + shift] for x, y in state.lines[name]["polygon"]]
    elif kind == "place":
        op |= {"region": rng.choice(state.order), "before": None}
    return op


def step(project: Project, page: int, kind: str, rng: random.Random) -> None:
    state = project.log.state(page).copy()
    if kind in ("undo", "redo"):
        found = project.log.next_steps(page)[kind == "redo"]
        if found is not None:
            project.turn(page, kind, found.seq, rng.choice([ADA, BOB]))
    elif kind == "machine":  # a reading, now and then as part of a step, after which others may have come
        for name, line in state.lines.items():
            if line["by"] != "person" and rng.random() < 0.5:
                reading = {"text": f"read {rng.random():.3f}", "confidence": 0.5, "model": "m", "characters": []}
                values = {"text": reading["text"], "by": "machine", "confidence": 0.5, "reading": reading}
                state.lines[name] = {**line, **values, "stale": False}
        steps = [one.seq for one, _ in project.log._stacks_of(page).undo[-3:]]
        belongs = rng.choice(steps) if steps and rng.random() < 0.7 else None
        project.change(page, "reread", state, by_person=False, step=belongs)
    elif (op := random_op(kind, state, rng)) is not None:
        try:
            project.edit(page, [op], rng.choice([ADA, BOB]))
        except RequestError:  # a shape that this operation cannot have: then nothing is done
            if project.log.state(page) != state:
                raise


def project_step(project: Project, kind: str, rng: random.Random) -> tuple[int, Any]:
    """A change of the project as a whole; the last event's number, and what changed."""
    history, author = project.history, rng.choice([ADA, BOB])
    pages = [int(name) for name in project.log.project.pages]
    if kind == "settings":
        names = rng.sample(["threshold", "palette", "direction", "language", "ui.zoom"], 2)
        values = {"threshold": rng.random(), "palette": f"{rng.random()}", "direction": rng.choice(["ltr", "rtl"])}
        values |= {"language": rng.choice(["de", "fr", None]), "ui.zoom": rng.randrange(9)}
        return history.change_settings({name: values[name] for name in names}, author)
    if kind == "order":
        return history.order(rng.sample(pages, rng.randint(1, len(pages))), author)
    if kind in ("remove", "put_back"):
        return history.remove(rng.sample(pages, rng.randint(1, len(pages))), kind == "remove", author)
    found = history.steps()[kind]
    return history.turn(kind, found["seq"], author) if found else (project.log.last, {})


def boxes() -> list[dict[str, Any]]:
    """Operations that draw the page's four lines."""
    return [
        {
            "op": "add_line",
            "ref": f"{number}",
            "baseline": [[20, 60 + 60 * number], [380, 60 + 60 * number]],
            "polygon": [[20, top := 30 + 60 * number], [380, top], [380, top + 40], [20, top + 40]],
        }
        for number in range(4)
    ]


def in_file(project: Project, page: int) -> PageState:
    row = project.row(page)
    return parse_file(project.path(row["file"]), project.image(row)).state


def same(file: PageState, log: PageState) -> bool:
    """Whether a file says what the log says. Empty regions of a file and readings are not compared."""

    def facts(state: PageState) -> Any:
        regions = [(name, state.regions[name]["lines"]) for name in state.order if state.regions[name]["lines"]]
        keys = ("text", "baseline", "polygon", "region")
        return regions, {n: [line[k] for k in keys] + [line["by"] == "person"] for n, line in state.lines.items()}

    return bool(facts(file) == facts(log))
