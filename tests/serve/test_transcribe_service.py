"""The HTTP service: the direct reader's results, many at a time, and a right answer for whatever is sent."""

from __future__ import annotations

import gc
import io
import json
import random
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from serve_help import Browser, draw_page, served, small_model

from conftest import draw_line
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.limits import Limits
from spikehtr.serve.line_pool import LinePool, _shares
from spikehtr.serve.openapi import DESCRIPTION
from spikehtr.serve.security import Access
from spikehtr.serve.transcribe_service import _WRITERS

TIGHT = Limits(image_bytes=200_000, pixels=1_000_000, upload_bytes=300_000, seconds=30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("project")
    draw_page(folder / "page.png")
    with served(folder, TIGHT) as opened:
        yield opened


def png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def line(text: str, seed: int = 0) -> bytes:
    return png(Image.fromarray(draw_line(text, 40, seed)))


def test_a_line_and_a_page_are_read_as_the_direct_reader_does(browser: Browser, tmp_path: Path) -> None:
    direct = Recognizer.load(small_model())
    data = line("some words")
    answer = browser.client.post("/v1/transcribe?as=line", content=data, headers={"Content-Type": "image/png"})
    assert answer.status_code == 200, answer.text
    read = Page.from_json(answer.text)
    assert [one.text for one in read.lines] == [" ".join(direct.transcribe(data).text.split())]
    draw_page(tmp_path / "page.png")
    answer = browser.client.post("/v1/transcribe", content=(tmp_path / "page.png").read_bytes())
    expected = Page.from_json(direct.transcribe_page(tmp_path / "page.png").to_json())  # rounded as what is sent
    assert Page.from_json(answer.text).lines == expected.lines


@pytest.mark.parametrize(
    ("accept", "media", "mark"),
    [
        ("application/json", "application/json", "spikehtr-page-1"),
        ("application/vnd.prima.page+xml", "application/vnd.prima.page+xml", "<PcGts"),
        ("application/xml;q=0.5, application/alto+xml", "application/alto+xml", "<alto"),
        ("text/plain", "text/plain; charset=utf-8", ""),
        ("text/html", "text/html; charset=utf-8", "ocr_page"),
        ("*/*", "application/json", "spikehtr-page-1"),
    ],
)
def test_results_come_in_the_format_that_is_asked_for(browser: Browser, accept: str, media: str, mark: str) -> None:
    answer = browser.client.post("/v1/transcribe", content=line("words"), headers={"Accept": accept})
    assert answer.headers["content-type"] == media
    assert mark in answer.text
    if "html" in media:
        assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},  # curl --data-binary
        {"Content-Type": "application/octet-stream", "Accept": ""},
        {"Content-Type": ""},
    ],
)
def test_an_image_is_known_by_its_content(browser: Browser, headers: dict[str, str]) -> None:
    answer = browser.client.post("/v1/transcribe", content=line("words"), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "application/json"


def test_lines_may_be_given_by_a_page_file(browser: Browser, tmp_path: Path) -> None:
    draw_page(tmp_path / "page.png")
    given_lines = (
        '<PcGts xmlns="http://x"><Page imageFilename="/etc/passwd" imageWidth="400" imageHeight="300">'
        '<TextRegion id="r"><TextLine id="mine"><Coords points="20,30 380,30 380,70 20,70"/></TextLine></TextRegion>'
        "</Page></PcGts>"
    )
    files = {"image": ("p.png", (tmp_path / "page.png").read_bytes()), "page": ("p.xml", given_lines.encode())}
    answer = browser.client.post("/v1/transcribe", files=files)
    assert answer.status_code == 200, answer.text
    assert [one.id for one in Page.from_json(answer.text).lines] == ["mine"]


def bomb(width: int, height: int) -> bytes:
    """A small PNG that claims to be huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("data", "headers", "query", "status", "code"),
    [
        (b"", {}, "", 400, "bad_request"),
        (b"no image", {}, "", 415, "unsupported"),
        (b"no image", {"Content-Type": "application/pdf"}, "", 415, "unsupported"),
        (b"x" * 200_001, {}, "", 413, "too_large"),
        (bomb(50_000, 50_000), {}, "", 413, "too_large"),
        (bomb(2_000, 2_000), {}, "", 413, "too_large"),
        (bomb(500, 500), {}, "", 415, "unsupported"),
        (line("a")[:60], {}, "", 415, "unsupported"),
        (line("a"), {}, "?as=book", 422, "invalid"),
        (line("a"), {}, "?model=none", 404, "not_found"),
        (line("a"), {}, "?model=../../secret", 404, "not_found"),
        (line("a"), {"Accept": "image/png"}, "", 406, "not_acceptable"),
        (line("a"), {"Content-Type": "multipart/form-data"}, "", 400, "bad_request"),
        (line("a"), {"Content-Type": "multipart/form-data; boundary=x"}, "", 400, "bad_request"),
    ],
)
def test_what_cannot_be_read_is_told(
    browser: Browser, data: bytes, headers: dict[str, str], query: str, status: int, code: str
) -> None:
    answer = browser.client.post(f"/v1/transcribe{query}", content=data, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["fault"]
    assert browser.client.get("/healthz").json() == {"status": "ok"}


def test_an_upload_that_is_too_large_is_refused_before_it_ends(browser: Browser) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        while sent < 50:
            sent += 1
            yield b"x" * 100_000

    headers = browser.headers | {"Content-Type": "multipart/form-data; boundary=x"}
    answer = browser.client.post("/api/uploads", content=endless(), headers=headers)
    assert answer.status_code == 413
    headers |= {"Content-Length": str(5 << 30)}
    assert browser.client.post("/api/uploads", content=b"--x", headers=headers).status_code == 413


@pytest.mark.parametrize("path", ["/v1/transcribe", "/api/uploads"])
@pytest.mark.parametrize("end", ["", "\r\n--x", "\r\n--x\r\n"])
def test_a_form_that_was_cut_off_is_refused_and_none_of_its_files_is_taken(
    path: str, end: str, browser: Browser
) -> None:
    part = '--x\r\nContent-Disposition: form-data; name="{}"; filename="{}.png"\r\n\r\n'
    first = part.format("image", "a").encode() + line("a") + b"\r\n"
    body = first + part.format("files", "b").encode() + line("b") + end.encode()
    before = browser.get("/api/jobs")
    headers = browser.headers | {"Content-Type": "multipart/form-data; boundary=x"}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        answer = browser.client.post(path, content=body, headers=headers)
        gc.collect()
    assert answer.status_code == 400
    assert "ends before its last boundary" in answer.json()["error"]["fault"]
    assert browser.get("/api/jobs") == before
    assert not [one for one in told if "SpooledTemporaryFile" in str(one.message)]


def test_many_requests_at_once_are_answered_with_the_direct_results(browser: Browser) -> None:
    images = [line("words and more words"[: 3 + n], n) for n in range(12)]
    direct = Recognizer.load(small_model()).transcribe(images)
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda data: browser.client.post("/v1/transcribe?as=line", content=data), images))
    assert [a.status_code for a in answers] == [200] * len(images)
    assert [Page.from_json(a.text).to_text().strip() for a in answers] == [" ".join(one.text.split()) for one in direct]


def test_a_full_queue_is_told_with_when_to_come_back() -> None:
    reader = Recognizer.load(small_model())
    held, go = threading.Event(), threading.Event()
    read = reader.read_lines

    def slow(*args: object) -> object:
        held.set()
        go.wait(10)
        return read(*args)  # type: ignore[arg-type]

    reader.read_lines = slow  # type: ignore[assignment, method-assign]
    pool = LinePool(most_waiting=3)
    fitted = reader.fit(Image.fromarray(draw_line("words")))
    first = pool.submit(reader, [fitted])
    assert held.wait(10)
    waiting = pool.submit(reader, [fitted] * 3)
    with pytest.raises(RequestError) as caught:
        pool.submit(reader, [fitted])
    assert caught.value.status == 429
    assert int(caught.value.headers["Retry-After"]) >= 1
    dropped = pool.submit(reader, [fitted], urgent=False)
    pool.cancel(dropped)
    go.set()
    assert len(first.done.result(10)) == 1
    assert len(waiting.done.result(10)) == 3
    pool.stop()
    assert dropped.done.cancelled()
    assert pool.lines_read == 4


def test_requests_that_are_given_up_and_other_models_leave_those_beside_them_alone() -> None:
    reader, other = Recognizer.load(small_model()), Recognizer.load(small_model())
    held, go = threading.Event(), threading.Event()
    read = reader.read_lines

    def slow(*args: object) -> object:
        held.set()
        go.wait(10)
        return read(*args)  # type: ignore[arg-type]

    reader.read_lines = slow  # type: ignore[assignment, method-assign]
    pool = LinePool()
    lines = [reader.fit(Image.fromarray(draw_line("words and more"[:count]))) for count in (14, 5, 9)]
    first = pool.submit(reader, lines[:1])
    assert held.wait(10)
    tickets = [pool.submit(model, [line]) for line in lines for model in (other, reader)]
    dropped = pool.submit(reader, lines[1:])
    pool.cancel(dropped)
    go.set()
    assert [len(ticket.done.result(20)) for ticket in (first, *tickets)] == [1] * 7
    pool.stop()
    assert dropped.done.cancelled()
    assert pool.lines_read == 7


def test_calls_side_by_side_give_each_its_own_lines() -> None:
    """Tickets of all sizes, of which some are parted over two calls and some given up."""
    chance, reader = random.Random(3), Recognizer.load(small_model())
    lines = [reader.fit(Image.fromarray(draw_line("words and more of them"[:count]))) for count in range(3, 23)]
    expected = {id(line): read.text for line, read in zip(lines, reader.read_lines(lines), strict=True)}
    seen: list[int] = []
    read, at_once, lock = reader.read_lines, 0, threading.Lock()

    def counted(*args: object) -> object:
        nonlocal at_once
        with lock:
            at_once += 1
            seen.append(at_once)
        try:
            return read(*args)  # type: ignore[arg-type]
        finally:
            with lock:
                at_once -= 1

    reader.read_lines = counted  # type: ignore[assignment, method-assign]
    pool = LinePool()

    def client(seed: int) -> int:
        chance, done = random.Random(seed), 0
        for _ in range(6):
            own = chance.choices(lines, k=chance.randint(1, 25))
            ticket = pool.submit(reader, own, urgent=chance.random() < 0.5)
            if chance.random() < 0.2:
                pool.cancel(ticket)
                continue
            assert [line.text for line in ticket.done.result(60)] == [expected[id(line)] for line in own]
            done += len(own)
        return done

    with ThreadPoolExecutor(8) as threads:
        done = sum(threads.map(client, [chance.randrange(10**6) for _ in range(8)]))
    pool.stop()
    assert pool.lines_read >= done
    assert max(seen) == (2 if _shares(reader) else 1)
    assert pool.waiting == 0


def test_a_fault_while_reading_reaches_who_asked_and_the_pool_goes_on() -> None:
    reader = Recognizer.load(small_model())
    read = reader.read_lines
    reader.read_lines = lambda lines, *_: (_ for _ in ()).throw(ValueError("broken"))  # type: ignore[assignment]
    pool = LinePool()
    fitted = reader.fit(Image.fromarray(draw_line("words")))
    with pytest.raises(ValueError, match="broken"):
        pool.submit(reader, [fitted]).done.result(10)
    reader.read_lines = read  # type: ignore[method-assign]
    assert len(pool.submit(reader, [fitted]).done.result(10)) == 1
    pool.stop()


def test_a_request_that_ends_while_its_lines_fail_leaves_the_pool_at_work() -> None:
    reader = Recognizer.load(small_model())
    fitted = reader.fit(Image.fromarray(draw_line("words")))
    read, pool = reader.read_lines, LinePool()
    for _ in range(3):  # more often than there are threads
        begun, go = threading.Event(), threading.Event()

        def broken(*_: object, begun: threading.Event = begun, go: threading.Event = go) -> object:
            begun.set()
            go.wait(10)
            raise ValueError("broken")

        reader.read_lines = broken  # type: ignore[assignment, method-assign]
        ticket = pool.submit(reader, [fitted] * 3)
        assert begun.wait(10)
        assert ticket.done.cancel()  # as a request's time limit does
        go.set()
        with pytest.raises(CancelledError):
            ticket.done.result(10)
    reader.read_lines = read  # type: ignore[method-assign]
    assert len(pool.submit(reader, [fitted]).done.result(10)) == 1
    pool.stop()


def test_what_is_done_is_counted_for_prometheus(browser: Browser) -> None:
    text = browser.client.get("/metrics").text
    browser.client.post("/v1/transcribe", content=line("words"))
    after = browser.client.get("/metrics").text

    def value(lines: str, name: str) -> float:
        return sum(float(one.split()[-1]) for one in lines.splitlines() if one.startswith(name))

    assert value(after, "spikehtr_lines_read_total") > value(text, "spikehtr_lines_read_total")
    ok = 'spikehtr_requests_total{group="/v1",method="POST",status="200"}'
    assert value(after, ok) == value(text, ok) + 1


def test_the_description_names_every_path_of_the_service(browser: Browser) -> None:
    described = browser.get("/openapi.json")
    served_paths = {route.path for route in browser.client.app.routes if hasattr(route, "path")}  # type: ignore[attr-defined]
    ours = {
        path.replace(":int", "") for path in served_paths if path.startswith(("/v1", "/healthz", "/metrics", "/open"))
    }
    assert set(described["paths"]) == ours
    assert described["openapi"].startswith("3.1")


def test_the_description_names_every_format_and_every_refusal(tmp_path: Path) -> None:
    post = DESCRIPTION["paths"]["/v1/transcribe"]["post"]["responses"]
    assert post["200"]["content"].keys() == _WRITERS.keys()
    with served(
        tmp_path, access=Access("0.0.0.0", "a token of some length"), address="http://192.0.2.7:8765"
    ) as guarded:
        del guarded.client.headers["Authorization"]
        for path, described in DESCRIPTION["paths"].items():
            ((method, operation),) = described.items()
            for headers in ({}, {"Host": "evil.example"}):
                status = guarded.client.request(method, path.format(job=1), headers=headers).status_code
                assert str(status) in operation["responses"], (path, headers)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
OPS = st.sampled_from(
    (
        *("set_text", "confirm", "unconfirm", "reshape", "add_line", "split", "join", "delete", "place"),
        *("order_lines", "add_region", "set_region", "delete_region", "order_regions", "none"),
    )
)
KEYS = (
    "line",
    "version",
    "text",
    "x",
    "at",
    "baseline",
    "polygon",
    "lines",
    "versions",
    "region",
    "before",
    "kind",
    "seq",
)
BODY = st.one_of(
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
    st.lists(
        st.tuples(OPS, st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)).map(lambda p: p[1] | {"op": p[0]}),
        max_size=4,
    ).map(lambda ops: json.dumps({"ops": ops}).encode()),
)
PATHS = (
    *("/api/pages/1/edits", "/api/pages/1/undo", "/api/pages/99999999999999999999/edits", "/api/jobs", "/api/replace"),
    *("/api/login", "/api/jobs/1/cancel", "/api/jobs/1/resume", "/v1/transcribe", "/api/uploads", "/v1/nothing"),
)


@settings(max_examples=150)
@given(st.sampled_from(PATHS), BODY, st.sampled_from(["POST", "PATCH", "PUT", "DELETE"]), st.text(max_size=20))
def test_malformed_requests_get_an_answer_of_their_kind(
    browser: Browser, path: str, body: bytes, method: str, query: str
) -> None:
    answer = browser.client.request(
        method, path, content=body, params={"q": query, "as": query}, headers=browser.headers
    )
    assert answer.status_code < 500
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"]
        assert error["message"]


@settings(max_examples=60)
@given(
    st.sampled_from(
        ["/api/search", "/api/queue", "/api/export", "/api/pages", "/api/pages/1/image", "/api/pages/1/history"]
    ),
    st.dictionaries(
        st.sampled_from(
            ["q", "regex", "offset", "limit", "format", "pages", "level", "page", "before", "sort", "state"]
        ),
        st.text(max_size=12) | st.integers().map(str),
        max_size=4,
    ),
)
def test_any_query_gets_an_answer(browser: Browser, path: str, query: dict[str, str]) -> None:
    assert browser.client.get(path, params=query).status_code < 500
