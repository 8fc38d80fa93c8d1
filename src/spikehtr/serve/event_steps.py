"""What undo and redo go by: steps, each of one event or several, and who made them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What one undo takes back: its first event's number, and all of them."""

    seq: int
    label: str
    lines: tuple[str, ...]
    time: float
    client: str | None
    user: str | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "label": self.label,
            "lines": list(self.lines),
            "time": timestamp(self.time),
            "user": self.user,
            "client": self.client,
        }


@dataclass
class Stacks:
    """Steps that can be undone and redone, the last one last; each with its events."""

    undo: list[tuple[Step, list[int]]] = field(default_factory=list)
    redo: list[tuple[Step, list[int]]] = field(default_factory=list)

    def place(self, step: int) -> int | None:
        """Where a step stands among those that can be undone."""
        places = range(len(self.undo) - 1, -1, -1)
        return next((place for place in places if self.undo[place][0].seq == step), None)


class Author(NamedTuple):
    client: str | None = None
    user: str | None = None


MACHINE = Author()


def timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"
