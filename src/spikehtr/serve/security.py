"""What stands before every request: which host is asked for, from which origin, with which token; and the headers of
every answer. docs/how-to/workbench.md says what is promised and against whom.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spikehtr.serve.http_errors import RequestError

COOKIE = "spikehtr-token"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"/healthz"})  # no token
# Nor for what everybody can download with the package: the front end, which asks for the token.
_NO_TOKEN = ("/static/", "/p/")
_ATTEMPTS, _MINUTE = 10, 60.0  # wrong tokens in a minute, from all addresses together


@dataclass
class Access:
    """Who may come in."""

    host: str = "127.0.0.1"
    token: str | None = None
    allowed_hosts: frozenset[str] = frozenset()
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _failures: deque[float] = field(default_factory=deque)

    def is_allowed_host(self, header: str) -> bool:
        """Whether a Host header names this machine: a name that somebody else's DNS makes point here does not."""
        name = _host_name(header)
        if name in ("localhost", "127.0.0.1", "::1") or name in self.allowed_hosts:
            return True
        if is_loopback(self.host):
            return False
        return name in (self.host, socket.gethostname().lower()) or _is_address(name)

    def has_token(self, connection: HTTPConnection) -> bool:
        if self.token is None:
            return True
        kind, _, sent = connection.headers.get("authorization", "").partition(" ")
        bearer = sent.strip() if kind.lower() == "bearer" else ""
        given = [bearer, connection.cookies.get(COOKIE, "")]
        return any(hmac.compare_digest(one.encode(), expected) for one in given for expected in self._expected(one))

    def _expected(self, given: str) -> Iterable[bytes]:
        """The token itself, or its digest, which is what the cookie holds."""
        assert self.token is not None
        return (self.token.encode(), self.cookie.encode())

    @property
    def cookie(self) -> str:
        return hashlib.sha256(f"spikehtr cookie {self.token}".encode()).hexdigest()

    def log_in(self, given: str) -> bool:
        """Whether a token is right. After many wrong ones nobody is heard for a while."""
        now = time.monotonic()
        while self._failures and now - self._failures[0] > _MINUTE:
            self._failures.popleft()
        if len(self._failures) >= _ATTEMPTS:
            raise RequestError(
                429, "too_many", "too many wrong tokens", "wait a minute", headers={"Retry-After": str(int(_MINUTE))}
            )
        if self.token is not None and hmac.compare_digest(given.encode(), self.token.encode()):
            return True
        self._failures.append(now)
        return False


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def needs_token(host: str, names: Iterable[str]) -> bool:
    """Whether somebody else than this computer's users may come: from its network, or through a proxy with a name."""
    return not all(map(is_loopback, (host, *names)))


def _host_name(header: str) -> str:
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        error = self._refusal(scope)
        if error is not None:
            response = JSONResponse(error.body(), error.status, error.headers)
            await response(scope, receive, with_headers)
            return
        await self.app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> RequestError | None:
        connection = HTTPConnection(scope)
        headers, path = connection.headers, scope["path"]
        host = headers.get("host", "")
        if not self.access.is_allowed_host(host):
            remedy = "use the address that the command printed, or start it with --allow-host"
            return RequestError(403, "host", f"this server does not go by the name {host[:100]!r}", remedy)
        if _is_from_elsewhere(headers, scope, host):
            return RequestError(403, "origin", "the request comes from another site", "use the workbench's own page")
        is_open = path in _OPEN or path.startswith(_NO_TOKEN) or path in ("/", "/api/login")
        if not is_open and not self.access.has_token(connection):
            return RequestError(
                401,
                "token",
                "a token is needed",
                "open the address that the command printed, or send Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if path.startswith("/api/") and path != "/api/login" and scope["method"] not in _SAFE:
            sent = headers.get("x-csrf", "")
            if not hmac.compare_digest(sent.encode(), self.access.csrf.encode()):
                return RequestError(403, "csrf", "the X-CSRF header is missing or old", "reload the page")
        return None


def _is_from_elsewhere(headers: Headers, scope: Scope, host: str) -> bool:
    """Whether a browser says that another site's page made this request."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
        return True
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        is_navigation = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        return not (is_navigation and not scope["path"].startswith(("/api/", "/v1/")))
    return False
