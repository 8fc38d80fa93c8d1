"""The HTTP service for programs: one image in, its text out, many at a time; models, jobs, health, metrics."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from spikehtr.data.formats import xml
from spikehtr.data.geometry import FittedLine
from spikehtr.data.images import ImageError, open_gray, quietly
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLayout, FoundRegion
from spikehtr.pages.given import RegionPlace
from spikehtr.pages.page_lines import Mode, ReadBy, SegmentedPage, assemble, cut_lines, found_sheet
from spikehtr.pages.segmenters import segmenter
from spikehtr.results.line import Line
from spikehtr.results.page import Page
from spikehtr.serve.endpoints import Body, endpoint, path_id, read_body
from spikehtr.serve.forms import FormParser
from spikehtr.serve.http_errors import RequestError, bad_request, invalid
from spikehtr.serve.limits import Limits
from spikehtr.serve.metrics import Metrics
from spikehtr.serve.openapi import DESCRIPTION
from spikehtr.serve.page_parsing import parse_root
from spikehtr.serve.page_reading import sheet_of
from spikehtr.serve.uploads import IMAGE_FORMATS
from spikehtr.serve.workbench import Workbench

if TYPE_CHECKING:
    from spikehtr.recognizer import Recognizer

_MODES: dict[str, Mode] = {"auto": "auto", "line": "line", "page": "page"}
_UNTYPED = ("application/octet-stream", "application/x-www-form-urlencoded")  # the latter: of `curl --data-binary`
_GONE = 499
_DECODING = 2  # images opened at a time: each may take hundreds of megabytes
_WRITERS: dict[str, Callable[[Page], str]] = {
    "application/json": Page.to_json,
    "application/vnd.prima.page+xml": Page.to_page,
    "application/xml": Page.to_page,
    "text/xml": Page.to_page,
    "application/alto+xml": Page.to_alto,
    "text/plain": Page.to_text,
    "text/html": Page.to_hocr,
}


class OpenedImage(NamedTuple):
    """An image with its lines cut out, ready to be read."""

    model: Recognizer
    sheet: SegmentedPage
    regions: list[RegionPlace]
    fitted: list[FittedLine]


class Service:
    def __init__(self, bench: Workbench, limits: Limits) -> None:
        self.bench, self.limits, self.metrics = bench, limits, Metrics()
        self._opening = asyncio.Semaphore(_DECODING)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/transcribe", self.transcribe, methods=["POST"]),
            Route("/v1/models", endpoint(self.models), methods=["GET"]),
            Route("/v1/jobs", endpoint(self.jobs), methods=["GET"]),
            Route("/v1/jobs/{job:int}", endpoint(self.job), methods=["GET"]),
            Route("/healthz", endpoint(self.health), methods=["GET"]),
            Route("/metrics", endpoint(self.measured), methods=["GET"]),
            Route("/openapi.json", endpoint(self.description), methods=["GET"]),
        ]

    async def transcribe(self, request: Request) -> Response:
        media = _accepted(request.headers.get("accept") or "*/*")
        if self.bench.stopping:
            raise RequestError(503, "stopping", "the server is stopping", "try again in a while")
        if self.metrics.running >= self.limits.requests:
            self.metrics.refused += 1
            raise self.bench.pool.too_many()
        self.metrics.running += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                opened, lines = await self._read(request)
            text = await run_in_threadpool(_written, opened, lines, _WRITERS[media])
        except TimeoutError:
            remedy = "send a smaller image, or try when there is less to do"
            raise RequestError(504, "timeout", f"not done within {self.limits.seconds:g} s", remedy) from None
        except ClientDisconnect:
            return Response(status_code=_GONE)  # which nobody hears; it is counted
        except RequestError as error:
            self.metrics.refused += error.status == 429
            raise
        finally:
            self.metrics.running -= 1
        headers = {"Content-Disposition": 'attachment; filename="page.html"'} if media == "text/html" else None
        return Response(text, media_type=media, headers=headers)

    async def _read(self, request: Request) -> tuple[OpenedImage, list[Line]]:
        image, given = await self._body(request)
        name = request.query_params.get("model") or None
        mode = _MODES.get(request.query_params.get("as", "auto"))
        if mode is None:
            raise invalid("as", "must be auto, line or page")
        async with self._opening:
            opened = await run_in_threadpool(self._open, image, given, mode, name)
        ticket = self.bench.pool.submit(opened.model, opened.fitted)
        reading = asyncio.wrap_future(ticket.done)
        gone = asyncio.ensure_future(_disconnected(request))
        both: set[asyncio.Future[Any]] = {reading, gone}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise ClientDisconnect
            return opened, reading.result()
        finally:
            gone.cancel()
            if not reading.done():
                self.bench.pool.cancel(ticket)

    async def _body(self, request: Request) -> tuple[bytes, bytes | None]:
        """The image, and the PAGE or ALTO file that gives its lines."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        data = await read_body(request, self.limits.image_bytes)
        if kind == "multipart/form-data":
            return await self._parts(request, data)
        if kind and not kind.startswith("image/") and kind not in _UNTYPED:
            remedy = "send an image, or multipart/form-data with `image` and `page`"
            raise RequestError(415, "unsupported", f"{kind[:100]} cannot be read", remedy)
        if not data:
            raise bad_request("the body is empty", "send an image")
        return data, None

    async def _parts(self, request: Request, data: bytes) -> tuple[bytes, bytes | None]:
        async def whole() -> AsyncGenerator[bytes, None]:
            yield data

        form = await FormParser(request.headers, whole(), max_files=2, max_fields=4).parse()
        try:
            image, page = form.get("image"), form.get("page")
            if not isinstance(image, UploadFile):
                raise bad_request("no file in the field `image`")
            given = await page.read() if isinstance(page, UploadFile) else page.encode() if page else None
            return await image.read(), given
        finally:
            await form.close()

    def _open(self, data: bytes, given: bytes | None, mode: Mode, name: str | None) -> OpenedImage:
        model = self.bench.model_named(name)
        self._check(data)
        try:
            gray = open_gray(data)
        except ImageError as error:
            raise RequestError(415, "unsupported", f"the image cannot be read: {error}", "send a sound image") from None
        sheet = _given_sheet(gray, given) if given is not None else found_sheet("image", gray, self._find_lines, mode)
        regions, fitted = cut_lines(model.fitting, sheet)
        return OpenedImage(model, sheet._replace(gray=None), regions, fitted)

    def _find_lines(self, gray: Image.Image) -> list[FoundRegion] | FoundLayout:
        return segmenter("builtin", self.bench.models.device)(gray)

    def _check(self, data: bytes) -> None:
        """The size that an image claims, before anything is decoded."""
        try:
            with quietly(), Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                pixels = image.width * image.height
        except Image.DecompressionBombError:
            pixels = self.limits.pixels + 1
        except Exception:  # Pillow's readers raise what they like
            fault = "neither an image that can be read nor announced as one"
            raise RequestError(415, "unsupported", fault, "send a JPEG, PNG, TIFF, WebP or the like") from None
        if pixels > self.limits.pixels:
            fault = f"the image claims more than {self.limits.pixels:,} pixels"
            raise RequestError(413, "too_large", fault, "scale it down")

    def models(self, request: Request, body: Body) -> Any:
        return {"models": self.bench.models.list(self.bench.current_model)}

    def jobs(self, request: Request, body: Body) -> Any:
        return {"jobs": self.bench.jobs.list()}

    def job(self, request: Request, body: Body) -> Any:
        return {"job": self.bench.jobs.get(path_id(request, "job"))}

    def health(self, request: Request, body: Body) -> Response:
        if self.bench.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        self.bench.project.log.row("SELECT 1")
        return JSONResponse({"status": "ok"})

    def measured(self, request: Request, body: Body) -> Response:
        return PlainTextResponse(self.metrics.text(self.bench), media_type="text/plain; version=0.0.4")

    def description(self, request: Request, body: Body) -> Any:
        return DESCRIPTION


def _written(opened: OpenedImage, lines: list[Line], write: Callable[[Page], str]) -> str:
    return write(assemble(opened.sheet, opened.regions, lines, ReadBy.reader(opened.model)))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _given_sheet(gray: Image.Image, given: bytes) -> SegmentedPage:
    """The lines of a PAGE or ALTO file on an image; the names of files in it are not looked at."""
    with tempfile.TemporaryDirectory() as folder:
        file, image = Path(folder) / "page.xml", Path(folder) / "image.png"
        file.write_bytes(given)
        Image.new("1", gray.size).save(image)  # of which only the size is asked for
        report = ImportReport()
        root = xml.load(file, report)
        if root is None:
            raise invalid("page", report.problems[0].message, report.problems[0].remedy)
        try:
            parsed = parse_root(root, Path("page"), image, report)
        except SpikeHTRError as error:
            raise invalid("page", str(error)) from None
    sheet = sheet_of("image", gray, parsed.state, parsed.state.lines)
    sheet.problems.extend(parsed.problems)
    return sheet


def _accepted(header: str) -> str:
    """The first media type that is both asked for and there."""
    wanted: list[tuple[float, int, str]] = []
    for number, part in enumerate(header.split(",")):
        name, _, rest = part.strip().partition(";")
        quality = next((p.strip()[2:] for p in rest.split(";") if p.strip().startswith("q=")), "1")
        try:
            wanted.append((-float(quality), number, name.strip().lower()))
        except ValueError:
            continue
    for negative, _, name in sorted(wanted):
        if negative == 0:
            continue
        if name in ("*/*", "application/*"):
            return "application/json"
        if name in _WRITERS:
            return name
        if name == "text/*":
            return "text/plain"
    remedy = f"ask for one of {', '.join(_WRITERS)}"
    raise RequestError(406, "not_acceptable", f"none of {header[:200]!r} can be written", remedy)
