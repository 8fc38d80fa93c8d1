"""What the workbench promises: nobody from elsewhere, nothing outside the folder, no forged requests, safe headers."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from serve_help import Browser, draw_page, served
from typer.testing import CliRunner

from iiif_help import iiif_server
from spikehtr.cli import app
from spikehtr.pages.iiif import ClientOptions, FetchError
from spikehtr.serve import iiif_import
from spikehtr.serve.iiif_import import NotPublicError, PublicClient, check_public
from spikehtr.serve.security import Access
from spikehtr.serve.uploads import safe_name
from spikehtr.serve.workbench import Workbench

TOKEN = "a token of some length"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with served(tmp_path) as opened:
        yield opened


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Browser]:
    """A server that listens to the network."""
    with served(tmp_path, access=Access("0.0.0.0", TOKEN), address="http://192.0.2.7:8765") as opened:
        yield opened


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "localhost.evil.example", "192.0.2.1", ""])
def test_a_name_that_is_not_this_computer_s_is_refused(browser: Browser, host: str) -> None:
    for path in ("/", "/api/session", "/healthz", "/v1/models"):
        answer = browser.client.get(path, headers={"Host": host})
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "host"


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765"])
def test_this_computer_s_own_names_are_served(browser: Browser, host: str) -> None:
    assert browser.client.get("/api/session", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_another_site_s_requests_are_refused(browser: Browser, headers: dict[str, str]) -> None:
    for method, path in (
        ("POST", "/api/jobs"),
        ("POST", "/v1/transcribe"),
        ("GET", "/api/pages"),
        ("GET", "/v1/models"),
    ):
        answer = browser.client.request(method, path, headers=headers | browser.headers)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "origin"


def test_a_change_needs_the_session_s_own_word(browser: Browser) -> None:
    answer = browser.client.post("/api/jobs", json={"kind": "scan"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "csrf")
    answer = browser.client.post("/api/jobs", json={"kind": "scan"}, headers={"X-CSRF": "guessed"})
    assert answer.status_code == 403


def test_every_answer_has_the_headers_that_keep_data_from_being_run(browser: Browser) -> None:
    for path in ("/api/session", "/nothing/here", "/healthz", "/static/none.js", "/api/pages/99"):
        headers = browser.client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


def test_beyond_this_computer_nothing_is_answered_without_the_token(guarded: Browser) -> None:
    client = guarded.client
    del client.headers["Authorization"]
    for path in ("/api/session", "/api/pages", "/api/events", "/v1/models", "/metrics", "/openapi.json", "/api/export"):
        assert client.get(path).status_code == 401
    assert client.post("/v1/transcribe", content=b"x").status_code == 401
    assert client.get("/healthz").status_code == 200
    assert client.get("/api/session", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/api/session", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    ("options", "is_needed"),
    [
        ([], False),
        (["--host", "127.0.0.1", "--allow-host", "localhost"], False),
        (["--host", "0.0.0.0"], True),
        (["--allow-host", "scans.example"], True),  # through a proxy, others reach what listens to this computer alone
    ],
)
def test_a_token_is_made_wherever_others_can_come(
    options: list[str], is_needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Access] = []

    def run(bench: Workbench, access: Access, limits: object, listening: socket.socket) -> None:
        seen.append(access)
        listening.close()
        bench.stop()

    monkeypatch.setattr("spikehtr.serve.server.run", run)
    monkeypatch.setattr(Workbench, "load_reader_soon", lambda *_, **__: None)
    told = CliRunner().invoke(app, ["serve", str(tmp_path), "--no-browser", "--port", "0", *options])
    assert told.exit_code == 0, told.output
    assert (seen[0].token is not None) == is_needed == ("?token=" in told.output)


def test_a_link_to_a_page_leads_to_where_the_token_is_asked_for(guarded: Browser) -> None:
    del guarded.client.headers["Authorization"]
    answer = guarded.client.get("/p/page/1")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert guarded.client.get("/api/pages/1").status_code == 401


def test_the_address_with_the_token_sets_a_cookie_that_scripts_cannot_read(guarded: Browser) -> None:
    client = guarded.client
    del client.headers["Authorization"]
    answer = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    assert client.get("/api/session").status_code == 200


def test_guessing_tokens_is_slowed_down(guarded: Browser) -> None:
    statuses = [guarded.client.post("/api/login", json={"token": f"guess {n}"}).status_code for n in range(12)]
    assert statuses[:10] == [401] * 10
    assert statuses[10:] == [429] * 2


@pytest.mark.parametrize(
    "name",
    [
        "../x.png",
        "/etc/passwd",
        "..\\..\\x",
        "a/../../b",
        "C:\\x",
        "\0",
        "con.png",
        ".spikehtr/x.png",
        "a" * 500,
        "é" * 300,
    ],
)
def test_no_name_of_an_upload_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    safe = safe_name(name)
    assert not safe.is_absolute()
    assert ".." not in safe.parts
    assert not any(part.startswith(".") for part in safe.parts)
    assert len(safe.name.encode()) <= 255
    assert (tmp_path / safe).resolve().is_relative_to(tmp_path.resolve())


def test_files_of_the_front_end_are_all_that_is_served_as_files(browser: Browser, tmp_path: Path) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/.spikehtr/workbench.sqlite"):
        assert browser.client.get(path).status_code in (404, 405)
    found = re.search(r"/static/\w{16}/", browser.client.get("/").text)
    assert found
    for path in ("../app.py", "../../app.py", "%2e%2e/app.py", "..%2f..%2fapp.py", "", "/etc/passwd"):
        assert browser.client.get(found.group() + path).status_code in (404, 405)


def test_a_page_file_that_names_an_image_elsewhere_opens_nothing(tmp_path: Path) -> None:
    draw_page(tmp_path / "secret.png")
    folder = tmp_path / "project"
    folder.mkdir()
    xml = '<PcGts xmlns="http://x"><Page imageFilename="{}" imageWidth="400" imageHeight="300"/></PcGts>'
    (folder / "a.xml").write_text(xml.format(tmp_path / "secret.png"))
    (folder / "b.xml").write_text(xml.format("../secret.png"))
    with served(folder) as browser:
        assert browser.get("/api/pages")["pages"] == []
        (job,) = browser.get("/api/jobs")["jobs"]
        assert all("outside the project" in problem["reason"] for problem in job["problems"])
        assert len(job["problems"]) == 2


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:127.0.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
    ],
)
def test_addresses_that_are_not_public_are_known(address: str) -> None:
    with pytest.raises(NotPublicError, match="not a public address"):
        check_public(address, "name")


def test_public_addresses_are_known() -> None:
    check_public("93.184.216.34", "name")
    check_public("2606:2800:220:1::1", "name")


def test_iiif_is_not_fetched_from_this_computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spikehtr.pages.iiif.limiter.RateLimiter.wait", lambda *_: None)
    client = PublicClient(ClientOptions(tmp_path, attempts=1, first_wait=0.0))
    for address in (
        "http://127.0.0.1:9/m.json",
        "http://localhost:9/m.json",
        "http://[::1]:9/m.json",
        "http://2130706433/",
    ):
        with pytest.raises(FetchError):
            client.load(address)
    assert not list((tmp_path / "files").rglob("*")) if (tmp_path / "files").exists() else True


@pytest.fixture
def as_if_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 passes for a public address, 127.0.0.2 stays what it is."""
    check = iiif_import.check_public
    monkeypatch.setattr(
        "spikehtr.serve.iiif_import.check_public",
        lambda address, host: None if address == "127.0.0.1" else check(address, host),
    )


@contextlib.contextmanager
def secret_server() -> Iterator[tuple[int, list[str]]]:
    """A server of the inner network, and who has connected to it."""
    connected: list[str] = []
    with socket.create_server(("127.0.0.2", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, place = server.accept()
                    connected.append(place[0])
                    connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], connected
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.usefixtures("as_if_public")
def test_a_public_server_cannot_send_us_to_an_inner_one(tmp_path: Path) -> None:
    with iiif_server() as outer, secret_server() as (port, connected):
        inner = f"http://127.0.0.2:{port}/m.json"
        outer.faults["/m.json"] = [(302, {"Location": inner}, b"")]
        outer.documents["/book.json"] = {
            "@context": "http://iiif.io/api/presentation/3/context.json",
            "id": f"{outer.address}/book.json",
            "type": "Collection",
            "items": [{"id": inner, "type": "Manifest", "label": {"en": ["inner"]}}],
        }
        fast = {"requests_per_second": 1000.0, "attempts": 1, "first_wait": 0.0}
        client = PublicClient(ClientOptions(tmp_path, **fast))  # type: ignore[arg-type]
        with pytest.raises(FetchError, match="not a public address"):
            client.load(f"{outer.address}/m.json")
        failures: list[str] = []
        for reference in client.references(f"{outer.address}/book.json", failures):
            with pytest.raises(FetchError, match="not a public address"):
                client.load(reference.id)
        assert outer.paths() == ["/m.json", "/book.json"]
        assert connected == []


@pytest.mark.usefixtures("as_if_public")
def test_a_name_that_changes_its_address_is_connected_to_where_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iiif_server() as outer, secret_server() as (_, connected):
        outer.add_manifest("book", [Image.new("L", (60, 40))])
        asked: list[str] = []
        real = socket.getaddrinfo

        def rebound(host: str, port: int, *args: object, **options: object) -> object:
            if host == "rebound.example":
                asked.append(host)
                host = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
            return real(host, port, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", rebound)
        PublicClient(ClientOptions(tmp_path, attempts=1)).load(
            f"http://rebound.example:{outer.port}/book/manifest.json"
        )
        assert asked == ["rebound.example"]
        assert connected == []


def test_the_server_s_own_import_refuses_inner_addresses(browser: Browser) -> None:
    with secret_server() as (port, connected):
        body = {"kind": "import", "url": f"http://127.0.0.2:{port}/m.json"}
        job = browser.wait_for_job(browser.send("/api/jobs", body, 202)["job"]["id"])
        assert job["state"] == "failed"
        assert "not a public address" in job["error"]["message"]
        assert connected == []
    for wrong in ("file:///etc/passwd", "ftp://x/y", "gopher://127.0.0.1", "/etc/passwd", ""):
        browser.send("/api/jobs", {"kind": "import", "url": wrong}, 422)


def test_links_that_lead_out_of_the_folder_are_passed_over(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "project"
    draw_page(outside / "secret.png")
    draw_page(folder / "page.png")
    (folder / "link.png").symlink_to(outside / "secret.png")
    (folder / "linked").symlink_to(outside, target_is_directory=True)
    with served(folder) as browser:
        assert [page["name"] for page in browser.get("/api/pages")["pages"]] == ["page"]
        # No file is put through a link to a folder, and nothing is read through one that came later.
        image = (folder / "page.png").read_bytes()
        answer = browser.client.post(
            "/api/uploads", files=[("files", ("linked/new.png", image))], headers=browser.headers
        )
        job = browser.wait_for_job(answer.json()["job"]["id"])
        assert "out of the project" in job["problems"][0]["reason"]
        assert sorted(file.name for file in outside.iterdir()) == ["secret.png"]
    (folder / "page.png").unlink()
    (folder / "page.png").symlink_to(outside / "secret.png")
    with served(folder) as browser:
        for what in ("image", "thumbnail"):
            assert browser.client.get(f"/api/pages/1/{what}").status_code == 403
        line = browser.line(1)["id"]
        assert browser.client.get(f"/api/pages/1/lines/{line}/image").status_code == 403
        (folder / "page.xml").unlink()
        (outside / "page.xml").write_text("<secret/>")
        (folder / "page.xml").symlink_to(outside / "page.xml")
        browser.edit(1, {"op": "confirm", "line": line, "version": browser.line(1)["version"]})
        browser.client.app.state.bench.files.flush()  # type: ignore[attr-defined]
        assert (outside / "page.xml").read_text() == "<secret/>"


def test_a_name_that_means_this_computer_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = [(2, 1, 6, "", ("10.0.0.1", 80))]
    monkeypatch.setattr("spikehtr.serve.iiif_import.socket.getaddrinfo", lambda *a, **k: place)
    with pytest.raises(NotPublicError):
        PublicClient(ClientOptions(tmp_path, attempts=1)).load("http://innocent.example/manifest.json")
