"""Files that are either whole or not there: writing them, and reading what was noted; text, also packed."""

from __future__ import annotations

import errno
import gzip
import json
import os
import secrets
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spikehtr.errors import SpikeHTRError, reason_of

# What os.link says where the disk has no hard links, or none for files of other owners.
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def whole_file(path: str | os.PathLike[str], place: Callable[[Path, Path], object] = os.replace) -> Iterator[Path]:
    """Yields a temporary name beside `path`; what is written there takes the name when the block ends well.

    A link is followed, not replaced. On an error nothing is left behind. `place` gives the temporary file its name.
    """
    target = Path(path).resolve()
    # Of the name only a beginning, to know it by: names are limited in bytes, of which a character may need four.
    temporary = target.with_name(f".{target.name[:32]}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.touch()
        usual = temporary.stat().st_mode
        temporary.unlink()
        yield temporary
        if temporary.stat().st_mode != usual:  # a library may keep to its user what it writes
            with suppress(OSError):
                temporary.chmod(usual)
        place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def take_free_name(file: Path, target: Path) -> None:
    """Rename a file to a name that nothing has; FileExistsError where something has it."""
    try:
        os.link(file, target)  # unlike a rename it never replaces anything
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        file.rename(target)
    else:
        file.unlink()


def make_folder(folder: Path) -> None:
    """`folder`, there and writable, or one clear message; found out before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".spikehtr."):
            pass
    except OSError as error:
        raise SpikeHTRError(f"{folder}: cannot be written ({error.strerror or error}); name another folder") from None


def read_text(path: Path) -> str:
    """A file of text in UTF-8, also packed by gzip (.gz)."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SpikeHTRError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            remedy = "get it again, or name the text unpacked"
            raise SpikeHTRError(f"{path}: no gzip file, or damaged ({reason_of(error)}); {remedy}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpikeHTRError(f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8") from None


def write_json(path: Path, values: Any) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any] | None:
    """What a JSON file holds; None where there is none."""
    if not path.is_file():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SpikeHTRError(f"{path} is damaged ({error}): restore it, or take it away") from None
    return values
