"""The web server around the application: where it listens, and how it ends without cutting anything off."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn

from spikehtr.errors import SpikeHTRError
from spikehtr.serve.app import make_app
from spikehtr.serve.limits import Limits
from spikehtr.serve.security import Access
from spikehtr.serve.workbench import Workbench

_GRACE = 10  # seconds that requests under way have after Ctrl-C


class WorkbenchServer(uvicorn.Server):
    """Ends the streams of events as soon as it is asked to stop: open browsers would hold it up."""

    def __init__(self, config: uvicorn.Config, bench: Workbench) -> None:
        super().__init__(config)
        self._bench = bench

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._bench.stopping = True
        self._bench.project.broadcast.close()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """From now on a browser that comes too early waits for its answer, and is not refused."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        raise SpikeHTRError(f"{host}, port {port}: {error.strerror or error}; take another --port or --host") from None
    return listening


def run(bench: Workbench, access: Access, limits: Limits, listening: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        make_app(bench, access, limits),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=30,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=64 << 10,
    )
    WorkbenchServer(config, bench).run(sockets=[listening])
