"""The server over real connections: many clients, slow ones, lost ones, a full disk, and a graceful end."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvicorn
from PIL import Image
from serve_help import draw_page, served, small_model

from conftest import draw_line
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page
from spikehtr.serve.app import make_app
from spikehtr.serve.limits import Limits
from spikehtr.serve.server import WorkbenchServer, listen
from spikehtr.serve.workbench import Workbench

WORDS = ("some", "words", "of", "a", "hand", "that", "nobody", "knows")


class Running:
    """A server in a thread of its own."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.bench = Workbench(folder, small_model())
        self.listening = listen("127.0.0.1", 0)
        self.port = self.listening.getsockname()[1]
        config = uvicorn.Config(make_app(self.bench, limits=limits), log_level="critical", timeout_graceful_shutdown=20)
        self.server = WorkbenchServer(config, self.bench)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.server.handle_exit(2, None)
        self.thread.join(30)

    def read(self, image: bytes, connection: http.client.HTTPConnection | None = None) -> tuple[int, str]:
        if connection is None:
            with self.client() as once:
                return self.read(image, once)
        connection.request("POST", "/v1/transcribe?as=line", image, {"Content-Type": "image/png"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    @contextlib.contextmanager
    def client(self) -> Iterator[http.client.HTTPConnection]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            yield connection

    def is_up(self) -> bool:
        with self.client() as connection:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@contextlib.contextmanager
def running(folder: Path, limits: Limits | None = None) -> Iterator[Running]:
    server = Running(folder, limits or Limits())
    try:
        yield server
    finally:
        server.stop()
        server.listening.close()


def line_images(count: int) -> list[bytes]:
    out = []
    for number in range(count):
        words = [WORDS[(number * 3 + k) % len(WORDS)] for k in range(1 + number % 4)]
        data = io.BytesIO()
        Image.fromarray(draw_line(" ".join(words), 32, number)).save(data, "PNG")
        out.append(data.getvalue())
    return out


def all_are_read_as_by_the_direct_reader(folder: Path, clients: int, each: int) -> None:
    images = line_images(clients * each)
    expected = [" ".join(line.text.split()) for line in Recognizer.load(small_model()).transcribe(images)]
    with running(folder) as server:

        def send(client: int) -> list[tuple[int, str]]:
            with server.client() as connection:
                return [server.read(image, connection) for image in images[client::clients]]

        with ThreadPoolExecutor(clients) as threads:
            answers = list(threads.map(send, range(clients)))
        assert server.bench.pool.lines_read == len(images)
        assert server.bench.pool.batches < len(images)  # read together
    for client, found in enumerate(answers):
        assert [status for status, _ in found] == [200] * each
        assert [Page.from_json(text).to_text().strip() for _, text in found] == expected[client::clients]


def test_32_clients_at_once_lose_no_line_and_get_the_direct_results(tmp_path: Path) -> None:
    all_are_read_as_by_the_direct_reader(tmp_path, 32, 2)


@pytest.mark.slow
def test_32_clients_lose_none_of_2000_lines(tmp_path: Path) -> None:
    all_are_read_as_by_the_direct_reader(tmp_path, 32, 63)


def test_slow_and_lost_connections_hold_nobody_up(tmp_path: Path) -> None:
    (image,) = line_images(1)
    head = b"POST /v1/transcribe HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n"
    with running(tmp_path, Limits(seconds=1.0)) as server, contextlib.ExitStack() as sockets:
        slow = [sockets.enter_context(server.connected()) for _ in range(20)]
        for one in slow:
            one.sendall(head % len(image) + image[:100])
        for _ in range(10):
            with server.connected() as lost:  # gone before the answer
                lost.sendall(head % len(image) + image)
        with server.connected() as broken:
            broken.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
            assert b"400" in broken.recv(4096)
        assert server.read(image)[0] == 200
        for one in slow:  # they are told that it took too long
            assert b"504" in one.recv(4096).partition(b"\r\n")[0]
        assert server.is_up()


@pytest.mark.slow
def test_a_stop_waits_for_what_is_under_way_and_ends_the_streams_of_events(tmp_path: Path) -> None:
    (image,) = line_images(1)
    with running(tmp_path) as server, server.connected() as events:
        events.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"hello" in events.recv(4096) + events.recv(4096)
        reader = server.bench.model()
        read, begun = reader.read_lines, threading.Event()

        def slowly(*args: object) -> object:
            begun.set()
            time.sleep(0.5)
            return read(*args)  # type: ignore[arg-type]

        reader.read_lines = slowly  # type: ignore[assignment, method-assign]
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(server.read, image)
            assert begun.wait(20)
            began = time.monotonic()
            server.stop()
            assert answer.result()[0] == 200
        assert time.monotonic() - began < 15
        assert not server.thread.is_alive()


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    draw_page(tmp_path / "page.png")
    with served(tmp_path) as browser:
        line = browser.line(1)
        op = {"op": "set_text", "line": line["id"], "version": line["version"], "text": "kept"}
        version = browser.edit(1, op)["lines"][0]["version"]
        database = browser.client.app.state.bench.project.log.db  # type: ignore[attr-defined]
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        try:
            statuses = []
            for number in range(200):
                body = {"ops": [op | {"version": version, "text": f"{number} " + "x" * 9000}]}
                answer = browser.client.post("/api/pages/1/edits", json=body, headers=browser.headers)
                statuses.append(answer.status_code)
                if answer.status_code != 200:
                    break
                version = answer.json()["lines"][0]["version"]
            assert statuses[-1] == 507, statuses
            assert answer.json()["error"]["code"] == "disk_full"
            assert "make room" in answer.json()["error"]["remedy"]
        finally:
            database.execute("PRAGMA max_page_count = 1073741823")
        last = browser.line(1)
        assert last["version"] == version
        browser.edit(1, op | {"version": version, "text": "goes on"})


def test_an_event_stream_tells_of_a_change_in_another_browser(tmp_path: Path) -> None:
    draw_page(tmp_path / "page.png")
    with running(tmp_path) as server, server.connected() as events:
        while server.bench.jobs.running:
            time.sleep(0.02)
        events.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream = events.makefile("rb")
        while not stream.readline().startswith(b"event: hello"):
            pass
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/api/session")
        csrf = json.loads(connection.getresponse().read())["csrf"]
        connection.request("GET", "/api/pages/1")
        line = json.loads(connection.getresponse().read())["lines"][0]
        op = {"op": "set_text", "line": line["id"], "version": line["version"], "text": "new"}
        headers = {"X-CSRF": csrf, "X-Client": "other", "Content-Type": "application/json"}
        connection.request("POST", "/api/pages/1/edits", json.dumps({"ops": [op]}), headers)
        assert connection.getresponse().status == 200
        while not (said := stream.readline()).startswith(b"event: change"):
            assert said
        change = json.loads(stream.readline().removeprefix(b"data: "))
        assert (change["client"], change["lines"][0]["text"]) == ("other", "new")
        connection.close()
        stream.close()
