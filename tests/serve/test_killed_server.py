"""The server itself is killed while a script edits over HTTP: what it acknowledged is there after the next start."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from editing_help import in_file, random_op, same
from serve_help import opened, page_with_lines, small_model
from server_process import Server

from spikehtr.serve.documents import PageState
from spikehtr.serve.page_files import PageFiles

KINDS = ("set_text",) * 8 + ("confirm", "split", "join", "delete", "reshape", "place", "add_line", "undo", "redo")


class Script:
    """Somebody who edits one page without a pause, and remembers what was acknowledged."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.enough = threading.Event()
        self.until = 0
        self.acknowledged = 0
        self.last = 0
        self.texts: list[tuple[int, str, str]] = []  # event, line, text

    def edit_until_killed(self, server: Server) -> None:
        """Sends edits until the connection ends."""
        host = server.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)

        def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        headers: dict[str, str] = {}
        try:
            headers = {"X-CSRF": ask("GET", "/api/session")[1]["csrf"], "Content-Type": "application/json"}
            while True:
                self._step(ask)
        except (OSError, http.client.HTTPException):
            connection.close()

    def _step(self, ask: Any) -> None:
        page = ask("GET", "/api/pages/1")[1]
        kind = self.rng.choice(KINDS)
        if kind in ("undo", "redo"):
            if page[kind] is None:
                return
            status, answer = ask("POST", f"/api/pages/1/{kind}", {"expect": page[kind]["seq"]})
        else:
            op = random_op(kind, state_of(page), self.rng)
            if op is None:
                return
            if kind == "set_text":
                op["text"] = f"{self.rng.random():.12f}"
            status, answer = ask("POST", "/api/pages/1/edits", {"ops": [op]})
        assert status in (200, 409, 422), answer
        if status == 200:
            self.acknowledged += 1
            if self.acknowledged >= self.until:
                self.enough.set()
            self.last = max(self.last, answer["seq"])
            if kind == "set_text":
                self.texts.append((answer["seq"], str(op["line"]), str(op["text"])))


def state_of(page: dict[str, Any]) -> PageState:
    """As much of a page's state as `random_op` looks at."""
    state = PageState()
    state.order = [region["id"] for region in page["regions"]]
    state.regions = {region["id"]: region for region in page["regions"]}
    for line in page["lines"]:
        state.lines[line["id"]] = line
        state.versions["lines", line["id"]] = line["version"]
    return state


def kill_while_edited(folder: Path, edits: int, most: int) -> tuple[int, int]:
    """Edit and kill, by up to `most` edits, until `edits` were acknowledged; how many that were, and the kills."""
    with opened(folder) as project:
        page_with_lines(project)
        project.history.change_settings({"reread": False})
    rng, kills = random.Random(1), 0
    script = Script(rng)

    def kill_soon(server: Server, seconds: float) -> None:
        script.enough.wait(120)
        time.sleep(seconds)  # while it goes on editing
        server.kill()

    while script.acknowledged < edits:
        server = Server(folder, small_model())
        script.until = script.acknowledged + rng.randrange(most // 3, most)
        script.enough.clear()
        killer = threading.Thread(target=kill_soon, args=(server, rng.uniform(0, 0.3)))
        killer.start()
        script.edit_until_killed(server)
        killer.join()
        kills += 1
    with opened(folder) as project:
        assert project.log.row("PRAGMA integrity_check")[0] == "ok"  # type: ignore[index]
        assert project.log.last >= script.last
        assert project.log.replayed(1) == project.log.state(1)
        known = {
            (one["seq"], name): one["text"]
            for name in {name for _, name, _ in script.texts}
            for one in project.log.texts_of_line(1, name, 10**6)
        }
        assert [known.get((seq, name)) for seq, name, _ in script.texts] == [text for *_, text in script.texts]
        files = PageFiles(project)
        files.start()
        files.stop()
        assert project.row(1)["written"] == project.row(1)["seq"]
        assert same(in_file(project, 1), project.log.state(1))
    return script.acknowledged, kills


@pytest.mark.slow
def test_no_edit_is_lost_to_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    acknowledged, kills = kill_while_edited(tmp_path, 300, 150)
    assert acknowledged >= 300
    assert kills >= 2
    print(f"{acknowledged} edits acknowledged, {kills} kills")
