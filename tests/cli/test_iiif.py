"""`transcribe` from a IIIF manifest to annotations on its canvases, by a server on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_help import run
from lxml import etree

from iiif_help import IIIFServer, iiif_server
from pages_help import save_random, simple_page
from spikehtr.results.page import CanvasPlace, Page, Region, TextLine


@pytest.fixture
def server() -> Iterator[IIIFServer]:
    with iiif_server() as about:
        yield about


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("model") / "m.safetensors")


def transcribe(tmp_path: Path, model: Path, *more: object) -> Any:
    options = ["-m", model, "--cache", tmp_path / "cache", "--requests-per-second", 100, "-o", tmp_path / "out"]
    return run("transcribe", *options, *more)


def boxes(page: dict[str, Any]) -> list[list[int]]:
    values = [item["target"]["selector"][0]["value"] for item in page["items"]]
    return [[int(number) for number in value.removeprefix("xywh=").split(",")] for value in values]


@pytest.mark.parametrize("version", [2, 3])
def test_annotations_lie_on_the_canvas_whatever_the_size_of_the_image(
    version: int, server: IIIFServer, tmp_path: Path, model: Path
) -> None:
    image, baselines = simple_page(3)
    address = server.add_manifest("book", [image, image], version, scale=2.0)
    done = transcribe(tmp_path, model, "-f", "iiif", address)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "out").glob("*.json"))
    assert [file.name for file in files] == ["book-0001.iiif.json", "book-0002.iiif.json"]
    page = json.loads(files[1].read_text(encoding="utf-8"))
    assert page["type"] == "AnnotationPage"
    assert page["@context"][-1] == "http://iiif.io/api/presentation/3/context.json"
    assert len(page["items"]) == 3
    for item, box, baseline in zip(page["items"], boxes(page), baselines, strict=True):
        assert item["motivation"] == "supplementing"
        assert item["body"]["value"].strip()
        assert item["target"]["source"]["id"] == f"{server.address}/book/canvas/2"
        assert item["target"]["source"]["partOf"] == [{"id": address, "type": "Manifest"}]
        left, top, width, height = box
        (x0, y), (x1, _) = baseline
        assert left < 2 * x0 + 40
        assert left + width > 2 * x1 - 40
        assert top < 2 * y < top + height
        shape = etree.fromstring(item["target"]["selector"][1]["value"])
        assert re.match(r"[\d.]+,[\d.]+ ", shape[0].get("points"))
    ids = [item["id"] for file in files for item in json.loads(file.read_text())["items"]]
    assert len(set(ids)) == 6
    (tmp_path / "out" / "book-0001.iiif.json").unlink()
    before = len(server.asked)
    again = transcribe(tmp_path, model, "-f", "iiif", address, "--resume")
    assert (again.returncode, "1 page there already" in again.stderr) == (0, True)
    assert len(server.asked) == before, "all is in the cache"
    assert [item["id"] for file in files for item in json.loads(file.read_text())["items"]] == ids


def test_a_collection_with_a_bad_page_and_a_bad_manifest(server: IIIFServer, tmp_path: Path, model: Path) -> None:
    image, _ = simple_page(2)
    good, other = (server.add_manifest(name, [image]) for name in ("one", "two"))
    items = [{"id": address, "type": "Manifest"} for address in (good, f"{server.address}/gone/manifest.json", other)]
    server.documents["/all.json"] = {"id": "x", "type": "Collection", "items": items}
    del server.images["two-1"]
    done = transcribe(tmp_path, model, "-f", "page", "--images", f"{server.address}/all.json")
    assert done.returncode == 1
    assert "2 could not be done" in done.stderr
    assert "/gone/manifest.json: the server answers 404" in done.stderr
    assert "/two/manifest.json, canvas 1" in done.stderr
    written = sorted(str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.[xp][mn]*"))
    assert written == ["all/one-0001.png", "all/one-0001.xml"]
    assert 'imageFilename="one-0001.png"' in (tmp_path / "out" / "all" / "one-0001.xml").read_text()


def test_a_manifest_in_a_file_and_an_image_by_its_address(server: IIIFServer, tmp_path: Path, model: Path) -> None:
    image, _ = simple_page(2)
    server.add_manifest("book", [image])
    file = tmp_path / "saved.json"
    file.write_text(json.dumps(server.documents["/book/manifest.json"]))
    done = transcribe(tmp_path, model, file, f"{server.address}/image/book-1/full/max/0/default.jpg")
    assert done.returncode == 0, done.stderr
    first, second = (tmp_path / "out" / name for name in ("saved-0001.txt", "default.txt"))
    assert first.read_text() == second.read_text() != ""


def test_what_cannot_be_fetched_is_a_message(server: IIIFServer, tmp_path: Path, model: Path) -> None:
    done = transcribe(tmp_path, model, f"{server.address}/nothing.json")
    assert done.returncode == 2
    assert "nothing.json: the server answers 404, not found" in done.stderr
    plain = tmp_path / "page.json"
    plain.write_text('{"format": "spikehtr-page-1"}')
    done = transcribe(tmp_path, model, plain)
    assert done.returncode in (1, 2)


def test_pages_of_other_images_are_annotated_in_their_pixels() -> None:
    line = TextLine("l", ((10, 20), (110, 20), (110, 60), (10, 60)), corrected='Où <est> l\'ami & "lui"?')
    page = Page("a page.tif", 200, 100, (Region("r", (line, TextLine("m", line.polygon))),), frame=3)
    found = json.loads(page.to_iiif())
    (item,) = found["items"]
    assert item["target"]["source"] == {"id": "a%20page.tif#page=3", "type": "Image"}
    assert boxes(found) == [[10, 20, 100, 40]]
    assert item["body"]["value"] == 'Où <est> l\'ami & "lui"?'


def test_the_canvas_is_kept_in_json() -> None:
    place = CanvasPlace("https://l.example/c", "https://l.example/m", (0.0, 10.0, 400.0, 210.0))
    line = TextLine("l", ((10, 20), (110, 20), (110, 60), (10, 60)), corrected="x")
    page = Page("p.jpg", 200, 100, (Region("r", (line,), polygon=line.polygon),), canvas=place)
    assert Page.from_json(page.to_json()).canvas == place
    assert boxes(json.loads(page.to_iiif())) == [[20, 50, 200, 80]]
