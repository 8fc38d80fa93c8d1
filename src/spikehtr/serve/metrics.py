"""Counts of what the server does, in the text format of Prometheus."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_GROUPS = ("/api", "/v1", "/static")
_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)  # seconds


class Metrics:
    """Middleware that counts requests and their time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.within: Counter[tuple[str, float]] = Counter()
        self.refused = 0
        self.running = 0

    def around(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status = time.perf_counter(), 500

            async def noted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noted)
            finally:
                if scope["path"] != "/api/events":  # it lasts as long as the browser is open
                    self._note(scope, status, time.perf_counter() - began)

        return counted

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        group = next((one for one in _GROUPS if scope["path"].startswith(f"{one}/")), "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD") else "other"
        with self._lock:
            self.requests[group, method, status] += 1
            self.seconds[group] += seconds
            for bound in _BOUNDS:
                self.within[group, bound] += seconds <= bound

    def text(self, bench: Workbench) -> str:
        with self._lock:
            lines = ["# TYPE spikehtr_requests_total counter"]
            lines += [
                f'spikehtr_requests_total{{group="{group}",method="{method}",status="{status}"}} {count}'
                for (group, method, status), count in sorted(self.requests.items())
            ]
            lines.append("# TYPE spikehtr_request_seconds histogram")
            for group in sorted(self.seconds):
                total = sum(count for (one, _, _), count in self.requests.items() if one == group)
                for bound in _BOUNDS:
                    count = self.within[group, bound]
                    lines.append(f'spikehtr_request_seconds_bucket{{group="{group}",le="{bound}"}} {count}')
                lines.append(f'spikehtr_request_seconds_bucket{{group="{group}",le="+Inf"}} {total}')
                lines.append(f'spikehtr_request_seconds_sum{{group="{group}"}} {self.seconds[group]:.6f}')
                lines.append(f'spikehtr_request_seconds_count{{group="{group}"}} {total}')
        pool = bench.pool
        values = (
            ("lines_read_total", "counter", pool.lines_read),
            ("batches_total", "counter", pool.batches),
            ("reading_seconds_total", "counter", round(pool.seconds, 6)),
            ("lines_waiting", "gauge", pool.waiting),
            ("transcriptions_running", "gauge", self.running),
            ("transcriptions_refused_total", "counter", self.refused),
            ("jobs_running", "gauge", len(bench.jobs.running)),
            ("events_total", "counter", bench.project.log.last),
        )
        for name, kind, value in values:
            lines += [f"# TYPE spikehtr_{name} {kind}", f"spikehtr_{name} {value}"]
        return "\n".join(lines) + "\n"
