"""How a plain function becomes an endpoint: its JSON is read and checked, and it runs in a thread."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from spikehtr.serve.event_steps import Author
from spikehtr.serve.http_errors import RequestError, bad_request, invalid, not_found

MOST_JSON = 8 << 20  # bytes of a body
_CLIENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LARGEST = 1 << 62

Body = dict[str, Any]
Handler = Callable[[Request, Body], Any]


def endpoint(handler: Handler, status: int = 200) -> Callable[[Request], Awaitable[Response]]:
    """`handler(request, body)` gives what is to be sent as JSON, a Response, or None for 204."""

    async def answer(request: Request) -> Response:
        body = await read_json(request) if request.method in ("POST", "PUT", "PATCH") else {}
        result = await run_in_threadpool(handler, request, body)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if result is None else JSONResponse(result, status)

    return answer


async def read_json(request: Request) -> Body:
    data = await read_body(request, MOST_JSON)
    if not data:
        return {}
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON ({type(error).__name__})", "send JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


async def read_body(request: Request, most: int) -> bytes:
    """The whole body, or 413 as soon as it is too long."""
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > most:
        raise too_large(most)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large(most)
            parts.append(part)
    except ClientDisconnect:
        raise bad_request("the connection ended before the body did", "send it again") from None
    return b"".join(parts)


def too_large(most: int) -> RequestError:
    return RequestError(413, "too_large", f"more than {most:,} bytes", "send less at a time", headers=CLOSE)


CLOSE = {"Connection": "close"}  # the rest of the body is not waited for


def path_id(request: Request, name: str = "page") -> int:
    value = request.path_params[name]
    if not 0 < value < _LARGEST:
        raise not_found(f"{name} {value}")
    return int(value)


def number(request: Request, name: str, default: int, least: int = 0, most: int = _LARGEST) -> int:
    """A whole number of the query."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise invalid(name, "must be a whole number")
    return min(max(int(text), least), most)


def flag(request: Request, name: str, default: bool = False) -> bool:
    text = request.query_params.get(name)
    return default if text is None else text.lower() in ("1", "true", "yes")


def author_of(request: Request) -> Author:
    client = request.headers.get("x-client", "")
    user = unquote(request.headers.get("x-user", ""))[:100].strip()
    user = "".join(character for character in user if character.isprintable())
    return Author(client if _CLIENT.fullmatch(client) else None, user or None)
