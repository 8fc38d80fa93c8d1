"""Which source a line was compiled from, told by where its origin begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


def source_finder(sources: Sequence[str], otherwise: str) -> Callable[[str], str]:
    """A function from a line's origin (`lines/bronod/test.parquet, row 3`) to that one of `sources` it came from.

    For stores of a time when that was not noted with each line. Every reader's origins begin with the path it was
    given. Of nested sources the innermost counts. Lines that were compiled from another store keep the origins they had
    there and begin with no source: they are `otherwise`'s.
    """
    if len(sources) == 1:
        return lambda origin: sources[0]
    starts = [(start, source) for source in sources for start in _starts(source)]
    starts.sort(key=lambda pair: -len(pair[0]))

    def find(origin: str) -> str:
        return next((source for start, source in starts if _begins(origin, start)), otherwise)

    return find


def _starts(source: str) -> list[str]:
    """How origins of this source may begin: its path as `Path` writes it, and that without a leading `format:`."""
    paths = [str(Path(name).expanduser()) for name in (source, source.partition(":")[2]) if name]
    return ["" if path == "." else path for path in paths]


def _begins(origin: str, start: str) -> bool:
    if not start:  # the working folder: whatever is relative
        return not Path(origin).is_absolute()
    return origin.startswith(start) and origin[len(start) : len(start) + 1] in ("", "/", "\\", ",")
