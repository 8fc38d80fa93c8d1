"""The JSON that is written against the schema in the docs, by the few words of JSON Schema which that one uses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from pages_help import random_recognizer, simple_page
from spikehtr.pages.digests import sealed
from spikehtr.results.page import Page, Region, TextLine

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "reference" / "spikehtr-page-1.schema.json").read_text(encoding="utf-8")
)
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
KNOWN = {"$ref", "$defs", "$schema", "$id", "title", "description", "type", "const", "required", "properties", "items"}
KNOWN |= {"additionalProperties", "minimum", "maximum", "minItems", "maxItems"}


def faults(value: Any, schema: dict[str, Any], place: str = "page") -> list[str]:
    """What a value has against a schema. A word that is not known here is an error, lest it be passed over."""
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    if "$ref" in schema:
        return faults(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], place)
    if "const" in schema:
        return [] if value == schema["const"] else [f"{place} is {value!r}"]
    kind = schema["type"]
    if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{place} is no {kind}"]
    found = []
    if kind == "object":
        found += [f"{place} has no {key}" for key in schema["required"] if key not in value]
        assert schema["additionalProperties"] is False
        found += [f"{place} has {key}" for key in value if key not in schema["properties"]]
        for key in value.keys() & schema["properties"].keys():
            found += faults(value[key], schema["properties"][key], f"{place}.{key}")
    elif kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{place} has {len(value)} entries")
        for index, entry in enumerate(value):
            found += faults(entry, schema["items"], f"{place}[{index}]")
    elif kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{place} is {value}")
    return found


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(random_recognizer().transcribe_page(simple_page(2)[0]).to_json(0.5))
    return found


def test_a_page_that_was_read(page: dict[str, Any]) -> None:
    assert page["regions"][0]["lines"][0]["words"][0]["characters"]
    assert faults(page, SCHEMA) == []


def test_a_page_with_bare_lines_and_one_without_any() -> None:
    bare = Page("p.png", 9, 9, (Region("r", (TextLine("l", ((0.0, 0.0), (5.0, 0.0), (5.0, 5.0))),)),))
    for page in (bare, Page("p.png", 9, 9, ()), Page("p.tif", 9, 9, (), frame=2)):
        assert faults(json.loads(page.to_json()), SCHEMA) == []
        assert faults(json.loads(sealed(page.to_json(), "json")), SCHEMA) == [], "as it is in a file"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("format",), "spikehtr-page-2", "page.format is 'spikehtr-page-2'"),
        (("width",), 0, "page.width is 0"),
        (("regions", 0, "lines", 0, "confidence"), 1.5, "page.regions[0].lines[0].confidence is 1.5"),
        (
            ("regions", 0, "lines", 0, "words", 0, "box"),
            [1, 2, 3],
            "page.regions[0].lines[0].words[0].box has 3 entries",
        ),
        (
            ("regions", 0, "lines", 0, "words", 0, "doubtful"),
            1,
            "page.regions[0].lines[0].words[0].doubtful is no boolean",
        ),
        (("regions", 0, "extra"), 1, "page.regions[0] has extra"),
    ],
)
def test_the_check_finds_what_is_wrong(path: tuple[Any, ...], value: object, says: str, page: dict[str, Any]) -> None:
    wrong = copy.deepcopy(page)
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert faults(wrong, SCHEMA) == [says]
