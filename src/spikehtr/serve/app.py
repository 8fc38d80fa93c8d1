"""The application: routes, errors as answers, the front end's files, start and graceful end."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path, PurePath

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from spikehtr.serve.api_files import FileEndpoints
from spikehtr.serve.api_pages import PageEndpoints
from spikehtr.serve.api_project import ProjectEndpoints, with_cookie
from spikehtr.serve.api_texts import TextEndpoints
from spikehtr.serve.http_errors import RequestError, as_request_error
from spikehtr.serve.limits import Limits
from spikehtr.serve.security import Access, Guard
from spikehtr.serve.transcribe_service import Service
from spikehtr.serve.workbench import Workbench

STATIC = Path(__file__).parent / "static"
_log = logging.getLogger("spikehtr.serve")
_DIGITS = 16  # of the version of the front end's files
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported"}


def make_app(bench: Workbench, access: Access | None = None, limits: Limits | None = None) -> Starlette:
    """The ASGI application of an open project. Its lifespan starts and stops the workbench's threads."""
    access, limits = access or Access(), limits or Limits()

    async def index(request: Request) -> Response:
        given = request.query_params.get("token")
        if access.token is not None and given is not None:
            if not access.log_in(given):
                raise RequestError(401, "token", "that is not the token", "copy the address that the command printed")
            return with_cookie(RedirectResponse(request.url.path, 303), access)
        if not (STATIC / "index.html").is_file():
            raise RequestError(404, "not_found", "the front end is not installed", "install spikehtr[web] again")
        page = await run_in_threadpool(front_page, STATIC)
        return HTMLResponse(page, headers={"Cache-Control": "no-cache"})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(bench.start)
        try:
            yield
        finally:
            await run_in_threadpool(bench.stop)

    routes = [
        Route("/", index, methods=["GET"]),
        Route("/p/{rest:path}", index, methods=["GET"]),
        *PageEndpoints(bench).routes(),
        *ProjectEndpoints(bench, access, limits).routes(),
        Mount("/static", _Static(directory=STATIC, check_dir=False)),
    ]
    routes += [*TextEndpoints(bench).routes(), *FileEndpoints(bench, limits).routes()]
    service = Service(bench, limits)
    routes += service.routes()
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(service.metrics.around), Middleware(Guard, access=access)],
        exception_handlers={RequestError: _answer, HTTPException: _answer, Exception: _answer},
    )
    app.state.bench, app.state.access, app.state.service = bench, access, service
    return app


def front_page(static: Path) -> str:
    """The page that loads the front end: under addresses that change with its files, so that a browser may keep what it
    has; and with all modules named, so that it need not read one to learn of the next.
    """
    modules = sorted(f"/static/{path.relative_to(static).as_posix()}" for path in static.rglob("*.js"))
    links = "".join(f'<link rel="modulepreload" href="{module}">\n' for module in modules)
    page = (static / "index.html").read_text(encoding="utf-8").replace("<script ", links + "<script ", 1)
    return page.replace("/static/", f"/static/{_version(static)}/")


def _version(static: Path) -> str:
    """Digits that are others when a file of the front end is."""
    files = sorted(path for path in static.rglob("*") if path.is_file())
    return _digest(static, tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files))


@lru_cache(maxsize=2)
def _digest(static: Path, stamps: tuple[tuple[Path, int, int], ...]) -> str:
    """Of names and contents. Read again only where a stamp is another."""
    digest = hashlib.sha256()
    for path, _, _ in stamps:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(static).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:_DIGITS]


class _Static(StaticFiles):
    """The front end's files: for good under the address of their version, else looked at anew each time."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        version, *rest = PurePath(path).parts or [path]
        is_named = bool(rest) and re.fullmatch(f"[0-9a-f]{{{_DIGITS}}}", version) is not None
        response = await super().get_response(str(PurePath(*rest)) if is_named else path, scope)
        if response.status_code in (200, 304):
            is_ours = is_named and version == await run_in_threadpool(_version, STATIC)
            keep = "public, max-age=31536000, immutable" if is_ours else "no-cache"
            response.headers["Cache-Control"] = keep
        return response


async def _answer(request: Request, error: Exception) -> Response:
    known = as_request_error(error)
    if known is None and isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "bad_request")
        known = RequestError(
            error.status_code, code, str(error.detail), "see /openapi.json", headers=dict(error.headers or {})
        )
    if known is None:
        _log.error("%s %s", request.method, request.url.path, exc_info=error)
        known = RequestError(500, "internal", "a fault of the server", "see its log; nothing acknowledged is lost")
    return JSONResponse(known.body(), known.status, known.headers)
