"""IIIF manifests and collections, Presentation API 2 and 3, as plain data. Parsed leniently: what is odd in one canvas
is noted and costs that canvas only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spikehtr.errors import SpikeHTRError

Area = tuple[float, float, float, float]  # left, top, width, height on a canvas
_MANIFEST = ("Manifest", "sc:Manifest")
_COLLECTION = ("Collection", "sc:Collection")
_FULL = re.compile(r"/(full|max|pct:100)/0/(default|native|color|gray|bitonal)\.\w+$")
_REGION = re.compile(r"#xywh=(?:pixel:)?([\d.]+),([\d.]+),([\d.]+),([\d.]+)$")


@dataclass(frozen=True, slots=True)
class Canvas:
    """A page of a manifest and the image that is painted on it."""

    id: str
    label: str
    width: int  # of the canvas, which is a space of coordinates: the image may have another size; 0 where not given
    height: int
    images: tuple[str, ...]  # addresses of its image: the largest first, the next ones where a server refuses that
    service: str | None = None  # of the IIIF Image API, without a slash at its end
    area: Area | None = None  # of the canvas that the image covers; None: all of it

    def scaled(self, width: int, height: int) -> str:
        """The address of the image, no larger than this: for thumbnails. The full image where there is no service."""
        return self.images[0] if self.service is None else f"{self.service}/full/!{width},{height}/0/default.jpg"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A book or a folder: its pages in order."""

    id: str
    label: str
    version: int  # of the Presentation API: 2 or 3
    canvases: tuple[Canvas, ...]
    rights: str = ""  # the address of a licence
    attribution: str = ""  # what must be shown
    problems: tuple[str, ...] = ()  # canvases that cannot be used, and why


@dataclass(frozen=True, slots=True)
class Reference:
    """A member of a collection."""

    id: str
    label: str
    is_collection: bool


@dataclass(frozen=True, slots=True)
class Collection:
    id: str
    label: str
    version: int
    members: tuple[Reference, ...]
    next_page: str | None = None  # of a collection in several documents (version 2): the address of the next
    problems: tuple[str, ...] = ()


def parse_resource(data: Any, address: str) -> Manifest | Collection:
    """What a IIIF document holds. `address` is where it came from: for messages, and as its id where it has none."""
    if not isinstance(data, Mapping):
        raise SpikeHTRError(f"{address}: not a IIIF document: JSON, but no object; name a manifest or a collection")
    kind = _kind(data)
    if kind in _MANIFEST:
        return _manifest(data, address)
    if kind in _COLLECTION or kind == "sc:Layer":
        return _collection(data, address)
    found = f"its type is {kind!r}" if kind else "it has no type"
    raise SpikeHTRError(f"{address}: neither a IIIF manifest nor a collection ({found}); name one of these")


def is_resource(data: Any) -> bool:
    """Whether JSON looks like a manifest or a collection."""
    return isinstance(data, Mapping) and _kind(data) in (*_MANIFEST, *_COLLECTION)


def _manifest(data: Mapping[str, Any], address: str) -> Manifest:
    version = _version(data)
    problems: list[str] = []
    canvases: list[Canvas] = []
    for number, entry in enumerate(_canvases(data, version), start=1):
        found = _canvas(entry, version)
        if isinstance(found, Canvas):
            canvases.append(found)
        else:
            problems.append(f"canvas {number} of {address}: {found}")
    if not canvases and not problems:
        problems.append(f"{address}: the manifest holds no canvas")
    statement = data.get("requiredStatement")
    attribution = statement.get("value") if isinstance(statement, Mapping) else data.get("attribution")
    return Manifest(
        _id(data) or address,
        text_of(data.get("label")),
        version,
        tuple(canvases),
        text_of(data.get("rights") or data.get("license")),
        text_of(attribution),
        tuple(problems),
    )


def _canvases(data: Mapping[str, Any], version: int) -> Iterator[Any]:
    if version >= 3:
        yield from _list(data.get("items"))
        return
    for sequence in _list(data.get("sequences"))[:1]:  # further ones are other orders of the same pages
        if isinstance(sequence, Mapping):
            yield from _list(sequence.get("canvases"))


def _canvas(entry: Any, version: int) -> Canvas | str:
    """A canvas, or why it cannot be used."""
    if not isinstance(entry, Mapping):
        return "not an object"
    name = _id(entry)
    if not name:
        return "it has no id"
    painted = [one for one in _paintings(entry, version) if isinstance(one, Mapping)]
    for annotation in painted:
        body = _image_of(annotation.get("body") if version >= 3 else annotation.get("resource"))
        if body is None:
            continue
        service, second = _service(body)
        addresses = _addresses(_id(body), service, second)
        if not addresses:
            continue
        area = _area(annotation.get("target") if version >= 3 else annotation.get("on"))
        width, height = _whole(entry.get("width")), _whole(entry.get("height"))
        if area is not None and area[2] >= width and area[3] >= height:
            area = None
        return Canvas(name, text_of(entry.get("label")), width, height, addresses, service, area)
    return f"{name} has no image" if not painted else f"{name}: none of its images has an address"


def _paintings(entry: Mapping[str, Any], version: int) -> Iterator[Any]:
    if version < 3:
        yield from _list(entry.get("images"))
        return
    for page in _list(entry.get("items")):
        if isinstance(page, Mapping):
            yield from _list(page.get("items"))


def _image_of(body: Any, depth: int = 0) -> Mapping[str, Any] | None:
    """The image of an annotation's body: the first of a choice, the source of a part."""
    if depth > 4:
        return None
    for one in _list(body):
        if isinstance(one, str):
            return {"id": one}
        if not isinstance(one, Mapping):
            continue
        kind = _kind(one)
        inner: Any = None
        if kind in ("oa:Choice", "Choice"):
            inner = [*_list(one.get("default")), *_list(one.get("item")), *_list(one.get("items"))]
        elif kind in ("oa:SpecificResource", "SpecificResource"):
            inner = [*_list(one.get("full")), *_list(one.get("source"))]
        elif kind in ("dctypes:Image", "Image", "") or (_id(one) and _service(one)[0]):
            return one
        if inner and (found := _image_of(inner, depth + 1)) is not None:
            return found
    return None


def _service(body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """The image service of a body, without a slash at its end; and whether it is of version 2 or 1 of that API."""
    for service in _list(body.get("service")):
        if not isinstance(service, Mapping):
            continue
        about = f"{_kind(service)} {service.get('@context', '')} {service.get('profile', '')}".lower()
        if "auth" not in about and ("image" in about or "iiif" in about) and is_address(name := _id(service)):
            return name.rstrip("/"), re.search(r"image(service|/)[12]|image-api/1", about) is not None
    return None, False


def _addresses(name: str, service: str | None, second: bool) -> tuple[str, ...]:
    """Where the image is to be had: as large as there is, then as the manifest names it."""
    found = []
    if is_address(name) and (service is None or _FULL.search(name)):
        found.append(name)
    if service is not None:
        sizes = ("full", "max") if second else ("max", "full")  # a server may refuse the word of the other version
        found += [f"{service}/full/{size}/0/default.jpg" for size in sizes]
    if is_address(name):
        found.append(name)
    return tuple(dict.fromkeys(found))


def _area(target: Any) -> Area | None:
    """The part of its canvas that an image covers, where it is not all of it."""
    for one in _list(target):
        if isinstance(one, Mapping):
            selectors = [entry for entry in _list(one.get("selector")) if isinstance(entry, Mapping)]
            values = [f"#{entry['value']}" for entry in selectors if isinstance(entry.get("value"), str)]
            texts = [*values, _id(one)]
        else:
            texts = [one] if isinstance(one, str) else []
        for text in texts:
            if match := _REGION.search(text):
                left, top, width, height = map(_number, match.groups())
                return (left, top, width, height) if width > 0 and height > 0 else None
    return None


def _collection(data: Mapping[str, Any], address: str) -> Collection:
    members: dict[str, Reference] = {}
    problems = []
    entries = [entry for key in ("items", "members", "collections", "manifests") for entry in _list(data.get(key))]
    for entry in entries:
        name = _id(entry) if isinstance(entry, Mapping) else entry if isinstance(entry, str) else ""
        kind = _kind(entry) if isinstance(entry, Mapping) else "Manifest"
        if not is_address(name):
            problems.append(f"{address}: a member has no address ({name or 'no id'})")
        elif kind in (*_MANIFEST, *_COLLECTION):
            label = text_of(entry.get("label")) if isinstance(entry, Mapping) else ""
            members.setdefault(name, Reference(name, label, kind in _COLLECTION))
    following = data.get("next") or data.get("first")
    after = _id(following) if isinstance(following, Mapping) else following
    return Collection(
        _id(data) or address,
        text_of(data.get("label")),
        _version(data),
        tuple(members.values()),
        after if isinstance(after, str) and is_address(after) else None,
        tuple(problems),
    )


def text_of(value: Any) -> str:
    """A label in any of its forms: text, a list, text with a language, a map of languages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(text_of, value)))
    if isinstance(value, Mapping):
        if "@value" in value:
            return text_of(value["@value"])
        if "@id" in value or "id" in value:
            return _id(value)
        chosen = next((value[key] for key in ("none", "en", "@none") if key in value), None)
        return text_of(next(iter(value.values()), "") if chosen is None else chosen)
    return str(value) if isinstance(value, int | float) else ""


def is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _version(data: Mapping[str, Any]) -> int:
    contexts = " ".join(one for one in _list(data.get("@context")) if isinstance(one, str))
    if match := re.search(r"presentation/(\d)", contexts):
        return max(2, int(match[1]))
    return 2 if "@type" in data else 3


def _kind(data: Mapping[str, Any]) -> str:
    value = data.get("type", data.get("@type"))
    return next((one for one in _list(value) if isinstance(one, str)), "")


def _id(data: Mapping[str, Any]) -> str:
    value = data.get("id", data.get("@id"))
    return value.strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if 0 < number < 1e9 else 0


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
