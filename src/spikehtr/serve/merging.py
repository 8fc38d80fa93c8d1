"""An edit from outside meets the log: which of the two wins, line by line and field by field.

`base` is what the PAGE file said when it was last read or written, `theirs` what it says now, `ours` what the log says.
What only one side changed is taken from that side. What both changed stays as the log has it, and is counted.
"""

from __future__ import annotations

from typing import NamedTuple

from spikehtr.serve.documents import Entity, PageState

_TEXT = ("text", "is_persons")
_PLACES = ("baseline", "polygon")


class Merged(NamedTuple):
    state: PageState
    conflicts: list[str]  # lines that both changed


def merge(base: PageState, ours: PageState, theirs: PageState) -> Merged:
    conflicts: list[str] = []
    lines: dict[str, Entity] = {}
    for name in [*ours.lines, *(name for name in theirs.lines if name not in ours.lines)]:
        line = _merged_line(base.lines.get(name), ours.lines.get(name), theirs.lines.get(name), name, conflicts)
        if line is not None:
            lines[name] = line
    takes_theirs = _structure(theirs) != _structure(base) and _structure(ours) == _structure(base)
    return Merged(_arranged(lines, *((theirs, ours) if takes_theirs else (ours, theirs)), base), conflicts)


def say_the_same(one: PageState, other: PageState) -> bool:
    """As a PAGE file says it: the same lines, with the same texts and places, in the same regions and order."""
    if one.lines.keys() != other.lines.keys() or _structure(one) != _structure(other):
        return False
    return all(_facts(line) == _facts(other.lines[name]) for name, line in one.lines.items())


def _merged_line(
    base: Entity | None, ours: Entity | None, theirs: Entity | None, name: str, conflicts: list[str]
) -> Entity | None:
    if ours is None:
        if theirs is None or (base is not None and _facts(base) == _facts(theirs)):
            return None  # deleted here
        return theirs
    if theirs is None:
        return None if base is not None and _facts(base) == _facts(ours) else ours
    line = ours
    for fields in (_TEXT, _PLACES):
        was, here, there = (_facts(one, fields) if one is not None else None for one in (base, ours, theirs))
        if there in (was, here):
            continue
        if here != was:
            conflicts.append(name)
        elif fields is _TEXT:
            line = {**line, "text": theirs["text"], "by": theirs["by"], "confidence": theirs["confidence"]}
        else:
            line = {**line, "baseline": theirs["baseline"], "polygon": theirs["polygon"]}
            line["stale"] = line["reading"] is not None
    return line


def _facts(line: Entity, fields: tuple[str, ...] = (*_TEXT, *_PLACES)) -> list[object]:
    values = {**line, "is_persons": line["by"] == "person"}
    return [values[field] for field in fields]


def _structure(state: PageState) -> list[tuple[str, list[str]]]:
    """Regions that hold lines, and which; empty ones may not stand in every file."""
    return [(name, state.regions[name]["lines"]) for name in state.order if state.regions[name]["lines"]]


def _arranged(lines: dict[str, Entity], first: PageState, second: PageState, base: PageState) -> PageState:
    """The lines in the order and the regions of `first`; what only `second` has is put in where that has it."""
    state = PageState()
    for source, other in ((first, second), (second, first)):
        for name in source.order:
            if name in state.regions:
                continue
            held = any(line in lines and line not in first.lines for line in source.regions[name]["lines"])
            if source is first or name not in base.regions or held:
                state.regions[name] = {**_merged_region(name, source, other, base), "lines": []}
                state.order.append(name)
    for source in (first, second):
        for name, line in source.ordered():
            if name not in lines or name in state.lines:
                continue
            region = line["region"]
            state.lines[name] = {**lines[name], "region": region}
            state.regions[region]["lines"].append(name)
    return state


def _merged_region(name: str, source: PageState, other: PageState, base: PageState) -> Entity:
    """A region's kind and outline: the other side's where only that changed them."""
    region, there, was = source.regions[name], other.regions.get(name), base.regions.get(name)
    if there is None or was is None:
        return region
    return {key: there[key] if region[key] == was[key] else region[key] for key in region}
