"""The endpoints of the project as a whole: session, settings, jobs, models, events."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from spikehtr.pages.segmenters import NAMES
from spikehtr.serve import page_reading, scanning
from spikehtr.serve.endpoints import Body, author_of, endpoint, number, path_id
from spikehtr.serve.event_log import PROJECT
from spikehtr.serve.http_errors import RequestError, invalid
from spikehtr.serve.jobs import BackgroundJob
from spikehtr.serve.limits import Limits
from spikehtr.serve.security import COOKIE, Access
from spikehtr.serve.workbench import Workbench
from spikehtr.version import __version__

EXPORTS = ("page", "alto", "hocr", "tei", "text", "json", "parquet")
_WORDS = {"find": ("new",), "read": ("all", "unread")}


class ProjectEndpoints:
    def __init__(self, bench: Workbench, access: Access, limits: Limits) -> None:
        self.bench, self.project, self.access, self.limits = bench, bench.project, access, limits

    def routes(self) -> list[Route]:
        return [
            Route("/api/session", endpoint(self.session), methods=["GET"]),
            Route("/api/login", endpoint(self.log_in), methods=["POST"]),
            Route("/api/settings", endpoint(self.settings), methods=["GET"]),
            Route("/api/settings", endpoint(self.change_settings), methods=["PATCH"]),
            Route("/api/project", endpoint(self.project_steps), methods=["GET"]),
            Route("/api/project/undo", endpoint(self.undo), methods=["POST"]),
            Route("/api/project/redo", endpoint(self.redo), methods=["POST"]),
            Route("/api/project/history", endpoint(self.history), methods=["GET"]),
            Route("/api/events", self.events, methods=["GET"]),
            Route("/api/models", endpoint(self.models), methods=["GET"]),
            Route("/api/jobs", endpoint(self.jobs), methods=["GET"]),
            Route("/api/jobs", endpoint(self.add_job, 202), methods=["POST"]),
            Route("/api/jobs/{job:int}", endpoint(self.job), methods=["GET"]),
            Route("/api/jobs/{job:int}/cancel", endpoint(self.cancel), methods=["POST"]),
            Route("/api/jobs/{job:int}/resume", endpoint(self.resume, 202), methods=["POST"]),
            Route("/api/jobs/{job:int}/file", endpoint(self.job_file), methods=["GET"]),
            Route("/api/finetune", endpoint(self.finetune), methods=["GET"]),
        ]

    def session(self, request: Request, body: Body) -> Any:
        return {
            "version": __version__,
            "csrf": self.access.csrf,
            "token": self.access.token is not None,
            "project": {"id": self.project.id, "name": self.project.folder.name},
            "user": None,
            "model": self.bench.current_model,
            "formats": list(EXPORTS),
            "segmenters": ["builtin", "rules", *(["kraken"] if find_spec("kraken") else [])],
            "pdf": find_spec("pypdfium2") is not None,
            "iiif": True,
            "limits": self.limits.view(),
            "settings": self.bench.settings,
            "seq": self.project.log.last,
        }

    def log_in(self, request: Request, body: Body) -> Response:
        if not self.access.log_in(str(body.get("token", ""))):
            raise RequestError(401, "token", "that is not the token", "copy the address that the command printed")
        return with_cookie(Response(status_code=204), self.access)

    def settings(self, request: Request, body: Body) -> Any:
        return self.bench.settings

    def change_settings(self, request: Request, body: Body) -> Any:
        if "model" in body and isinstance(body["model"], str):
            self.bench.models.file(body["model"])
        author = author_of(request)
        seq, patch = self.project.history.change_settings(body, author)
        self.bench.project_changed(seq, patch, "settings", author)
        return self.bench.settings

    def project_steps(self, request: Request, body: Body) -> Any:
        return {"seq": self.project.log.last, **self.project.history.steps()}

    def undo(self, request: Request, body: Body) -> Any:
        return self._turn(request, body, "undo")

    def redo(self, request: Request, body: Body) -> Any:
        return self._turn(request, body, "redo")

    def _turn(self, request: Request, body: Body, kind: str) -> Any:
        author = author_of(request)
        seq, patch = self.project.history.turn(kind, body.get("expect"), author)
        return self.bench.project_changed(seq, patch, kind, author)

    def history(self, request: Request, body: Body) -> Any:
        before = number(request, "before", 0) or None
        return {"events": self.project.log.events(PROJECT, before, number(request, "limit", 50, 1, 1000))}

    async def events(self, request: Request) -> Response:
        if self.bench.stopping:
            raise RequestError(503, "stopping", "the server is stopping", "start it again")
        stream = self.project.broadcast.stream({"seq": self.project.log.last, "project": self.project.id})
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    def models(self, request: Request, body: Body) -> Any:
        return {"models": self.bench.models.list(self.bench.current_model)}

    def jobs(self, request: Request, body: Body) -> Any:
        return {"jobs": self.bench.jobs.list()}

    def job(self, request: Request, body: Body) -> Any:
        return {"job": self.bench.jobs.get(path_id(request, "job"))}

    def cancel(self, request: Request, body: Body) -> Any:
        return {"job": self.bench.jobs.cancel(path_id(request, "job"))}

    def add_job(self, request: Request, body: Body) -> Any:
        kind = body.get("kind")
        makers = {
            "find": self._find,
            "read": self._read,
            "scan": self._scan,
            "import": self._import,
            "finetune": self._finetune,
            "backup": self._backup,
        }
        if kind not in makers:
            raise invalid("kind", f"must be one of {', '.join(makers)}")
        return {"job": makers[kind](body).view()}

    def _pages(self, body: Body, kind: str) -> list[int] | str:
        pages = body.get("pages", _WORDS[kind][-1])
        if pages in _WORDS[kind]:
            return str(pages)
        if isinstance(pages, list) and all(type(page) is int and 0 < page < 1 << 62 for page in pages):
            return pages
        raise invalid("pages", f"must be a list of page ids, or one of {', '.join(_WORDS[kind])}")

    def _find(self, body: Body) -> BackgroundJob:
        pages, replace = self._pages(body, "find"), body.get("replace", False) is True
        if replace and isinstance(pages, str):
            raise invalid("replace", "needs the pages by their ids", "name them")
        name = body.get("segmenter")
        if name not in (None, "builtin", *NAMES):
            raise invalid("segmenter", f"must be builtin, {', '.join(NAMES)}")
        options = {"pages": pages, "segmenter": name, "replace": replace}
        return self.bench.jobs.add("find", options, lambda job: page_reading.find_job(self.bench, job))

    def _read(self, body: Body) -> BackgroundJob:
        lines = body.get("lines")
        if lines is not None and not (
            isinstance(lines, dict) and all(isinstance(names, list) for names in lines.values())
        ):
            raise invalid("lines", "must be lists of line ids by page")
        options = {
            "pages": self._pages(body, "read"),
            "lines": lines,
            "find": body.get("find", True) is not False,
            "again": body.get("again", False) is True,
        }
        return self.bench.jobs.add("read", options, lambda job: page_reading.read_job(self.bench, job))

    def _scan(self, body: Body) -> BackgroundJob:
        return self.bench.jobs.add("scan", {}, lambda job: scanning.scan_job(self.bench, job))

    def _import(self, body: Body) -> BackgroundJob:
        from spikehtr.serve.iiif_import import import_job

        url = body.get("url")
        if not isinstance(url, str) or not url.startswith(("https://", "http://")) or len(url) > 4096:
            raise invalid("url", "must be the address of a IIIF manifest, https://...")
        return self.bench.jobs.add("import", {"url": url}, lambda job: import_job(self.bench, job, self.limits))

    def _finetune(self, body: Body) -> BackgroundJob:
        from spikehtr.serve.tuning import add_job

        return add_job(self.bench, body)

    def _backup(self, body: Body) -> BackgroundJob:
        from spikehtr.serve.backup import backup_job

        return self.bench.jobs.add("backup", {}, lambda job: backup_job(self.bench, job))

    def resume(self, request: Request, body: Body) -> Any:
        from spikehtr.serve.tuning import resume_job

        return {"job": resume_job(self.bench, path_id(request, "job")).view()}

    def job_file(self, request: Request, body: Body) -> Response:
        from spikehtr.serve.backup import file_of_job

        return file_of_job(self.bench, path_id(request, "job"))

    def finetune(self, request: Request, body: Body) -> Any:
        from spikehtr.serve.tuning import overview

        return overview(self.bench)


def with_cookie(response: Response, access: Access) -> Response:
    response.set_cookie(COOKIE, access.cookie, httponly=True, samesite="strict", path="/", max_age=30 * 86400)
    return response
