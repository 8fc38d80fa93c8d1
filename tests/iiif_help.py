"""A small IIIF server on loopback: manifests, collections and an image service, which can be told to misbehave."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

IMAGE = re.compile(r"/image/(?P<name>[^/]+)/full/(?P<size>[^/]+)/0/default\.jpg$")


@dataclass
class Asked:
    path: str
    agent: str
    time: float


@dataclass
class IIIFServer:
    """`faults`: by path, answers that come first: a status, headers, a body."""

    port: int = 0
    images: dict[str, Image.Image] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)  # by path; bytes are sent as they are
    faults: dict[str, list[tuple[int, dict[str, str], bytes]]] = field(default_factory=dict)
    sizes: tuple[str, ...] = ("max", "full")  # that the image service gives
    asked: list[Asked] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    def add_manifest(self, name: str, pages: list[Image.Image], version: int = 3, scale: float = 1.0) -> str:
        """A manifest of these pages, on canvases `scale` times as large; its address."""
        for number, page in enumerate(pages, start=1):
            self.images[f"{name}-{number}"] = page
        build = self._manifest_3 if version == 3 else self._manifest_2
        self.documents[f"/{name}/manifest.json"] = build(name, pages, scale)
        return f"{self.address}/{name}/manifest.json"

    def _manifest_3(self, name: str, pages: list[Image.Image], scale: float) -> dict[str, Any]:
        base = f"{self.address}/{name}"
        items = []
        for number, page in enumerate(pages, start=1):
            service = f"{self.address}/image/{name}-{number}"
            size = {"width": round(page.width * scale), "height": round(page.height * scale)}
            body = {
                "id": f"{service}/full/200,/0/default.jpg",
                "type": "Image",
                "service": [{"id": service, "type": "ImageService3", "profile": "level1"}],
            }
            canvas = f"{base}/canvas/{number}"
            painting = {"id": f"{canvas}/a", "type": "Annotation", "motivation": "painting", "target": canvas}
            annotations = {"id": f"{canvas}/p", "type": "AnnotationPage", "items": [painting | {"body": body}]}
            items.append(
                {"id": canvas, "type": "Canvas", "label": {"none": [f"{number}r"]}, "items": [annotations]} | size
            )
        context = "http://iiif.io/api/presentation/3/context.json"
        about = {"@context": context, "id": f"{base}/manifest.json", "type": "Manifest", "label": {"en": [name]}}
        return about | {"items": items}

    def _manifest_2(self, name: str, pages: list[Image.Image], scale: float) -> dict[str, Any]:
        base = f"{self.address}/{name}"
        canvases = []
        for number, page in enumerate(pages, start=1):
            service = f"{self.address}/image/{name}-{number}"
            context = "http://iiif.io/api/image/2/context.json"
            resource = {
                "@id": f"{service}/full/200,/0/default.jpg",
                "@type": "dctypes:Image",
                "service": {"@context": context, "@id": service, "profile": "http://iiif.io/api/image/2/level1.json"},
            }
            canvas = f"{base}/canvas/{number}"
            image = {"@type": "oa:Annotation", "motivation": "sc:painting", "on": canvas, "resource": resource}
            size = {"width": round(page.width * scale), "height": round(page.height * scale)}
            canvases.append({"@id": canvas, "@type": "sc:Canvas", "label": f"{number}r", "images": [image]} | size)
        context = "http://iiif.io/api/presentation/2/context.json"
        about = {"@context": context, "@id": f"{base}/manifest.json", "@type": "sc:Manifest", "label": name}
        return about | {"sequences": [{"@type": "sc:Sequence", "canvases": canvases}]}

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if self.faults.get(path):
            return self.faults[path].pop(0)
        if path in self.documents:
            document = self.documents[path]
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            return 200, {"Content-Type": "application/json"}, data
        match = IMAGE.search(path)
        if match is None or match["name"] not in self.images:
            return 404, {"Content-Type": "text/plain"}, b"no such thing"
        if match["size"] not in self.sizes:
            return 400, {"Content-Type": "text/plain"}, b"no such size"
        data = io.BytesIO()
        self.images[match["name"]].save(data, "JPEG", quality=95)
        return 200, {"Content-Type": "image/jpeg"}, data.getvalue()


@contextmanager
def iiif_server() -> Iterator[IIIFServer]:
    about = IIIFServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            about.asked.append(Asked(self.path, self.headers.get("User-Agent", ""), time.time()))
            status, headers, body = about.answer(self.path)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    about.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield about
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
