"""Inputs that are addresses: IIIF manifests and collections, whose images are fetched page by page when their turn
comes, and single files, which are fetched at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from spikehtr.data.images import ImageError
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import Canvas, Client, ClientOptions, Collection, Manifest
from spikehtr.pages.iiif.manifests import is_address, is_resource
from spikehtr.results.page import CanvasPlace

_NO_NAMES = re.compile(r"(manifest|collection|iiif|presentation|object|json|info|v?[234](\.\d)?|[234]\.\d)?", re.I)
_LONGEST = 80  # characters of a name


class RemoteFile(NamedTuple):
    """A manifest, or a file that was fetched: what a source is made of."""

    address: str
    place: PurePath  # what results are named after
    path: Path | None  # None: a manifest, fetched when its turn comes


@lru_cache(maxsize=8)
def client_of(options: ClientOptions) -> Client:
    """One client for all who ask with the same options: it keeps connections open."""
    return Client(options)


@lru_cache(maxsize=16)
def manifest_of(address: str, options: ClientOptions) -> Manifest:
    found = client_of(options).load(address)
    if isinstance(found, Collection):
        raise ImageError("a IIIF collection, where a manifest was announced; name it by itself")
    return found


def is_manifest_file(path: Path) -> bool:
    """Whether a file is a IIIF manifest or collection."""
    try:
        return path.suffix.lower() == ".json" and is_resource(Client().load_json(path))
    except SpikeHTRError:
        return False


def remote_files(address: str, options: ClientOptions, failures: list[str]) -> Iterator[RemoteFile]:
    """What an address, or the file of a manifest, stands for: manifests, or one file."""
    client = client_of(options)
    if is_address(address):
        file = client.fetch(address, options.document_age)
        if not _is_json(file):
            yield RemoteFile(address, PurePath(name_of(address) + _suffix(file)), file)
            return
    found = client.load(address)
    if isinstance(found, Manifest):
        yield RemoteFile(address, PurePath(name_of(address)), None)
        return
    folder = PurePath(name_of(address))
    for reference in client.references(address, failures):
        yield RemoteFile(reference.id, folder / name_of(reference.id), None)


def canvas_of(address: str, index: int, options: ClientOptions) -> Canvas:
    return manifest_of(address, options).canvases[index]


def canvas_file(address: str, index: int, options: ClientOptions) -> Path:
    """The file of a canvas's image."""
    return client_of(options).image(canvas_of(address, index, options))


def place_of(address: str, index: int, options: ClientOptions, size: tuple[int, int]) -> CanvasPlace:
    """Where an image lies on its canvas."""
    canvas = canvas_of(address, index, options)
    left, top, width, height = canvas.area or (0.0, 0.0, float(canvas.width), float(canvas.height))
    if not (width > 0 and height > 0):  # the manifest does not say: then the image's pixels are its measure
        width, height = map(float, size)
    return CanvasPlace(canvas.id, manifest_of(address, options).id, (left, top, left + width, top + height))


def name_of(address: str) -> str:
    """A short name for results: the last part of the address that says which one it is."""
    if not is_address(address):
        return _clean(Path(address).stem) or "manifest"
    parts = urlsplit(address)
    segments = [unquote(part) for part in parts.path.split("/") if part]
    segments = [re.sub(r"\.(json|jsonld|jpe?g|png|tiff?|jp2|pdf|webp)$", "", part, flags=re.I) for part in segments]
    telling = [part for part in segments if not _NO_NAMES.fullmatch(part)]
    name = telling[-1] if telling else ""
    if parts.query:
        name = f"{name}_{unquote(parts.query)}" if name else unquote(parts.query)
    return _clean(name) or _clean(parts.netloc) or "manifest"


def _clean(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("._")[:_LONGEST]


def _is_json(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _suffix(file: Path) -> str:
    """`.pdf` for a PDF, else that of an image."""
    with file.open("rb") as opened:
        return ".pdf" if opened.read(5) == b"%PDF-" else ".img"
