"""What a hostile or broken client may send to the real server: it answers as it should, stays up, and stays small."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import random
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from serve_help import Browser, draw_page, served, small_model
from server_process import Server

from conftest import draw_line
from spikehtr.serve.limits import Limits
from spikehtr.serve.openapi import DESCRIPTION

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("project"), small_model())
    with connected(running) as connection:  # its reader is loaded, so that memory which grows is a request's
        connection.request("POST", "/v1/transcribe?as=line", sound_image(), {"Content-Type": "image/png"})
        assert connection.getresponse().status == 200
    yield running
    running.stop()


def connected(server: Server) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120))


def csrf(server: Server) -> str:
    with connected(server) as connection:
        connection.request("GET", "/api/session")
        return str(json.loads(connection.getresponse().read())["csrf"])


def is_up(server: Server) -> bool:
    with connected(server) as connection:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200


def zeros_in_a_form(size: int) -> Iterator[bytes]:
    """A file of so many bytes as a form's field; made while it is sent."""
    yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    for _ in range(size // MEGABYTE):
        yield bytes(MEGABYTE)
    yield b"\r\n--x--\r\n"


def upload(server: Server, size: int, path: str = "/api/uploads") -> tuple[int | None, int]:
    """The status of an upload of so many bytes whose length is not stated, and how many could be sent."""
    sent = 0
    headers = {"X-CSRF": csrf(server), "Content-Type": "multipart/form-data; boundary=x"}
    with connected(server) as connection:
        connection.putrequest("POST", path)
        for name, value in (headers | {"Transfer-Encoding": "chunked"}).items():
            connection.putheader(name, value)
        connection.endheaders()
        try:
            for part in zeros_in_a_form(size):
                connection.send(b"%x\r\n%s\r\n" % (len(part), part))
                sent += len(part)
            connection.send(b"0\r\n\r\n")
        except OSError:
            pass  # it does not listen any more
        try:
            return connection.getresponse().status, sent
        except (OSError, http.client.HTTPException):
            return None, sent  # the answer was lost with the connection


def check_upload(server: Server, size: int, limit: int, path: str) -> None:
    is_up(server)
    before = server.most_memory
    status, sent = upload(server, size, path)
    assert status in (413, None)
    assert limit <= sent < limit + 64 * MEGABYTE, "it is not read to its end"
    assert server.most_memory - before < 100 * MEGABYTE
    assert is_up(server)


def test_a_stated_size_of_five_gigabytes_is_refused_at_once(server: Server) -> None:
    headers = {"X-CSRF": csrf(server), "Content-Type": "multipart/form-data; boundary=x"}
    for path in ("/api/uploads", "/v1/transcribe", "/api/pages/1/edits"):
        with connected(server) as connection:
            connection.request("POST", path, b"", headers | {"Content-Length": str(5 << 30)})
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["error"]["code"]) == (413, "too_large")
    assert is_up(server)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "limit"), [("/api/uploads", 2 << 30), ("/v1/transcribe", 64 << 20)])
def test_a_stream_of_five_gigabytes_is_refused_and_takes_no_memory(path: str, limit: int, server: Server) -> None:
    check_upload(server, 5 << 30, limit, path)
    assert not list(server.folder.glob(".spikehtr/incoming-*"))


def big_png(side: int) -> bytes:
    """A sound PNG of some kilobytes that unpacks to side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    row = b"\0" + b"\xff" * side
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.slow
def test_a_png_that_unpacks_to_gigabytes_is_refused_unopened(server: Server) -> None:
    data = big_png(30_000)
    assert len(data) < MEGABYTE
    headers = {"X-CSRF": csrf(server), "Content-Type": "multipart/form-data; boundary=x"}
    before = server.most_memory
    body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n' + data + b"\r\n--x--\r\n"
    with connected(server) as connection:

        def ask(method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        for _ in range(3):
            status, said = ask("POST", "/v1/transcribe", data, {"Content-Type": "image/png"})
            assert (status, said["error"]["code"]) == (413, "too_large")
        status, said = ask("POST", "/api/uploads", body, headers)
        assert status == 202
        while said["job"]["state"] in ("queued", "running"):
            said = ask("GET", f"/api/jobs/{said['job']['id']}", None, {})[1]
        assert "pixels" in said["job"]["problems"][0]["reason"]
    assert server.most_memory - before < 100 * MEGABYTE
    assert is_up(server)


# ---- whatever the description allows and forbids
@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("project")
    draw_page(folder / "page.png")
    with served(folder, Limits(image_bytes=100_000, pixels=300_000, upload_bytes=200_000, seconds=30)) as opened:
        yield opened


def sound_image() -> bytes:
    data = io.BytesIO()
    Image.fromarray(draw_line("words", 24)).save(data, "PNG")
    return data.getvalue()


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """A sound file with some bytes changed, cut short or put in twice."""

    def damage(seed: int) -> bytes:
        rng, out = random.Random(seed), bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            out[rng.randrange(len(out))] = rng.randrange(256)
        start = rng.randrange(len(out))
        return bytes(rng.choice([out, out[:start], out[start:], out + out]))

    return st.integers(0, 1 << 30).map(damage)


def form(parts: list[tuple[str, bytes]], boundary: str) -> bytes:
    sections = [
        b'--x\r\nContent-Disposition: form-data; name="%s"; filename="f"\r\n\r\n%s\r\n' % (name.encode(), data)
        for name, data in parts
    ]
    return b"".join([*sections, boundary.encode()])


TEXT = st.text(max_size=12)
BYTES = st.binary(max_size=80) | damaged(sound_image())
XML = st.sampled_from(
    [b"<PcGts>", b"<alto xmlns='x'/>", b"<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><PcGts>&e;</PcGts>"]
)
FORM = st.builds(
    form,
    st.lists(st.tuples(st.sampled_from(["image", "page", "files", "é"]), BYTES | XML), max_size=3),
    st.sampled_from(["--x--\r\n", "--x", ""]),
)


def value_for(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """What a parameter may be, and what it may not."""
    right = st.sampled_from(schema["enum"]) if "enum" in schema else st.integers(0, 3).map(str)
    return right | TEXT | st.integers().map(str)


@st.composite
def requests(draw: Callable[..., Any]) -> tuple[str, str, dict[str, str], dict[str, str], bytes]:
    """Method, path, query, headers and body of a request, by the description and beside it."""
    path = draw(st.sampled_from(sorted(DESCRIPTION["paths"])))
    described = DESCRIPTION["paths"][path]
    method = draw(st.sampled_from([*(name.upper() for name in described), "GET", "POST", "PUT", "DELETE", "PATCH"]))
    operation = described.get(method.lower(), next(iter(described.values())))
    query = {}
    for parameter in operation.get("parameters", ()):
        value = draw(value_for(parameter["schema"]))
        if parameter["in"] == "path":
            path = path.replace("{job}", "".join(sign for sign in value if sign.isalnum() or sign in "-%.") or "x")
        elif draw(st.booleans()):
            query[parameter["name"]] = value
    if draw(st.booleans()):
        query[draw(TEXT)] = draw(TEXT)
    media = [*operation.get("requestBody", {}).get("content", ()), "image/png", "multipart/form-data; boundary=x", ""]
    headers = {"Content-Type": draw(st.sampled_from(media).filter(lambda one: "*" not in one))}
    accept = ["*/*", "text/*;q=0.1", "image/png", "application/json;q=x", ";;,,", *DESCRIPTION_MEDIA]
    headers["Accept"] = draw(st.sampled_from(accept))
    body = b"" if method == "GET" else draw(BYTES | FORM | st.just(sound_image()))
    return method, path, query, headers, body


DESCRIPTION_MEDIA = tuple(DESCRIPTION["paths"]["/v1/transcribe"]["post"]["responses"]["200"]["content"])


def check_answer(browser: Browser, request: tuple[str, str, dict[str, str], dict[str, str], bytes]) -> None:
    method, path, query, headers, body = request
    answer = browser.client.request(method, path, params=query, headers=headers, content=body)
    known = next((one for name, one in DESCRIPTION["paths"].items() if fits(name, path)), {})
    if method.lower() in known:
        described = known[method.lower()]["responses"]
        assert str(answer.status_code) in described, (request, answer.text[:300])
    elif method == "HEAD":
        assert answer.status_code in (200, 405)
    else:
        assert answer.status_code in (404, 405), (request, answer.text[:300])
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert {"code", "message", "fault", "remedy"} <= error.keys()
        assert error["code"]
        assert error["fault"]


def fits(template: str, path: str) -> bool:
    return template == path or ("{job}" in template and path.startswith("/v1/jobs/") and path[9:].isdecimal())


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=100, deadline=None, suppress_health_check=QUIET)
@given(asked=requests())
def test_requests_beside_the_description_get_the_status_it_names(browser: Browser, asked: Any) -> None:
    check_answer(browser, asked)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=QUIET)
@given(asked=requests())
def test_ten_thousand_requests_beside_the_description_leave_it_up(browser: Browser, asked: Any) -> None:
    check_answer(browser, asked)
    assert threading.active_count() < 100
