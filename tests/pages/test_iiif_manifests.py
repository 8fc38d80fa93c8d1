"""Manifests and collections of both versions, as libraries write them, and whatever else may come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import Collection, Manifest, parse_resource
from spikehtr.pages.remote import name_of

AT = "https://library.example/m/manifest.json"


def manifest_2(resource: object, **canvas: object) -> dict[str, Any]:
    image = {"@type": "oa:Annotation", "motivation": "sc:painting", "resource": resource}
    page = {"@id": "https://l.example/c1", "label": "f. 1r", "width": 1000, "height": 2000, "images": [image]} | canvas
    return {
        "@context": "http://iiif.io/api/presentation/2/context.json",
        "@id": "https://l.example/m",
        "@type": "sc:Manifest",
        "label": [{"@value": "Letters", "@language": "en"}],
        "attribution": "A library",
        "license": "https://creativecommons.org/publicdomain/mark/1.0/",
        "sequences": [{"canvases": [page]}, {"canvases": [page, page]}],
    }


def manifest_3(body: object, target: object = "https://l.example/c1", **canvas: object) -> dict[str, Any]:
    annotation = {"type": "Annotation", "motivation": "painting", "body": body, "target": target}
    page = {"id": "https://l.example/c1", "type": "Canvas", "label": {"de": ["Seite 1"]}, "width": 1000, "height": 2000}
    page |= {"items": [{"type": "AnnotationPage", "items": [annotation]}]} | canvas
    return {
        "@context": ["http://www.w3.org/ns/anno.jsonld", "http://iiif.io/api/presentation/3/context.json"],
        "id": "https://l.example/m",
        "type": "Manifest",
        "label": {"none": ["Letters"]},
        "requiredStatement": {"label": {"en": ["Attribution"]}, "value": {"en": ["A library"]}},
        "rights": "https://creativecommons.org/publicdomain/mark/1.0/",
        "items": [page],
    }


def read(data: object) -> Manifest:
    found = parse_resource(data, AT)
    assert isinstance(found, Manifest)
    return found


SERVICE_2 = {"@context": "http://iiif.io/api/image/2/context.json", "@id": "https://l.example/i1/", "profile": "level1"}
SERVICE_3 = {"id": "https://l.example/i1", "type": "ImageService3", "profile": "level2"}
IMAGE = {"id": "https://l.example/i1/full/600,/0/default.jpg", "type": "Image"}


def test_both_versions_say_the_same() -> None:
    two = read(manifest_2({"@id": IMAGE["id"], "@type": "dctypes:Image", "service": SERVICE_2}))
    three = read(manifest_3(IMAGE | {"service": [SERVICE_3]}))
    assert (two.version, three.version) == (2, 3)
    for found in (two, three):
        assert (found.id, found.label, found.attribution) == ("https://l.example/m", "Letters", "A library")
        assert found.rights.endswith("mark/1.0/")
        (canvas,) = found.canvases
        assert (canvas.id, canvas.width, canvas.height) == ("https://l.example/c1", 1000, 2000)
        assert canvas.service == "https://l.example/i1"
        assert canvas.area is None
        assert canvas.scaled(300, 300) == "https://l.example/i1/full/!300,300/0/default.jpg"
    assert [canvas.label for found in (two, three) for canvas in found.canvases] == ["f. 1r", "Seite 1"]


def test_the_largest_image_is_asked_for_first_in_the_words_of_the_servers_version() -> None:
    full, most = (f"https://l.example/i1/full/{size}/0/default.jpg" for size in ("full", "max"))
    two = read(manifest_2({"@id": IMAGE["id"], "service": SERVICE_2})).canvases[0]
    three = read(manifest_3(IMAGE | {"service": SERVICE_3})).canvases[0]
    assert two.images == (full, most, IMAGE["id"])
    assert three.images == (most, full, IMAGE["id"])
    plain = read(manifest_3({"id": "https://l.example/1.jpg", "type": "Image"})).canvases[0]
    assert plain.images == ("https://l.example/1.jpg",)
    assert plain.scaled(10, 10) == "https://l.example/1.jpg"


def test_of_a_choice_the_first_is_taken_and_of_a_part_the_whole() -> None:
    other = {"id": "https://l.example/infrared.jpg", "type": "Image"}
    choice = {"type": "Choice", "items": [{"id": "https://l.example/1.jpg", "type": "Image"}, other]}
    part = {"type": "SpecificResource", "source": choice, "selector": {"type": "ImageApiSelector"}}
    old = {"@type": "oa:Choice", "default": {"@id": "https://l.example/1.jpg"}, "item": [other]}
    for found in (read(manifest_3(choice)), read(manifest_3([part])), read(manifest_2(old))):
        assert found.canvases[0].images == ("https://l.example/1.jpg",)


def test_an_image_on_a_part_of_its_canvas_says_which() -> None:
    target = "https://l.example/c1#xywh=100,50,800,1000"
    assert read(manifest_3(IMAGE, target)).canvases[0].area == (100, 50, 800, 1000)
    selector = {"type": "FragmentSelector", "value": "xywh=1,2,3,4.5"}
    resource = {"type": "SpecificResource", "source": "https://l.example/c1", "selector": selector}
    assert read(manifest_3(IMAGE, resource)).canvases[0].area == (1, 2, 3, 4.5)
    assert read(manifest_3(IMAGE, "https://l.example/c1#xywh=0,0,1000,2000")).canvases[0].area is None


def test_what_is_wrong_with_a_canvas_costs_that_canvas_only() -> None:
    data = manifest_3(IMAGE)
    bad = {"id": "https://l.example/c2", "type": "Canvas", "width": 1, "height": 1}
    data["items"] = [bad, *data["items"], "what", {"type": "Canvas"}]
    found = read(data)
    assert [canvas.id for canvas in found.canvases] == ["https://l.example/c1"]
    assert len(found.problems) == 3
    assert "https://l.example/c2 has no image" in found.problems[0]
    assert "holds no canvas" in read(data | {"items": []}).problems[0]


def test_collections_of_both_versions() -> None:
    three = {
        "@context": "http://iiif.io/api/presentation/3/context.json",
        "id": "https://l.example/all",
        "type": "Collection",
        "label": {"en": ["All"]},
        "items": [
            {"id": "https://l.example/m1", "type": "Manifest", "label": {"en": ["One"]}},
            {"id": "https://l.example/sub", "type": "Collection", "label": {"en": ["More"]}},
            {"type": "Manifest"},
        ],
    }
    two = {
        "@id": "https://l.example/all",
        "@type": "sc:Collection",
        "label": "All",
        "collections": [{"@id": "https://l.example/sub", "@type": "sc:Collection", "label": "More"}],
        "manifests": [{"@id": "https://l.example/m1", "@type": "sc:Manifest", "label": "One"}],
        "first": "https://l.example/all?page=1",
    }
    for data, members in ((three, ["m1", "sub"]), (two, ["sub", "m1"])):
        found = parse_resource(data, AT)
        assert isinstance(found, Collection)
        assert found.label == "All"
        assert [member.id.rpartition("/")[2] for member in found.members] == members
        assert {member.label: member.is_collection for member in found.members} == {"One": False, "More": True}
    assert parse_resource(two, AT).next_page == "https://l.example/all?page=1"  # type: ignore[union-attr]
    assert len(parse_resource(three, AT).problems) == 1


@pytest.mark.parametrize("data", [[], 7, None, "text", {}, {"type": "Canvas"}, {"format": "spikehtr-page-1"}])
def test_what_is_no_manifest_is_told_with_its_address(data: object) -> None:
    with pytest.raises(SpikeHTRError, match=AT):
        parse_resource(data, AT)


KEYS = [
    "id",
    "@id",
    "type",
    "@type",
    "@context",
    "items",
    "sequences",
    "canvases",
    "images",
    "resource",
    "body",
    "target",
]
KEYS += ["service", "label", "width", "default", "item", "source", "selector", "value", "members", "manifests", "next"]
WORDS = ["Manifest", "sc:Manifest", "Collection", "Canvas", "Image", "Choice", "https://l.example/1", "#xywh=0,0,1,1"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from(["Manifest", "sc:Manifest", "Collection", "sc:Collection"]))
def test_whatever_a_document_holds_it_is_parsed_or_refused(inside: Any, kind: str) -> None:
    data = inside | {"type": kind} if isinstance(inside, dict) else {"type": kind, "items": inside, "sequences": inside}
    found = parse_resource(data, AT)
    if isinstance(found, Manifest):
        for canvas in found.canvases:
            assert canvas.id
            assert canvas.width >= 0
            assert all(address.startswith("https://") for address in canvas.images)
            assert canvas.images


@given(VALUES)
def test_any_json_is_a_resource_or_a_users_mistake(data: Any) -> None:
    kind = data.get("type", data.get("@type")) if isinstance(data, dict) else None
    words = ("Manifest", "sc:Manifest", "Collection", "sc:Collection")
    if isinstance(kind, str) and kind in words:
        assert parse_resource(data, AT).id
    elif not isinstance(kind, list):
        with pytest.raises(SpikeHTRError, match=AT):
            parse_resource(data, AT)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://gallica.bnf.fr/iiif/ark:/12148/btv1b8449691v/manifest.json", "btv1b8449691v"),
        ("https://iiif.bodleian.ox.ac.uk/iiif/manifest/e32a277e-91e2.json", "e32a277e-91e2"),
        ("https://www.e-codices.unifr.ch/metadata/iiif/csg-0018/manifest.json", "csg-0018"),
        ("https://l.example/iiif/presentation/v3/manifest?id=ms%2012", "id_ms_12"),
        ("https://l.example/", "l.example"),
        ("https://l.example/scans/page 1.jpg", "page_1"),
        ("folder/book.json", "book"),
    ],
)
def test_results_are_named_after_what_tells_one_manifest_from_others(address: str, name: str) -> None:
    assert name_of(address) == name


@given(st.text(max_size=40))
def test_a_name_is_always_fit_for_a_file(text: str) -> None:
    name = name_of(f"https://l.example/{text}")
    assert name
    assert "/" not in name
    assert not name.startswith(".")
