"""A page's state while operations change it: what an operation names, its versions, points and texts, all checked."""

from __future__ import annotations

import math
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spikehtr.serve import line_shapes
from spikehtr.serve.documents import Entity, PageState, Part
from spikehtr.serve.http_errors import invalid

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
            if not (isinstance(point, list) and len(point) == 2 and all(map(is_number, point))):
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


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
