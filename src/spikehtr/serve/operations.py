"""What a person may do to a page: each operation checks what it was given and changes a copy of the page's state.

A list of operations is one edit: all are done or none. Where a thing has another version than the one that the sender
saw, somebody else changed it meanwhile, and the edit is a conflict.
"""

from __future__ import annotations

import math
import secrets
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spikehtr.results.write_page import KINDS
from spikehtr.serve import line_shapes
from spikehtr.serve.documents import NEW_LINE, NEW_REGION, ORDER, Entity, PageState, Part
from spikehtr.serve.http_errors import RequestError, invalid

MOST_OPS = 500
_LONGEST = 10_000  # characters of a line
Op = dict[str, Any]


class Conflict(NamedTuple):
    """A thing that is not as the sender saw it."""

    op: int
    part: Part | None  # None: the order of the regions
    name: str
    sent_version: int


class ConflictError(Exception):
    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__("changed by somebody else meanwhile")
        self.conflicts = conflicts


@dataclass
class Draft:
    """A page's state while operations change it."""

    state: PageState
    width: int
    height: int
    created: dict[str, str] = field(default_factory=dict)  # ref -> id
    fresh: set[str] = field(default_factory=set)  # things that this edit changed: they need no version
    conflicts: list[Conflict] = field(default_factory=list)
    number: int = 0  # of the operation being done

    def line(self, op: Op, key: str = "line", version: Any = ...) -> tuple[str, Entity] | None:
        """The line that an operation names; None, and a conflict noted, where it is gone or has changed."""
        found = self._named(op, key, "lines", version)
        return None if found is None else (found, self.state.lines[found])

    def region(self, op: Op, key: str = "region") -> tuple[str, Entity] | None:
        found = self._named(op, key, "regions", ...)
        return None if found is None else (found, self.state.regions[found])

    def _named(self, op: Op, key: str, part: Part, version: Any) -> str | None:
        given = op.get(key)
        if not isinstance(given, str):
            raise invalid(self.place(key), "must be an id", "send the id that the page has")
        name = self.resolved(given)
        if name in self.fresh and name in self.state.part(part):
            return name
        version = op.get("version") if version is ... else version
        if isinstance(version, bool) or not isinstance(version, int):
            raise invalid(self.place("version"), "must be the version of what is to be changed", "send the one seen")
        if name not in self.state.part(part) or self.state.version(part, name) != version:
            self.conflicts.append(Conflict(self.number, part, name, version))
            return None
        return name

    def resolved(self, name: str) -> str:
        if not name.startswith("@"):
            return name
        if name[1:] not in self.created:
            raise invalid(self.place("ref"), f"{name} names nothing that this edit made", "make it in an earlier op")
        return self.created[name[1:]]

    def place(self, key: str) -> str:
        return f"ops[{self.number}].{key}"

    def change_line(self, name: str, **values: Any) -> None:
        self.state.lines[name] = {**self.state.lines[name], **values}
        self.fresh.add(name)

    def change_region(self, name: str, **values: Any) -> None:
        self.state.regions[name] = {**self.state.regions[name], **values}

    def new_id(self, stem: str, op: Op) -> str:
        """An id that no line or region of the page has had: a deleted one may come back by undo."""
        while True:
            name = f"{stem}{secrets.token_hex(4)}"
            if name not in self.state.lines and name not in self.state.regions:
                break
        self.created[str(op.get("ref") or self.number)] = name
        self.fresh.add(name)
        return name

    def insert(self, name: str, region: str, before: str | None) -> None:
        """Put a line into a region's list."""
        lines = [line for line in self.state.regions[region]["lines"] if line != name]
        lines.insert(lines.index(before) if before in lines else len(lines), name)
        self.change_region(region, lines=lines)

    def take_out(self, name: str) -> None:
        region = self.state.lines[name]["region"]
        self.change_region(region, lines=[line for line in self.state.regions[region]["lines"] if line != name])

    def points(self, op: Op, key: str, least: int) -> line_shapes.Points:
        given = op.get(key)
        if not isinstance(given, list) or len(given) > line_shapes.MOST:
            raise invalid(self.place(key), f"must be a list of up to {line_shapes.MOST} points [x, y]")
        for point in given:
            if not (isinstance(point, list) and len(point) == 2 and all(map(_is_number, point))):
                raise invalid(self.place(key), "must be a list of points [x, y] of finite numbers")
        points = line_shapes.clipped(given, self.width, self.height)
        if len(points) < least or (least == 3 and not line_shapes.encloses(points)):
            raise invalid(self.place(key), f"needs {least} different points on the page at least", "draw it again")
        return points

    def text(self, op: Op, key: str = "text") -> str:
        given = op.get(key)
        if not isinstance(given, str):
            raise invalid(self.place(key), "must be a text")
        if len(given) > _LONGEST:
            raise invalid(self.place(key), f"longer than {_LONGEST} characters", "split the line")
        return plain(given)


def plain(text: str) -> str:
    """A line's text as it is kept: NFC, in one row, without characters that XML cannot hold."""
    kept = "".join(" " if character in "\n\r\t\x0b\x0c\x85\u2028\u2029" else character for character in text)
    kept = "".join(c for c in kept if unicodedata.category(c) not in ("Cc", "Cs") and c not in "\ufffe\uffff")
    return unicodedata.normalize("NFC", kept).strip()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def perform(state: PageState, ops: object, width: int, height: int) -> Draft:
    """The state after a list of operations; `state` stays as it is."""
    if not isinstance(ops, list) or not 1 <= len(ops) <= MOST_OPS:
        raise invalid("ops", f"must be a list of 1 to {MOST_OPS} operations")
    draft = Draft(state.copy(), width, height)
    for number, op in enumerate(ops):
        draft.number = number
        if not isinstance(op, dict) or op.get("op") not in OPERATIONS:
            raise invalid(f"ops[{number}].op", f"must be one of {', '.join(OPERATIONS)}")
        OPERATIONS[op["op"]](draft, op)
    if draft.conflicts:
        raise ConflictError(draft.conflicts)
    draft.state.check()
    return draft


def label_of(ops: Sequence[Op]) -> str:
    names = {op["op"] for op in ops}
    return names.pop() if len(names) == 1 else "edits"


def _set_text(draft: Draft, op: Op) -> None:
    text = draft.text(op)
    if found := draft.line(op):
        draft.change_line(found[0], text=text, by="person")


def _confirm(draft: Draft, op: Op) -> None:
    if found := draft.line(op):
        draft.change_line(found[0], by="person")


def _unconfirm(draft: Draft, op: Op) -> None:
    if found := draft.line(op):
        name, line = found
        reading = line["reading"]
        if reading is None:
            raise invalid(draft.place("line"), f"{name} was never read by a machine", "read the page first")
        draft.change_line(name, text=reading["text"], by="machine", confidence=reading["confidence"])


def _reshape(draft: Draft, op: Op) -> None:
    if (found := draft.line(op)) is None:
        return
    name, line = found
    values: Entity = {}
    if op.get("baseline") is not None:
        values["baseline"] = draft.points(op, "baseline", 2) if op["baseline"] else []
    if op.get("polygon") is not None:
        values["polygon"] = draft.points(op, "polygon", 3)
    elif values.get("baseline"):
        old, new = line["baseline"], values["baseline"]
        polygon = line_shapes.followed(old, new, line["polygon"], draft.width, draft.height)
        if line_shapes.encloses(polygon):
            values["polygon"] = polygon
    if not values:
        raise invalid(draft.place("polygon"), "neither a baseline nor an outline is given")
    if values.get("polygon", line["polygon"]) != line["polygon"]:
        values["stale"] = line["reading"] is not None or line["by"] == "machine"
    draft.change_line(name, **values)


def _add_line(draft: Draft, op: Op) -> None:
    state = draft.state
    baseline = draft.points(op, "baseline", 2) if op.get("baseline") else []
    if op.get("polygon"):
        polygon = draft.points(op, "polygon", 3)
    elif baseline:
        height = line_shapes.usual_height([line["polygon"] for line in state.lines.values()], draft.height)
        polygon = line_shapes.around(baseline, height, draft.width, draft.height)
    else:
        raise invalid(draft.place("baseline"), "neither a baseline nor an outline is given", "draw one of them")
    if not line_shapes.encloses(polygon):
        raise invalid(draft.place("baseline"), "encloses nothing of the page", "draw it on the page")
    region = _region_for(draft, op, polygon)
    name = draft.new_id("l", op)
    state.lines[name] = {**NEW_LINE, "region": region, "baseline": baseline, "polygon": polygon}
    before = draft.resolved(op["before"]) if isinstance(op.get("before"), str) else None
    if op.get("place") == "auto":
        before = _below(state, region, polygon)
    draft.insert(name, region, before)


def _region_for(draft: Draft, op: Op, polygon: line_shapes.Points) -> str:
    """The region that is named, else the nearest one, else a new one."""
    state = draft.state
    if isinstance(op.get("region"), str):
        name = draft.resolved(op["region"])
        if name in state.regions:
            return name
        draft.conflicts.append(Conflict(draft.number, "regions", name, 0))
    middle = _middle(polygon)
    lines = [(math.dist(middle, _middle(line["polygon"])), line["region"]) for line in state.lines.values()]
    if lines:
        return str(min(lines)[1])
    if state.order:
        return state.order[-1]
    name = draft.new_id("r", {"ref": f"region of {op.get('ref') or draft.number}"})
    state.regions[name] = dict(NEW_REGION)
    state.order = [*state.order, name]
    return name


def _middle(polygon: line_shapes.Points) -> tuple[float, float]:
    return sum(x for x, _ in polygon) / len(polygon), sum(y for _, y in polygon) / len(polygon)


def _below(state: PageState, region: str, polygon: line_shapes.Points) -> str | None:
    """The first line of a region that lies below a new one."""
    height = _middle(polygon)[1]
    lines = state.regions[region]["lines"]
    return next((name for name in lines if _middle(state.lines[name]["polygon"])[1] > height), None)


def _split(draft: Draft, op: Op) -> None:
    x, at = op.get("x"), op.get("at")
    if not _is_number(x):
        raise invalid(draft.place("x"), "must be a column of the page")
    assert isinstance(x, int | float)
    if (found := draft.line(op)) is None:
        return
    name, line = found
    left, right = (line_shapes.cut_polygon(line["polygon"], x, side) for side in (True, False))
    if not (line_shapes.encloses(left) and line_shapes.encloses(right)):
        raise invalid(draft.place("x"), "does not lie within the line", "split it between its ends")
    text = line["text"]
    is_rtl = runs_right_to_left(text)
    if at is None:
        at = _text_place(line, float(x), is_rtl)
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(text):
        raise invalid(draft.place("at"), f"must be a place in the text, 0 to {len(text)}")
    first, last = text[:at].strip(), text[at:].strip()
    left_text, right_text = (last, first) if is_rtl else (first, last)
    baselines = line_shapes.cut_baseline(line["baseline"], x) if line["baseline"] else ([], [])
    changed = {"reading": None, "stale": line["by"] == "machine"}
    draft.change_line(name, polygon=left, baseline=baselines[0], text=left_text, **changed)
    other = draft.new_id("l", op)
    draft.state.lines[other] = {
        **line,
        **changed,
        "polygon": right,
        "baseline": baselines[1],
        "text": right_text,
    }
    lines = draft.state.regions[line["region"]]["lines"]
    after = lines.index(name) + (0 if is_rtl else 1)
    draft.insert(other, line["region"], lines[after] if after < len(lines) else None)


def _text_place(line: Entity, x: float, is_rtl: bool) -> int:
    """The place in the text that belongs to a column of the page."""
    text, reading = line["text"], line["reading"]
    if reading is not None and reading["text"] == text and reading["characters"]:
        place = 0
        for character in reading["characters"]:
            middle = (character[2] + character[4]) / 2
            if (middle > x) != is_rtl:
                break
            place += len(character[0])
        return place
    left, right = (pick(px for px, _ in line["polygon"]) for pick in (min, max))
    share = (x - left) / max(1, right - left)
    place = round(len(text) * (1 - share if is_rtl else share))
    spaces = [index for index, character in enumerate(text) if character == " "]
    return min(spaces, key=lambda index: abs(index - place), default=place)


def runs_right_to_left(text: str) -> bool:
    """Whether most of a text's letters belong to a script that is written from right to left."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def _join(draft: Draft, op: Op) -> None:
    names, versions = op.get("lines"), op.get("versions")
    if not isinstance(names, list) or not isinstance(versions, list) or len(names) != len(versions) or len(names) < 2:
        raise invalid(draft.place("lines"), "must be two lines or more, with as many versions")
    found = [draft.line({"line": name}, version=version) for name, version in zip(names, versions, strict=True)]
    lines = [entry for entry in found if entry is not None]
    if len(lines) < len(found):
        return
    if len({name for name, _ in lines}) < len(lines):
        raise invalid(draft.place("lines"), "the same line twice")
    first = lines[0][0]
    every = [entity for _, entity in lines]
    text = " ".join(part["text"] for part in every if part["text"])
    is_persons = any(part["by"] == "person" for part in every)
    by = "person" if is_persons else "machine" if any(part["by"] for part in every) else None
    confidences = [part["confidence"] for part in every if part["confidence"] is not None]
    for name, _ in lines[1:]:
        draft.take_out(name)
        del draft.state.lines[name]
    polygon = line_shapes.joined_polygons([part["polygon"] for part in every])
    draft.change_line(
        first,
        baseline=[point for part in sorted(every, key=_left) for point in part["baseline"]],
        polygon=line_shapes.clipped(polygon, draft.width, draft.height),
        text=text,
        by=by,
        confidence=min(confidences, default=None),
        reading=None,
        stale=by == "machine",
    )


def _left(line: Entity) -> int:
    return min((x for x, _ in line["baseline"] or line["polygon"]), default=0)


def _delete(draft: Draft, op: Op) -> None:
    if found := draft.line(op):
        draft.take_out(found[0])
        del draft.state.lines[found[0]]


def _place(draft: Draft, op: Op) -> None:
    if (found := draft.line(op)) is None:
        return
    region = draft.resolved(str(op.get("region")))
    if region not in draft.state.regions:
        draft.conflicts.append(Conflict(draft.number, "regions", region, 0))
        return
    before = draft.resolved(op["before"]) if isinstance(op.get("before"), str) else None
    if before is not None and before not in draft.state.regions[region]["lines"]:
        draft.conflicts.append(Conflict(draft.number, "lines", before, 0))
        return
    if before == found[0]:
        return
    draft.take_out(found[0])
    draft.change_line(found[0], region=region)
    draft.insert(found[0], region, before)


def _order_lines(draft: Draft, op: Op) -> None:
    if (found := draft.region(op)) is None:
        return
    given = op.get("lines")
    if not isinstance(given, list) or sorted(map(str, given)) != sorted(found[1]["lines"]):
        raise invalid(draft.place("lines"), "must be all lines of the region, each once", "reload the page")
    draft.change_region(found[0], lines=given)


def _add_region(draft: Draft, op: Op) -> None:
    values = _region_values(draft, {"kind": "paragraph", **op})
    moved = op.get("lines") or []
    if not isinstance(moved, list) or any(draft.resolved(str(name)) not in draft.state.lines for name in moved):
        raise invalid(draft.place("lines"), "must be lines of the page", "reload the page")
    name = draft.new_id("r", op)
    draft.state.regions[name] = {**NEW_REGION, "lines": [], **values}
    order = list(draft.state.order)
    before = op.get("before")
    order.insert(order.index(before) if before in order else len(order), name)
    draft.state.order = order
    for line in dict.fromkeys(draft.resolved(str(one)) for one in moved):
        draft.take_out(line)
        draft.change_line(line, region=name)
        draft.insert(line, name, None)


def _region_values(draft: Draft, op: Op) -> Entity:
    values: Entity = {}
    if "kind" in op:
        if op["kind"] not in KINDS:
            raise invalid(draft.place("kind"), f"must be one of {', '.join(sorted(KINDS))}")
        values["kind"] = op["kind"]
    if op.get("polygon"):
        values["polygon"] = draft.points(op, "polygon", 3)
    return values


def _set_region(draft: Draft, op: Op) -> None:
    values = _region_values(draft, op)
    if not values:
        raise invalid(draft.place("kind"), "neither a kind nor an outline is given")
    if found := draft.region(op):
        draft.change_region(found[0], **values)


def _delete_region(draft: Draft, op: Op) -> None:
    if found := draft.region(op):
        seen = op.get("seq")
        if found[1]["lines"] and (isinstance(seen, bool) or not isinstance(seen, int)):
            raise invalid(draft.place("seq"), "must be the page's seq that was seen, where a region has lines")
        for line in found[1]["lines"]:
            if line not in draft.fresh and draft.state.version("lines", line) > int(seen or 0):
                draft.conflicts.append(Conflict(draft.number, "lines", line, int(seen or 0)))
            del draft.state.lines[line]
        del draft.state.regions[found[0]]
        draft.state.order = [name for name in draft.state.order if name != found[0]]


def _order_regions(draft: Draft, op: Op) -> None:
    given, version = op.get("regions"), op.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise invalid(draft.place("version"), "must be the page's order_version")
    if version != draft.state.version(ORDER, ""):
        draft.conflicts.append(Conflict(draft.number, None, "", version))
    elif not isinstance(given, list) or sorted(map(str, given)) != sorted(draft.state.order):
        raise invalid(draft.place("regions"), "must be all regions, each once", "reload the page")
    else:
        draft.state.order = [str(name) for name in given]


OPERATIONS: dict[str, Callable[[Draft, Op], None]] = {
    "set_text": _set_text,
    "confirm": _confirm,
    "unconfirm": _unconfirm,
    "reshape": _reshape,
    "add_line": _add_line,
    "split": _split,
    "join": _join,
    "delete": _delete,
    "place": _place,
    "order_lines": _order_lines,
    "add_region": _add_region,
    "set_region": _set_region,
    "delete_region": _delete_region,
    "order_regions": _order_regions,
}

__all__ = ["OPERATIONS", "Conflict", "ConflictError", "Draft", "RequestError", "label_of", "perform", "plain"]
