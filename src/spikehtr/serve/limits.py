"""How much a request may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    upload_bytes: int = 2 << 30  # of one upload of many files
    file_bytes: int = 512 << 20  # of one file
    image_bytes: int = 64 << 20  # of an image sent to /v1/transcribe
    pixels: int = 178_956_970  # of an image: Pillow's own limit
    lines_waiting: int = 4096  # of requests, in the queue
    requests: int = 256  # of /v1/transcribe at a time
    seconds: float = 120.0  # for one of them
    allow_private_iiif: bool = False  # IIIF manifests and images also from addresses that are not public

    def view(self) -> dict[str, Any]:
        return {"upload_bytes": self.upload_bytes, "file_bytes": self.file_bytes, "pixels": self.pixels}
