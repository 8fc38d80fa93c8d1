"""What a person may do to a page: each operation checks what it was given and changes a copy of the page's state.

A list of operations is one edit: all are done or none. Where a thing has another version than the one that the sender
saw, somebody else changed it meanwhile, and the edit is a conflict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from spikehtr.results.write_page import KINDS
from spikehtr.serve import line_shapes
from spikehtr.serve.documents import NEW_LINE, NEW_REGION, ORDER, Entity, PageState
from spikehtr.serve.draft import Conflict, ConflictError, Draft, Op
from spikehtr.serve.http_errors import invalid
from spikehtr.serve.split_and_join import join, split

MOST_OPS = 500


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
    "split": split,
    "join": join,
    "delete": _delete,
    "place": _place,
    "order_lines": _order_lines,
    "add_region": _add_region,
    "set_region": _set_region,
    "delete_region": _delete_region,
    "order_regions": _order_regions,
}
