"""What `transcribe` noted in a folder of results: the digest of each file as it was written.

Plain text has no room for a note of its own. Beside a line image it would be taken for the line's transcript, so that
it counts as a model's for as long as it is what was written.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

NOTES = ".spikehtr-origins.jsonl"  # in the folder of results: a row for each


def digest_of(data: bytes) -> str:
    """Of a file's content, as the notes have it."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class WrittenFiles:
    """What the notes in a file's folder, and in those above it up to `root`, say was written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._load = cache(_last_digests)

    def holds(self, file: Path) -> bool:
        """Whether a file is byte for byte as it was written last."""
        for folder in self.folders(file):
            noted = self._load(folder).get(file.relative_to(folder).as_posix().lower())
            if noted is not None:
                return noted == _digest_of_file(file)
        return False

    def folders(self, file: Path) -> list[Path]:
        return [folder for folder in file.parents if folder.is_relative_to(self._root)]


def _digest_of_file(file: Path) -> str | None:
    try:
        return digest_of(file.read_bytes())
    except OSError:  # the reader says so
        return None


def _last_digests(folder: Path) -> dict[str, str]:
    try:
        rows = (folder / NOTES).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for row in rows:
        try:
            values = json.loads(row)
        except ValueError:  # a kill may leave half a row
            continue
        if isinstance(values, dict) and "file" in values and "digest" in values:
            found[str(values["file"]).lower()] = str(values["digest"])
    return found
