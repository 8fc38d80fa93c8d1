"""A IIIF annotation page, which is a W3C annotation page: an annotation for each line, in reading order.

On a canvas places are in the canvas's units, on any other image in pixels.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from spikehtr.data.formats.outlines import bounds
from spikehtr.results.clipping import inside
from spikehtr.results.xml_text import now
from spikehtr.version import __version__

if TYPE_CHECKING:
    from spikehtr.results.page import Page, TextLine

CONTEXTS = (
    "http://iiif.io/api/extension/text-granularity/context.json",
    "http://iiif.io/api/presentation/3/context.json",
)
_SPACE = uuid.UUID("8f1f6c1c-5d0b-5f0e-9f6b-0b8a5f7f3b11")


def annotation_page(page: Page, min_confidence: float = 0.0) -> str:
    page = inside(page)
    about = page.canvas.id if page.canvas else f"{page.image}#{page.frame or 1}"
    software = f"spikehtr {page.version or __version__}" + (f", {page.model}" if page.model else "")
    shared = {"generator": {"type": "Software", "name": software}, "generated": f"{now()}Z"}
    items = [
        _annotation(page, line, f"{about}#{number}", shared, min_confidence)
        for number, line in enumerate(page.lines, start=1)
        if line.text
    ]
    found = {"@context": list(CONTEXTS), "id": _name(about), "type": "AnnotationPage", "items": items}
    return json.dumps(found, ensure_ascii=False, indent=1, allow_nan=False)


def _name(about: str) -> str:
    """The same for the same page, and nobody else's: what is not published has no address."""
    return uuid.uuid5(_SPACE, about).urn


def _annotation(page: Page, line: TextLine, about: str, shared: dict[str, Any], least: float) -> dict[str, Any]:
    points = [_on_canvas(page, x, y) for x, y in line.polygon]
    left, top, right, bottom = bounds(points)
    box = [round(left), round(top), max(1, round(right) - round(left)), max(1, round(bottom) - round(top))]
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    shape = f'<svg xmlns="http://www.w3.org/2000/svg"><polygon points="{path}"/></svg>'
    return {
        "id": _name(about),
        "type": "Annotation",
        "motivation": "supplementing",
        "textGranularity": "line",
        **shared,
        "body": {"type": "TextualBody", "value": line.marked_text(least), "format": "text/plain"},
        "target": {
            "type": "SpecificResource",
            "source": _source(page),
            "selector": [
                {
                    "type": "FragmentSelector",
                    "conformsTo": "http://www.w3.org/TR/media-frags/",
                    "value": f"xywh={','.join(map(str, box))}",
                },
                {"type": "SvgSelector", "value": shape},
            ],
        },
    }


def _source(page: Page) -> dict[str, Any]:
    if page.canvas is None:
        name = page.image if page.image.startswith(("http://", "https://")) else quote(page.image)
        return {"id": f"{name}#page={page.frame}" if page.frame else name, "type": "Image"}
    return {
        "id": page.canvas.id,
        "type": "Canvas",
        "partOf": [{"id": page.canvas.manifest, "type": "Manifest"}],
    }


def _on_canvas(page: Page, x: float, y: float) -> tuple[float, float]:
    """Pixels of the image -> units of its canvas."""
    if page.canvas is None:
        return x, y
    left, top, right, bottom = page.canvas.box
    return (
        round(left + x * (right - left) / page.width, 1),
        round(top + y * (bottom - top) / page.height, 1),
    )
