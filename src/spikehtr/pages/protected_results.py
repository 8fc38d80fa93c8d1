"""A folder of results in which nothing is lost: only what we wrote and nobody changed is replaced without being asked.

Time stamps are never looked at: editors, copies and version control set them as they like.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import count
from pathlib import Path

from spikehtr.data.formats.written import digest_of
from spikehtr.files import take_free_name, whole_file
from spikehtr.pages.digests import is_intact
from spikehtr.pages.origins import Origins

_LARGEST = 1 << 28  # bytes; we never wrote more
_TRIES = 3  # a file that comes and goes meanwhile


class FileState(Enum):
    """What stands where a result is to go."""

    FREE = "free"  # nothing
    OURS = "ours"  # what we wrote, byte for byte
    CHANGED = "changed"  # what we wrote, and somebody changed
    FOREIGN = "foreign"  # anything else
    READ_ONLY = "read-only"  # whoever wrote it: somebody protected it


class LeftAsItIs(Exception):
    """A file that must not be replaced."""

    def __init__(self, path: Path, state: FileState) -> None:
        super().__init__(f"{path}: {state.value}, left as it is")
        self.path, self.state = path, state


class NoBackupError(Exception):
    """A file that was not replaced, since no backup of it could be made."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"no backup of {path} can be made ({error.strerror or error}), so it was left as it is")


class ProtectedResults:
    """The files that results are written to. `overwrite`: what is not ours is replaced too, and kept as a backup."""

    def __init__(self, folder: Path, origins: Origins, overwrite: bool = False) -> None:
        self.folder, self.origins, self.overwrite = folder, origins, overwrite
        self.backups: list[tuple[Path, Path]] = []  # files, and where what stood there is now

    def state(self, path: Path) -> FileState:
        return self._judge(path, self._key(path))

    def may_replace(self, state: FileState) -> bool:
        return state in (FileState.FREE, FileState.OURS) or (self.overwrite and state is not FileState.READ_ONLY)

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """A temporary name to write to, as `whole_file` has it. At the end of the block `path` is looked at again:
        LeftAsItIs where it must not be replaced, NoBackupError where it cannot be kept."""
        with whole_file(path, lambda temporary, target: self._place(temporary, target, path)) as temporary:
            yield temporary

    def _key(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _judge(self, file: Path, key: str) -> FileState:
        """What a file is that stands where `key` is to go, or stood there."""
        try:
            info = file.stat()
        except FileNotFoundError:
            return FileState.FREE
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not info.st_mode & 0o222:  # not os.access, which a superuser always passes
            return FileState.READ_ONLY
        known = self.origins.written(key)
        not_ours = FileState.CHANGED if known else FileState.FOREIGN
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST:  # a pipe would keep us waiting for ever
            return not_ours
        try:
            data = file.read_bytes()
        except OSError:
            return not_ours
        digest = digest_of(data)
        if known[-1:] == [digest]:
            return FileState.OURS
        intact = is_intact(data)
        # An earlier result of ours was put back by somebody; a sealed one that was never noted lost its note to a kill.
        if intact and digest not in known:
            return FileState.OURS
        return not_ours if intact is None else FileState.CHANGED

    def _place(self, temporary: Path, target: Path, path: Path) -> None:
        """Give a finished file its name; `target` is the file that `path` leads to. Another run cannot come between,
        and a person's edit is noticed at any point: the name is only ever taken when it is free, and what had it is
        looked at after it was moved aside."""
        key = self._key(path)
        with self.origins.lock():
            self.origins.refresh()
            digest = digest_of(temporary.read_bytes())
            for _ in range(_TRIES):
                with suppress(FileExistsError):
                    take_free_name(temporary, target)
                    break
                if self._replace(temporary, target, path):
                    break
            else:
                raise LeftAsItIs(path, FileState.CHANGED)
            self.origins.note_written(key, digest)

    def _replace(self, temporary: Path, target: Path, path: Path) -> bool:
        """Put a file in another's place; False where nothing is there any more."""
        state = self._judge(target, self._key(path))
        if state is FileState.FREE:
            return False
        if not self.may_replace(state):
            raise LeftAsItIs(path, state)
        try:
            aside = _set_aside(target)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise NoBackupError(path, error) from error
        backup = path.with_name(aside.name) if aside.parent == path.parent.resolve() else aside
        try:
            state = self._judge(aside, self._key(path))  # what was really there
            if not self.may_replace(state):
                raise LeftAsItIs(path, state)
            try:
                take_free_name(temporary, target)
            except FileExistsError:  # saved a moment ago
                raise LeftAsItIs(path, FileState.CHANGED) from None
        except BaseException:
            if not _put_back(aside, target, state):
                self.backups.append((path, backup))
            raise
        if state is FileState.OURS:
            aside.unlink()
        else:
            self.backups.append((path, backup))
        return True


def _set_aside(target: Path) -> Path:
    """Rename a file to NAME.bak, or NAME.bak2 and so on. Under that name even a kill leaves it where it is found."""
    aside = _reserve(target)
    try:
        target.replace(aside)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def _put_back(aside: Path, target: Path, state: FileState) -> bool:
    """Undo that; False where the file stays aside, since somebody saved a new one under its name."""
    try:
        take_free_name(aside, target)
    except OSError:
        if state is not FileState.OURS or not target.exists():
            return False
        aside.unlink(missing_ok=True)
    return True


def _reserve(target: Path) -> Path:
    """An empty file of a name that no backup had."""
    for number in count(1):
        name = f"{target.name}.bak{number if number > 1 else ''}"
        try:
            return _create(target.with_name(name))
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            return _create(target.with_name(f"{target.name[:32]}.{secrets.token_hex(6)}.bak"))
    raise AssertionError


def _create(path: Path) -> Path:
    path.touch(exist_ok=False)
    return path
