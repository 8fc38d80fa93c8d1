"""The endpoints of pages: lists, single pages, edits, undo and redo, history, images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from spikehtr.serve.draft import ConflictError
from spikehtr.serve.endpoints import Body, author_of, endpoint, flag, number, path_id
from spikehtr.serve.http_errors import RequestError, invalid, not_found
from spikehtr.serve.views import change_view, conflict_view, page_view, sent_to_all, state_name, summary_view
from spikehtr.serve.workbench import Workbench

_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
_ORDERS = {"order": "position, id", "name": "name, id", "error": "expected IS NULL, expected DESC, position"}
_MOST_PAGES = 2000


class PageEndpoints:
    def __init__(self, bench: Workbench) -> None:
        self.bench, self.project = bench, bench.project

    def routes(self) -> list[Route]:
        one, line = "/api/pages/{page:int}", "/api/pages/{page:int}/lines/{line}"
        return [
            Route("/api/pages", endpoint(self.list), methods=["GET"]),
            Route("/api/pages", endpoint(self.remove), methods=["PATCH"]),
            Route("/api/pages/order", endpoint(self.order), methods=["PUT"]),
            Route(one, endpoint(self.get), methods=["GET"]),
            Route(one, endpoint(self.patch), methods=["PATCH"]),
            Route(f"{one}/edits", endpoint(self.edit), methods=["POST"]),
            Route(f"{one}/undo", endpoint(self.undo), methods=["POST"]),
            Route(f"{one}/redo", endpoint(self.redo), methods=["POST"]),
            Route(f"{one}/reload", endpoint(self.get), methods=["POST"]),
            Route(f"{one}/history", endpoint(self.history), methods=["GET"]),
            Route(f"{one}/image", endpoint(self.image), methods=["GET"]),
            Route(f"{one}/thumbnail", endpoint(self.thumbnail), methods=["GET"]),
            Route(f"{line}/history", endpoint(self.line_history), methods=["GET"]),
            Route(f"{line}/image", endpoint(self.line_image), methods=["GET"]),
            Route(f"{line}/alternatives", endpoint(self.alternatives), methods=["GET"]),
        ]

    def list(self, request: Request, body: Body) -> Any:
        query = request.query_params
        order = _ORDERS.get(query.get("sort", "order"), _ORDERS["order"])
        rows = self.project.log.rows(f"SELECT * FROM pages ORDER BY {order}")
        counts = dict.fromkeys(("new", "found", "read", "started", "corrected", "removed"), 0)
        for row in rows:
            counts["removed" if row["removed"] else state_name(row)] += 1
        removed = flag(request, "removed")
        rows = [row for row in rows if bool(row["removed"]) == removed]
        wanted, words = query.get("state", ""), query.get("q", "").casefold()
        rows = [
            row
            for row in rows
            if (not wanted or state_name(row) in wanted.split(",")) and words in row["name"].casefold()
        ]
        first = number(request, "offset", 0)
        shown = rows[first : first + number(request, "limit", 200, 1, _MOST_PAGES)]
        pages = [summary_view(row) for row in shown]
        about = {"pages": pages, "total": len(rows), "counts": counts, "seq": self.project.log.last}
        return about | self.project.history.steps()

    def order(self, request: Request, body: Body) -> Any:
        pages, author = _page_ids(body), author_of(request)
        seq, patch = self.project.history.order(pages, author)
        return self.bench.project_changed(seq, patch, "order_pages", author)

    def remove(self, request: Request, body: Body) -> Any:
        """Take several pages out of the project, or put them back, in one step."""
        return self._set_removed(request, _page_ids(body), body)

    def _set_removed(self, request: Request, pages: Iterable[int], body: Body) -> Any:
        removed, author = body.get("removed"), author_of(request)
        if not isinstance(removed, bool):
            raise invalid("removed", "must be true or false")
        for page in pages:
            self.project.row(page)
        seq, patch = self.project.history.remove(pages, removed, author)
        return self.bench.project_changed(seq, patch, "remove_pages" if removed else "put_back", author)

    def get(self, request: Request, body: Body) -> Any:
        page = path_id(request)
        self.bench.look(page)
        return page_view(self.project, page)

    def patch(self, request: Request, body: Body) -> Any:
        page = path_id(request)
        self.project.row(page)
        if "problem" in body:
            if body["problem"] is not None:
                raise invalid("problem", "must be null: it was seen")
            self.project.set_page(page, problem=None)
            self.project.broadcast.tell("page", summary_view(self.project.row(page)))
        else:
            self._set_removed(request, [page], body)
        return summary_view(self.project.row(page))

    def edit(self, request: Request, body: Body) -> Any:
        page, author = path_id(request), author_of(request)
        try:
            change = self.bench.edit(page, body.get("ops"), author)
        except ConflictError as error:
            raise self._conflict(page, error) from None
        return change

    def _conflict(self, page: int, error: ConflictError) -> RequestError:
        conflicts = [conflict_view(self.project, page, conflict) for conflict in error.conflicts]
        row = self.project.row(page)
        fault = f"{row['name']} was changed by somebody else meanwhile"
        return RequestError(
            409, "conflict", fault, "compare both, then save again", conflicts=conflicts, page_seq=row["seq"]
        )

    def undo(self, request: Request, body: Body) -> Any:
        return self._turn(request, body, "undo")

    def redo(self, request: Request, body: Body) -> Any:
        return self._turn(request, body, "redo")

    def _turn(self, request: Request, body: Body, kind: str) -> Any:
        page, author = path_id(request), author_of(request)
        seq, patch = self.project.turn(page, kind, body.get("expect"), author)
        change = change_view(self.project, page, seq, patch, kind, author)
        self.bench.changed(page, change)
        return change

    def history(self, request: Request, body: Body) -> Any:
        page = path_id(request)
        self.project.row(page)
        before = number(request, "before", 0) or None
        return {"events": self.project.log.events(page, before, number(request, "limit", 50, 1, 1000))}

    def line_history(self, request: Request, body: Body) -> Any:
        page = path_id(request)
        self.project.row(page)
        return {"versions": self.project.log.texts_of_line(page, request.path_params["line"])}

    def image(self, request: Request, body: Body) -> Response:
        file, media = self.bench.pictures.level(path_id(request), number(request, "level", 0, 0, 100))
        return self._picture(file, media)

    def thumbnail(self, request: Request, body: Body) -> Response:
        file, media = self.bench.pictures.thumbnail(path_id(request))
        return self._picture(file, media)

    def _picture(self, file: Path, media: str) -> Response:
        return FileResponse(file, media_type=media, headers=_FOR_EVER, background=BackgroundTask(self.bench.shown.set))

    def line_image(self, request: Request, body: Body) -> Response:
        height = number(request, "height", 96, 16, 400)
        data = self.bench.pictures.line(path_id(request), request.path_params["line"], height)
        return Response(data, media_type="image/jpeg", headers=_FOR_EVER)

    def alternatives(self, request: Request, body: Body) -> Any:
        page, line = path_id(request), request.path_params["line"]
        found = self.bench.alternatives(page, line)
        if found is None:
            raise not_found(f"reading of line {line}")
        return found


def _page_ids(body: Body) -> list[int]:
    pages = body.get("pages")
    if not isinstance(pages, list) or not all(type(page) is int and 0 < page < 1 << 62 for page in pages):
        raise invalid("pages", "must be a list of page ids")
    return pages


__all__ = ["PageEndpoints", "sent_to_all"]
