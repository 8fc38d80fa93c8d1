"""Telling every open browser what happened: server-sent events, from any thread to any number of listeners."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

_WAITING = 1000  # messages a slow listener may lag behind; then it is cut off, and reloads when it comes back
PULSE = 15.0  # seconds between two signs of life


class Broadcast:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Queue[str | None], asyncio.AbstractEventLoop] = {}
        self.closed = False

    def tell(self, event: str, data: Any) -> None:
        message = f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
        self._put(message)

    def _put(self, message: str | None) -> None:
        with self._lock:
            for queue, loop in list(self._listeners.items()):
                with contextlib.suppress(RuntimeError):  # its loop has ended
                    loop.call_soon_threadsafe(_offer, queue, message)

    def close(self) -> None:
        """End every stream."""
        self.tell("stopping", {})
        self.closed = True
        self._put(None)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Queue[str | None]]:
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        with self._lock:
            self._listeners[queue] = asyncio.get_running_loop()
        try:
            yield queue
        finally:
            with self._lock:
                self._listeners.pop(queue, None)

    async def stream(self, hello: Any) -> AsyncIterator[str]:
        """The body of an answer of type text/event-stream."""
        with self.listening() as queue:
            yield f"retry: 1000\nevent: hello\ndata: {json.dumps(hello)}\n\n"
            while not self.closed:
                try:
                    message = await asyncio.wait_for(queue.get(), PULSE)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if message is None:
                    return
                yield message


def _offer(queue: asyncio.Queue[str | None], message: str | None) -> None:
    if queue.qsize() > _WAITING:
        message = None
    queue.put_nowait(message)
