"""The endpoints by which files come in and go out: uploads and exports."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from spikehtr.errors import SpikeHTRError
from spikehtr.serve import exporting, scanning, uploads
from spikehtr.serve.endpoints import Body, endpoint, flag
from spikehtr.serve.http_errors import bad_request, invalid
from spikehtr.serve.jobs import BackgroundJob
from spikehtr.serve.limits import Limits
from spikehtr.serve.workbench import Workbench


class FileEndpoints:
    def __init__(self, bench: Workbench, limits: Limits) -> None:
        self.bench, self.project, self.limits = bench, bench.project, limits

    def routes(self) -> list[Route]:
        return [
            Route("/api/uploads", self.upload, methods=["POST"]),
            Route("/api/export", endpoint(self.export), methods=["GET"]),
        ]

    async def upload(self, request: Request) -> Response:
        """Take in files: what cannot be used is told in the job, and the others go on."""
        files, folder = await uploads.read_upload(request, self.limits)
        if not files:
            raise bad_request("no file in the field `files`", "choose files first")
        kept, problems = await run_in_threadpool(self._keep_all, files, folder)
        options = {"files": len(files) - len(problems)}
        job = await run_in_threadpool(self.bench.jobs.add, "import", options, self._import(kept, problems))
        return JSONResponse({"job": job.view()}, 202)

    def _import(self, kept: set[Path], problems: list[tuple[str, str]]) -> Callable[[BackgroundJob], None]:
        def work(job: BackgroundJob) -> None:
            for title, reason in problems:
                job.problem(title, reason)
            self.bench.read_new(scanning.scan(self.bench, job, kept))

        return work

    def _keep_all(self, files: list[UploadFile], folder: str) -> tuple[set[Path], list[tuple[str, str]]]:
        """The files that are new, and what is wrong with which."""
        kept, problems = set(), []
        for file in files:
            name = uploads.safe_name(f"{folder}/{file.filename or 'page'}")
            try:
                if (path := uploads.keep(self.project, file.file, name, self.limits)) is not None:
                    kept.add(path)
            except SpikeHTRError as error:
                problems.append((name.as_posix(), str(error)))
            finally:
                file.file.close()
        return kept, problems

    def export(self, request: Request, body: Body) -> Any:
        query = request.query_params
        form = exporting.check_format(query.get("format", "page"))
        pages = self._pages(query.get("pages", "all"))
        name, temporary = self.project.folder.name or "project", self.project.private / f"export-{secrets.token_hex(8)}"
        if form == "parquet":
            rows = exporting.lines_of(self.bench, pages, corrected=flag(request, "corrected", True))
            return self._made(temporary, f"{name}.parquet", lambda: exporting.write_parquet(rows, temporary))
        images = flag(request, "images")
        if len(pages) == 1 and not images:
            file = f"{Path(self.project.row(pages[0])['name']).name}{exporting.SUFFIXES[form]}"
            data = exporting.exported(self.bench, pages[0], form)
            return Response(data, media_type=exporting.MEDIA[form], headers=_attached(file))
        return self._made(
            temporary, f"{name}-{form}.zip", lambda: exporting.archive(self.bench, pages, form, images, temporary)
        )

    def _pages(self, text: str) -> list[int]:
        if text == "all":
            return self.project.page_ids("all")
        numbers = text.split(",")
        if not all(number.isdecimal() and number.isascii() and len(number) < 19 for number in numbers):
            raise invalid("pages", "must be `all`, or page ids with commas")
        for number in numbers:
            self.project.row(int(number))
        return self.project.page_ids([int(number) for number in numbers])

    def _made(self, temporary: Path, name: str, make: Callable[[], object]) -> Response:
        """A file that is made, sent and deleted."""
        try:
            make()
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        done = BackgroundTask(temporary.unlink, missing_ok=True)
        return FileResponse(temporary, media_type="application/octet-stream", headers=_attached(name), background=done)


def _attached(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
