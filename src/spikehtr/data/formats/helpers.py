"""What several readers do alike with files, folders and names."""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path, PurePath

from spikehtr.data.samples import ImportReport, Split, has_text, split_named

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jp2", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".pgm", ".ppm", ".pbm", ".pnm"}
)
MAX_TRANSCRIPT = 1 << 20  # bytes; no line of handwriting is longer, a stray archive named .txt is
MAX_ROW = 1 << 16  # bytes; a longer row of a list is no file name, and must not be held whole

# Folders that say what kind of file they hold, not which document it belongs to.
_KIND_FOLDERS = frozenset(
    {"page", "pages", "pagexml", "alto", "xml", "images", "image", "img", "imgs", "jpg", "lines", "data", "publicdata"}
)


def walk(root: Path, suffixes: frozenset[str] | None = None, report: ImportReport | None = None) -> Iterator[Path]:
    """The files below `root` that end in one of the suffixes (without any: all), folder by folder, in name order.

    Hidden files and folders are left aside. Links to folders are followed, each folder once. A root that is itself a
    file is all there is.
    """

    def unreadable(error: OSError) -> None:
        if report is not None:
            remedy = "make the folder readable, or take it out of the data"
            report.add("unreadable folder", error.filename, f"cannot be listed ({error.strerror})", remedy)

    if root.is_file():
        yield root
        return
    visited: set[str] = set()
    for folder, folders, names in os.walk(root, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        for name in sorted(names):
            if name.startswith("."):
                continue
            if suffixes is None or os.path.splitext(name)[1].lower() in suffixes:  # noqa: PTH122 (speed)
                yield Path(folder, name)


def page_name(file: PurePath) -> str:
    """The page that a PAGE or ALTO file is of: a.xml and a.alto.xml are both of a."""
    return re.sub(r"\.alto$", "", file.stem, flags=re.IGNORECASE) or file.stem


@lru_cache(maxsize=64)
def _folder_names(folder: Path, root: Path) -> tuple[str, ...]:
    """The names of `folder` and those above it, up to `root`'s own, nearest first."""
    top = (root.parent if root.is_file() else root).absolute().name  # a link's own name, not its target's
    inner = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    return (*reversed(inner), top)


def split_of(file: Path, root: Path) -> Split | None:
    """The split that the nearest folder stands for, up to and including the root that was asked for."""
    return next((split for name in _folder_names(file.parent, root) if (split := split_named(name))), None)


def document_of(file: Path, root: Path, page: str | None = None) -> str | None:
    """The nearest folder's name, passing over `page`, `images` and the like; a split is no document. Where `page` is
    known, it is one by itself unless it lies in a folder below the root."""
    names = _folder_names(file.parent, root)
    for name in names if page is None else names[:-1]:
        if split_named(name):
            return page
        if name and name.lower() not in _KIND_FOLDERS:
            return name
    return page


class UniqueNames:
    """Tells names apart by a suffix. Keeps eight bytes of each, so that a million names stay cheap."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._repeats: dict[str, int] = {}

    def take(self, name: str, where: object, report: ImportReport) -> str:
        """The name itself the first time, then `name~2`, `name~3`, with a warning."""
        if self._new(name):
            return name
        number = self._repeats.get(name, 1) + 1
        while not self._new(f"{name}~{number}"):
            number += 1
        self._repeats[name] = number
        unique = f"{name}~{number}"
        message = f"{name!r} was there before; this one is called {unique!r}"
        report.add("name used twice", where, message, "give it a name of its own, or take out the copy", "warning")
        return unique

    def _new(self, name: str) -> bool:
        key = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def image_missing(where: object, message: str, report: ImportReport, remedy: str = "") -> None:
    report.add("image missing", where, message, remedy or "put the image there, or take the entry out of the list")


def read_transcript(path: Path, report: ImportReport) -> str | None:
    """The one line of a UTF-8 text file, as it stands there; None, and a word in the report, if it has not just one."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TRANSCRIPT + 1)
    except FileNotFoundError:
        report.add("text missing", path, "no such file", "write the line's transcript into this file")
        return None
    except OSError as error:
        report.add("unreadable text", path, f"cannot be read ({error.strerror})", "make the file readable")
        return None
    if len(data) > MAX_TRANSCRIPT:
        message = f"over {MAX_TRANSCRIPT:,} bytes: hardly the transcript of one line"
        report.add("unreadable text", path, message, "give each line image a text file of its own")
        return None
    text = decode(data, path, report)
    if text is None:
        return None
    # Only real line ends count: a form feed or U+2028 inside a transcript is for the data check to point out.
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if len(lines) > 1:
        message = f"{len(lines)} lines of text for one line image"
        report.add("several lines", path, message, "keep one line, or cut the image into lines and give each its file")
        return None
    line = lines[0] if lines else ""
    return line if has_text(line, path, report) else None


def decode(data: bytes, where: object, report: ImportReport) -> str | None:
    """Bytes as UTF-8 text, a byte order mark taken off; what is not UTF-8 is reported with the place of the fault."""
    text = data.removeprefix(BOM_UTF8)
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        position = error.start + len(data) - len(text)
        message = f"not UTF-8: byte 0x{data[position]:02x} at position {position} ({error.reason})"
        found = "utf-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "latin1"
        report.add("wrong encoding", where, message, f"save it as UTF-8, for instance with: iconv -f {found} -t utf-8")
        return None


def rows(path: Path, report: ImportReport) -> Iterator[tuple[int, str]]:
    """The rows of a UTF-8 list with their numbers, blank ones and # comments passed over, one in memory at a time."""
    try:
        with path.open("rb") as file:
            for number, row in enumerate(iter(lambda: file.readline(MAX_ROW), b""), start=1):
                row = row.strip()
                text = row.decode() if row.isascii() else decode(row, f"{path}, row {number}", report)
                if text and text[0] != "#":
                    yield number, text
    except OSError as error:
        report.add("unreadable file", path, f"cannot be read ({error.strerror})", "make the file readable")
