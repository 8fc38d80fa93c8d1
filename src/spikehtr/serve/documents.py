"""The editable state of a page or a project as plain data, and the differences between two states, which the log keeps.

A line is a dictionary with the keys of `NEW_LINE`, a region one with those of `NEW_REGION`. They are never changed in
place: an operation puts a new dictionary in. So a copy of a state is cheap, and two states differ where the objects do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Entity = dict[str, Any]
Patch = dict[str, Any]
Part = Literal["lines", "regions"]
PARTS: tuple[Part, ...] = ("lines", "regions")
ORDER = "order"  # the key of the regions' order in a patch and among the versions

NEW_LINE: Entity = {
    "region": "",
    "baseline": [],
    "polygon": [],
    "text": "",
    "by": None,  # person, machine, or None: no text yet
    "confidence": None,
    "reading": None,  # what a machine read: text, confidence, model, characters, judged
    "stale": False,  # whether the outline moved after the reading
}
NEW_REGION: Entity = {"kind": "paragraph", "polygon": [], "lines": []}


@dataclass
class State:
    """Things by part and id, the order of those that have one, and the version of each: the number of the event that
    changed it."""

    parts: ClassVar[tuple[str, ...]] = ()
    order: list[str] = field(default_factory=list, kw_only=True)
    versions: dict[tuple[str, str], int] = field(default_factory=dict, compare=False, kw_only=True)

    def part(self, part: str) -> dict[str, Entity]:
        things: dict[str, Entity] = getattr(self, part)
        return things

    def version(self, part: str, name: str) -> int:
        return self.versions.get((part, name), 0)


@dataclass
class ProjectState(State):
    """Settings, each {value}; pages, each {position, removed}."""

    parts = ("settings", "pages")
    settings: dict[str, Entity] = field(default_factory=dict)
    pages: dict[str, Entity] = field(default_factory=dict)


@dataclass
class PageState(State):
    """Regions in reading order, and the lines in them."""

    parts = PARTS
    lines: dict[str, Entity] = field(default_factory=dict)
    regions: dict[str, Entity] = field(default_factory=dict)

    def copy(self) -> PageState:
        return PageState(dict(self.lines), dict(self.regions), order=self.order, versions=dict(self.versions))

    def ordered(self) -> Iterator[tuple[str, Entity]]:
        """Ids and lines in reading order."""
        for region in self.order:
            for name in self.regions[region]["lines"]:
                yield name, self.lines[name]

    def check(self) -> None:
        """Every line stands in exactly one region, and every region in the order."""
        placed = [name for region in self.order for name in self.regions[region]["lines"]]
        assert sorted(placed) == sorted(self.lines), "lines and regions disagree"
        assert sorted(self.order) == sorted(self.regions), "regions and their order disagree"
        assert all(name in self.regions[line["region"]]["lines"] for name, line in self.lines.items())


def difference(before: State, after: State) -> Patch:
    """What makes `after` of `before`: for each thing its changed fields, before and after; None: it is not there."""
    patch: Patch = {}
    for part in before.parts:
        old, new = before.part(part), after.part(part)
        changes = {}
        for name in [*old, *(name for name in new if name not in old)]:
            one, other = old.get(name), new.get(name)
            if one is other or one == other:
                continue
            if one is None or other is None:
                changes[name] = [one, other]
            else:
                fields = [key for key in other if one.get(key) != other[key]]
                changes[name] = [{key: one.get(key) for key in fields}, {key: other[key] for key in fields}]
        if changes:
            patch[part] = changes
    if before.order != after.order:
        patch[ORDER] = [before.order, after.order]
    return patch


def inverse(patch: Patch) -> Patch:
    parts = [part for part in patch if part != ORDER]
    turned: Patch = {part: {name: pair[::-1] for name, pair in patch[part].items()} for part in parts}
    return turned | ({ORDER: patch[ORDER][::-1]} if ORDER in patch else {})


class PatchError(ValueError):
    """A patch that does not fit the state: the log is damaged."""


def apply(state: State, patch: Patch, version: int | None) -> None:
    """Change a state in place. `version` is noted for what is changed; None (a machine's reading): only for what is
    new, and that gets the version 0."""
    for part in state.parts:
        things = state.part(part)
        for name, (old, new) in patch.get(part, {}).items():
            _check_fits(things.get(name), old, part, name)
            if new is None:
                del things[name]
                state.versions.pop((part, name), None)
                continue
            things[name] = {**things[name], **new} if old is not None else new
            if version is not None:
                state.versions[part, name] = version
            else:
                state.versions.setdefault((part, name), 0)
    if ORDER in patch:
        if state.order != patch[ORDER][0]:
            raise PatchError("the order of the regions is not the one the change was made from")
        state.order = patch[ORDER][1]
        if version is not None:
            state.versions[ORDER, ""] = version


def _check_fits(here: Entity | None, old: Entity | None, part: str, name: str) -> None:
    fits = here is None if old is None else here is not None and all(here.get(key) == old[key] for key in old)
    if not fits:
        raise PatchError(f"{part} {name}: is not as it was when the change was made")


def overlap(one: Patch, other: Patch) -> bool:
    """Whether both are about the same thing; if not, it makes no difference which of them comes first."""
    both = (one.keys() & other.keys()) - {ORDER}
    return (ORDER in one and ORDER in other) or any(one[part].keys() & other[part].keys() for part in both)


def touched(patch: Patch, part: str) -> list[str]:
    return list(patch.get(part, ()))


def is_corrected(line: Entity) -> bool:
    return bool(line["by"] == "person")
