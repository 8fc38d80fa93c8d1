"""Files that come in through the browser: safe names, content that is looked at, nothing replaced."""

from __future__ import annotations

import itertools
import re
import secrets
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from PIL import Image
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request

from spikehtr.data.formats import xml
from spikehtr.data.images import quietly
from spikehtr.errors import SpikeHTRError
from spikehtr.files import take_free_name
from spikehtr.pages.inputs import ROOTS
from spikehtr.serve.endpoints import too_large
from spikehtr.serve.forms import FormParser
from spikehtr.serve.http_errors import bad_request
from spikehtr.serve.limits import Limits
from spikehtr.serve.project import STATE, Project, digest_of_file

_FORMATS = {  # Pillow's names, and the suffixes that such files may keep
    "JPEG": (".jpg", ".jpeg"),
    "MPO": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "TIFF": (".tif", ".tiff"),
    "JPEG2000": (".jp2",),
    "BMP": (".bmp",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
}
IMAGE_FORMATS = tuple(name for name in _FORMATS if name != "MPO")  # which Pillow finds as JPEG
_BAD = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\/\ud800-\udfff]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_DEEPEST, _LONGEST = 8, 100
MOST_FILES = 5000


async def read_upload(request: Request, limits: Limits) -> tuple[list[UploadFile], str]:
    """The files of a multipart body, and the folder they are for; refused as soon as it is too large."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise bad_request("the body must be multipart/form-data with files in the field `files`")
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > limits.upload_bytes:
        raise too_large(limits.upload_bytes)
    parser = FormParser(request.headers, _limited(request, limits.upload_bytes), max_files=MOST_FILES, max_fields=10)
    try:
        form = await parser.parse()
    except ClientDisconnect:
        raise bad_request("the connection ended before the files did", "send them again") from None
    files = [part for part in form.getlist("files") if isinstance(part, UploadFile)]
    for _, part in form.multi_items():
        if isinstance(part, UploadFile) and part not in files:
            await part.close()
    folder = form.get("folder")
    return files, folder if isinstance(folder, str) else ""


async def _limited(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large(most)
        yield part


def safe_name(name: str) -> PurePosixPath:
    """A path below the project's folder, whatever was asked for."""
    parts = [_BAD.sub("_", part).strip(" .") for part in re.split(r"[\\/]+", name)]
    parts = [part for part in parts if part not in ("", ".", "..")][-_DEEPEST:]
    parts = [f"_{part}" if _RESERVED.match(part) or part.lower() == STATE else part for part in parts]
    parts = [_shortened(part) for part in parts]
    return PurePosixPath(*parts) if parts else PurePosixPath("page")


def _shortened(part: str) -> str:
    stem, dot, suffix = part.rpartition(".")
    if len(part.encode()) <= 2 * _LONGEST:
        return part
    while len(stem.encode()) > 2 * _LONGEST - 20:
        stem = stem[:-8]
    return f"{stem or 'page'}{dot}{suffix[:10]}"


def suffix_for(file: Path, name: PurePosixPath, limits: Limits) -> str:
    """The suffix that a file's content calls for; an error where it is nothing that can be a page."""
    with file.open("rb") as opened:
        start = opened.read(1024)
    if start.startswith(b"%PDF-"):
        return ".pdf"
    if start.startswith((b"PK\x03\x04", b"Rar!", b"7z\xbc\xaf", b"\x1f\x8b")):
        raise SpikeHTRError("an archive: unpack it, and take the files in it")
    if xml.sniff(file) in ROOTS:
        return ".alto.xml" if name.name.lower().endswith(".alto.xml") else ".xml"
    return image_suffix(file, name, limits)


def image_suffix(file: Path, name: PurePosixPath, limits: Limits) -> str:
    try:
        with quietly(), Image.open(file, formats=IMAGE_FORMATS) as image:
            kind, (width, height) = image.format or "", image.size
    except Image.DecompressionBombError:
        raise SpikeHTRError(f"claims more than {limits.pixels:,} pixels; scale it down") from None
    except Exception:  # Pillow's readers raise what they like
        raise SpikeHTRError("neither an image nor a PDF, PAGE or ALTO file") from None
    if width * height > limits.pixels:
        raise SpikeHTRError(f"has {width * height:,} pixels, more than {limits.pixels:,}; scale it down")
    allowed = _FORMATS[kind]
    suffix = name.suffix.lower()
    return suffix if suffix in allowed else allowed[0]


def keep(project: Project, source: BinaryIO, name: PurePosixPath, limits: Limits) -> Path | None:
    """Put a file into the project under a free name; None where it is there already."""
    temporary = project.private / f"incoming-{secrets.token_hex(8)}"
    try:
        with temporary.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        if temporary.stat().st_size > limits.file_bytes:
            raise SpikeHTRError(f"larger than {limits.file_bytes:,} bytes; make it smaller")
        if temporary.stat().st_size == 0:
            raise SpikeHTRError("the file is empty (0 bytes)")
        suffix = suffix_for(temporary, name, limits)
        stem = name.name.removesuffix(name.suffix).removesuffix(".alto") if name.suffix else name.name
        project.path(name.parent.as_posix()).mkdir(parents=True, exist_ok=True)
        return _placed(project, temporary, name.parent, stem, suffix)
    finally:
        temporary.unlink(missing_ok=True)


def _placed(project: Project, temporary: Path, folder: PurePosixPath, stem: str, suffix: str) -> Path | None:
    digest = digest_of_file(temporary)
    for number in itertools.count(1):
        target = project.path((folder / f"{stem}{f'~{number}' if number > 1 else ''}{suffix}").as_posix())
        try:
            take_free_name(temporary, target)
        except FileExistsError:
            if digest_of_file(target) == digest:
                return None
            continue
        return target
    raise AssertionError
