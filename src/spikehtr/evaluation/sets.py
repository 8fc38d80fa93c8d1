"""What the sets of lines are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def short_names(names: Sequence[str]) -> dict[str, str]:
    """A short name for each: the last part of its path, or the whole where two would be called the same."""
    last = {name: Path(name).name or name for name in dict.fromkeys(names)}
    seen = list(last.values())
    return {name: short if seen.count(short) == 1 else name for name, short in last.items()}
