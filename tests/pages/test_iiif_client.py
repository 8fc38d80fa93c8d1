"""Fetching with manners, from a server on loopback."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import pytest
from PIL import Image

from iiif_help import IIIFServer, iiif_server
from spikehtr.pages.iiif import Client, ClientOptions, Collection, FetchError, Manifest
from spikehtr.pages.iiif.client import prune
from spikehtr.pages.iiif.limiter import RateLimiter


@pytest.fixture
def server() -> Iterator[IIIFServer]:
    with iiif_server() as about:
        yield about


def client(folder: Path, **options: object) -> Client:
    return Client(ClientOptions(folder / "cache", **{"requests_per_second": 1000.0, "first_wait": 0.01} | options))  # type: ignore[arg-type]


def pages(count: int) -> list[Image.Image]:
    return [Image.new("L", (60, 40 + number), 200) for number in range(count)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_and_its_images_are_fetched_once(version: int, server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(2), version)
    for _ in range(2):
        fetching = client(tmp_path, contact="mailto:me@example.org")
        found = fetching.load(address)
        assert isinstance(found, Manifest)
        for number, canvas in enumerate(found.canvases):
            with Image.open(fetching.image(canvas)) as image:
                assert image.size == (60, 40 + number)
    size = "max" if version == 3 else "full"
    images = [f"/image/book-{number}/full/{size}/0/default.jpg" for number in (1, 2)]
    assert server.paths() == ["/book/manifest.json", *images]
    assert {one.agent for one in server.asked} == {server.asked[0].agent}
    assert server.asked[0].agent.startswith("spikehtr/")
    assert "mailto:me@example.org" in server.asked[0].agent


def test_where_the_full_size_is_refused_the_image_that_the_manifest_names_is_taken(
    server: IIIFServer, tmp_path: Path
) -> None:
    server.sizes = ("200,",)
    found = client(tmp_path).load(server.add_manifest("book", pages(1)))
    assert isinstance(found, Manifest)
    fetching = client(tmp_path)
    assert fetching.image(found.canvases[0]).is_file()
    before = len(server.asked)
    assert fetching.image(found.canvases[0]).is_file()
    assert len(server.asked) == before


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_fails_for_a_moment_is_asked_for_again(status: int, server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(1))
    server.faults["/book/manifest.json"] = [(status, {}, b"")] * 2
    assert isinstance(client(tmp_path).load(address), Manifest)
    assert len(server.asked) == 3


@pytest.mark.parametrize("as_date", [False, True])
def test_the_server_says_when_to_come_back(as_date: bool, server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(1))
    after = formatdate(time.time() + 1.9, usegmt=True) if as_date else "1"
    server.faults["/book/manifest.json"] = [(503, {"Retry-After": after}, b"")]
    assert isinstance(client(tmp_path).load(address), Manifest)
    first, second = (one.time for one in server.asked)
    assert second - first >= (0.2 if as_date else 1.0)  # dates are in whole seconds


def test_a_server_that_asks_for_more_than_we_wait_is_given_up(server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(1))
    server.faults["/book/manifest.json"] = [(503, {"Retry-After": "3600"}, b"")]
    with pytest.raises(FetchError, match=r"manifest\.json.*503.*come back in 3600 s"):
        client(tmp_path).load(address)
    assert len(server.asked) == 1


def test_patience_has_an_end(server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(1))
    server.faults["/book/manifest.json"] = [(503, {}, b"")] * 9
    with pytest.raises(FetchError, match=r"503.*gave up after 3 attempts"):
        client(tmp_path, attempts=3).load(address)
    assert len(server.asked) == 3
    nobody = "http://127.0.0.1:9/manifest.json"
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:9.*no answer.*gave up"):
        client(tmp_path, attempts=2).load(nobody)


@pytest.mark.parametrize(("status", "why"), [(401, "login"), (403, "forbidden"), (404, "not found"), (451, "451")])
def test_what_is_refused_is_not_asked_for_again(status: int, why: str, server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", pages(1))
    server.faults["/book/manifest.json"] = [(status, {}, b"")]
    with pytest.raises(FetchError, match=why):
        client(tmp_path).load(address)
    assert len(server.asked) == 1


def test_answers_of_another_kind_are_told(server: IIIFServer, tmp_path: Path) -> None:
    fetching = client(tmp_path)
    server.documents |= {"/cut.json": b'{"type": "Mani', "/canvas.json": {"type": "Canvas"}}
    server.faults["/page.html"] = [(200, {"Content-Type": "text/html"}, b"<html>")]
    for path, why in (("/cut.json", "not JSON"), ("/canvas.json", "neither"), ("/page.html", "a web page")):
        with pytest.raises(FetchError if why != "neither" else Exception, match=f"{path}.*{why}"):
            fetching.load(f"{server.address}{path}")
    for wrong in ("file:///etc/passwd", "ftp://l.example/x", "http://[", "http://"):
        with pytest.raises(FetchError):
            fetching.fetch(wrong)


def test_a_file_that_is_cut_short_or_too_large_is_not_kept(server: IIIFServer, tmp_path: Path) -> None:
    server.documents["/large"] = b"x" * 3000
    with pytest.raises(FetchError, match="larger than"):
        client(tmp_path, max_bytes=2000).fetch(f"{server.address}/large")
    server.faults["/large"] = [(200, {"Content-Length": "5000", "Connection": "close"}, b"x" * 3000)]
    file = client(tmp_path).fetch(f"{server.address}/large")
    assert file.stat().st_size == 3000, "the cut one was asked for again"
    assert [one for one in (tmp_path / "cache" / "files").rglob("*") if one.is_file()] == [file]


def test_an_old_document_is_fetched_again_and_an_old_image_is_not(server: IIIFServer, tmp_path: Path) -> None:
    server.documents["/a"] = {"n": 1}
    fetching = client(tmp_path, document_age=100.0)
    address = f"{server.address}/a"
    file = fetching.fetch(address, 100.0)
    os.utime(file, (time.time() - 200,) * 2)
    assert fetching.fetch(address) == file
    assert len(server.asked) == 1
    server.documents["/a"] = {"n": 2}
    assert fetching.load_json(address) == {"n": 2}


def test_requests_to_a_host_keep_their_distance_over_clients_and_threads(server: IIIFServer, tmp_path: Path) -> None:
    server.documents |= {f"/{number}": {} for number in range(8)}
    both = [client(tmp_path, requests_per_second=20.0) for _ in range(2)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: both[number % 2].fetch(f"{server.address}/{number}"), range(8)))
    times = sorted(one.time for one in server.asked)
    assert len(times) == 8
    assert times[-1] - times[0] >= 6 / 20, "the first is sent at once, each other a twentieth of a second later"


def test_turns_are_given_out_in_order_and_a_pause_holds_for_all(tmp_path: Path) -> None:
    limiter, other = RateLimiter(tmp_path, 2.0), RateLimiter(tmp_path, 2.0)
    turns = [one._move("h", 0.0) for one in (limiter, other, limiter)]
    assert turns[1] - turns[0] == pytest.approx(0.5)
    assert turns[2] - turns[1] == pytest.approx(0.5)
    limiter.pause("h", 60.0)
    assert other._move("h", 0.0) >= time.time() + 59
    assert other._move("elsewhere", 0.0) <= time.time()


def test_the_cache_loses_what_was_not_used_for_longest(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"x" * 100)
        os.utime(tmp_path / str(number), (1000 + number, 5))
    os.utime(tmp_path / "0", (2000, 5))  # used since
    prune(tmp_path, 200)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["0", "3"]


def test_the_manifests_of_a_collection_within_collections_each_once(server: IIIFServer, tmp_path: Path) -> None:
    def collection(name: str, *members: str, **more: object) -> str:
        address = f"{server.address}/{name}"
        kinds = [("Collection" if "/c" in member else "Manifest", member) for member in members]
        items = [{"id": member, "type": kind, "label": {"none": [member[-2:]]}} for kind, member in kinds]
        server.documents[f"/{name}"] = {"id": address, "type": "Collection", "items": items} | more
        return address

    base = server.address
    collection("c2", f"{base}/m2", f"{base}/m1", f"{base}/c1")  # a circle
    top = collection("c1", f"{base}/m1", f"{base}/c2", f"{base}/c9", f"{base}/m3")
    failures: list[str] = []
    found = list(client(tmp_path).references(top, failures))
    assert [one.id.rpartition("/")[2] for one in found] == ["m1", "m2", "m3"]
    assert len(failures) == 1
    assert "/c9" in failures[0]
    assert not [path for path in server.paths() if path.startswith("/m")], "manifests are fetched when their turn comes"


def test_a_collection_in_several_documents_is_put_together(server: IIIFServer, tmp_path: Path) -> None:
    base = server.address
    for number, following in ((1, 2), (2, 3), (3, 1)):
        members = [{"@id": f"{base}/m{number}", "@type": "sc:Manifest"}]
        about = {"@id": f"{base}/p{number}", "@type": "sc:Collection", "manifests": members}
        server.documents[f"/p{number}"] = about | {"next": f"{base}/p{following}"}
    found = client(tmp_path).load(f"{base}/p1")
    assert isinstance(found, Collection)
    assert [one.id[-2:] for one in found.members] == ["m1", "m2", "m3"]
