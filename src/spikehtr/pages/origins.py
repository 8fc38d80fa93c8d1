"""Which source each result in a folder is of, so that two scans of one name never share a result."""

from __future__ import annotations

import json
from pathlib import Path

FILE = ".spikehtr-origins.jsonl"  # in the folder of results: a line for each


class Origins:
    """What earlier runs noted in a folder, and this one adds. Results without a note may be anyone's."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else folder / FILE
        self._sources: dict[str, str] = {}
        if self.file is not None and self.file.is_file():
            for row in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    name, source = json.loads(row)
                except (ValueError, TypeError):  # a kill may leave half a line
                    continue
                self._sources[str(name).lower()] = str(source)  # on some disks A and a are one file

    def another(self, name: str, source: Path) -> bool:
        """Whether the result of this name is another source's. One that is gone has been moved, and is this one."""
        noted = self._sources.get(name.lower())
        return noted is not None and not _same_page(Path(noted), source.resolve()) and Path(noted).exists()

    def note(self, name: str, source: Path) -> None:
        path = str(source.resolve())
        if self.file is None or self._sources.get(name.lower()) == path:
            return
        self._sources[name.lower()] = path
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, path]) + "\n")


def _same_page(one: Path, other: Path) -> bool:
    """Whether two sources are one, or an image and the PAGE or ALTO file of its name beside it."""
    beside = one.with_suffix("") == other.with_suffix("") and ".xml" in (one.suffix.lower(), other.suffix.lower())
    return one == other or beside
