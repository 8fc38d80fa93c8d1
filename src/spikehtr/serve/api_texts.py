"""The endpoints that look through the texts of all pages: search, replace, and the lines that are least sure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from spikehtr.serve.documents import PageState
from spikehtr.serve.draft import plain
from spikehtr.serve.endpoints import Body, author_of, endpoint, flag, number
from spikehtr.serve.event_steps import Author
from spikehtr.serve.http_errors import invalid
from spikehtr.serve.safe_regex import Finder
from spikehtr.serve.views import change_view, line_view
from spikehtr.serve.workbench import Workbench

_LONGEST = 500  # characters of a replacement
_MOST = 10_000  # lines replaced at once


class TextEndpoints:
    def __init__(self, bench: Workbench) -> None:
        self.bench, self.project = bench, bench.project

    def routes(self) -> list[Route]:
        return [
            Route("/api/search", endpoint(self.search), methods=["GET"]),
            Route("/api/replace", endpoint(self.replace), methods=["POST"]),
            Route("/api/queue", endpoint(self.queue), methods=["GET"]),
        ]

    def search(self, request: Request, body: Body) -> Any:
        query = request.query_params
        finder = Finder.of(query.get("q", ""), flag(request, "regex"), flag(request, "case"))
        first, limit = number(request, "offset", 0), number(request, "limit", 100, 1, 1000)
        hits = list(self._hits(finder))
        return {"hits": hits[first : first + limit], "total": len(hits)}

    def _hits(self, finder: Finder) -> Iterator[dict[str, Any]]:
        """Page by page, in reading order."""
        rows = self.project.log.rows(
            "SELECT e.page, p.name, e.id, e.version, e.text, e.by FROM entities e JOIN pages p ON p.id = e.page "
            "WHERE e.part = 'lines' AND e.text != '' AND NOT p.removed ORDER BY p.position, e.page"
        )
        spans = finder.spans([row["text"] for row in rows])
        found = [(row, where) for row, where in zip(rows, spans, strict=True) if where]
        for page, on_page in groupby(found, lambda entry: entry[0]["page"]):
            with self.project.log.lock:
                places = {name: place for place, (name, _) in enumerate(self.project.log.state(page).ordered())}
            for row, where in sorted(on_page, key=lambda entry: places.get(entry[0]["id"], 0)):
                about = {"page": page, "name": row["name"], "line": row["id"], "version": row["version"]}
                yield about | {"text": row["text"], "spans": where, "by": row["by"]}

    def replace(self, request: Request, body: Body) -> Any:
        """In the named lines; those that changed meanwhile are left alone and told."""
        finder = Finder.of(body.get("q"), body.get("regex") is True, body.get("case") is True)
        replacement, lines = body.get("replacement"), body.get("lines")
        if not isinstance(replacement, str) or len(replacement) > _LONGEST:
            raise invalid("replacement", f"must be a text of up to {_LONGEST} characters")
        if not isinstance(lines, list) or len(lines) > _MOST or not all(map(_is_named_line, lines)):
            raise invalid("lines", f"must be a list of up to {_MOST} of page, line and version")
        by_page: dict[int, list[dict[str, Any]]] = {}
        for line in lines:
            by_page.setdefault(line["page"], []).append(line)
        replaced, conflicts, seqs = 0, [], {}
        for page, named in by_page.items():
            count, refused, seq = self._replace_on(page, named, finder, replacement, author_of(request))
            replaced += count
            conflicts += refused
            if seq:
                seqs[str(page)] = seq
        return {"replaced": replaced, "conflicts": conflicts, "seqs": seqs}

    def _replace_on(
        self, page: int, named: list[dict[str, Any]], finder: Finder, replacement: str, author: Author
    ) -> tuple[int, list[dict[str, Any]], int]:
        """How many lines were changed, those that were not as seen, and the event's number."""
        conflicts: list[dict[str, Any]] = []
        with self.project.log.lock:
            self.project.row(page)
            before = self.project.log.state(page).copy()
        names = [line["line"] for line in named if _is_as_seen(before, line)]
        texts = [plain(text) for text in finder.replaced([before.lines[name]["text"] for name in names], replacement)]
        wanted = dict(zip(names, texts, strict=True))
        with self.project.log.transaction():
            here = self.project.log.state(page)
            after, count = here.copy(), 0
            for line in named:
                name = line["line"]
                if not _is_as_seen(here, line):
                    current = line_view(here, name) if name in here.lines else None
                    conflicts.append({"page": page, "line": name, "current": current})
                elif wanted[name] != here.lines[name]["text"]:
                    after.lines[name] = {**here.lines[name], "text": wanted[name], "by": "person"}
                    count += 1
            seq, patch = self.project.change(page, "replace", after, by_person=True, author=author)
        if patch:
            self.bench.changed(page, change_view(self.project, page, seq, patch, "replace", author))
        return count, conflicts, seq if patch else 0

    def queue(self, request: Request, body: Body) -> Any:
        """Lines that were read and not corrected, the least sure first."""
        page = number(request, "page", 0)
        of_page = "AND e.page = ?" if page else "AND ? = 0"
        where = (
            "FROM entities e JOIN pages p ON p.id = e.page "
            f"WHERE e.part = 'lines' AND e.by = 'machine' AND NOT p.removed {of_page}"
        )
        total = self.project.log.row(f"SELECT count(*) {where}", page)
        rows = self.project.log.rows(
            f"SELECT e.page, p.name, p.stamp, e.id, e.version, e.text, e.confidence {where} "
            "ORDER BY e.confidence, e.page, e.id LIMIT ? OFFSET ?",
            page,
            number(request, "limit", 50, 1, 1000),
            number(request, "offset", 0),
        )
        lines = [
            {
                "page": row["page"],
                "name": row["name"],
                "line": row["id"],
                "confidence": row["confidence"],
                "text": row["text"],
                "version": row["version"],
                "image_url": f"/api/pages/{row['page']}/lines/{row['id']}/image?v={row['stamp']}.{row['version']}",
            }
            for row in rows
        ]
        return {"lines": lines, "total": total[0] if total else 0}


def _is_named_line(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    page, version = line.get("page"), line.get("version")
    return type(page) is int and 0 < page < 1 << 62 and type(version) is int and isinstance(line.get("line"), str)


def _is_as_seen(state: PageState, line: dict[str, Any]) -> bool:
    return line["line"] in state.lines and state.version("lines", line["line"]) == line["version"]
