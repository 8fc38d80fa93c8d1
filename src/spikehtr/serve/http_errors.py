"""What the server answers when it cannot do what was asked: always a status, a code, the fault and the remedy."""

from __future__ import annotations

import errno
import sqlite3
from typing import Any

from spikehtr.errors import SpikeHTRError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_DISK = ("the disk is full", "make room, then do it again; nothing that was acknowledged is lost")


class RequestError(SpikeHTRError):
    """An answer with a status of 400 or more. `more` goes into the answer's body beside `error`."""

    def __init__(
        self,
        status: int,
        code: str,
        fault: str,
        remedy: str = "",
        file: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        message = f"{file}: {fault}" if file else fault
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.status, self.code, self.fault, self.remedy, self.file = status, code, fault, remedy, file
        self.headers, self.more = headers or {}, more

    def body(self) -> dict[str, Any]:
        error = {"code": self.code, "message": str(self), "file": self.file, "fault": self.fault}
        return {"error": error | {"remedy": self.remedy}} | self.more


def bad_request(fault: str, remedy: str = "see /openapi.json") -> RequestError:
    return RequestError(400, "bad_request", fault, remedy)


def not_found(what: str) -> RequestError:
    return RequestError(404, "not_found", f"there is no {what}", "reload the page")


def invalid(field: str, fault: str, remedy: str = "correct the value") -> RequestError:
    return RequestError(422, "invalid", f"{field}: {fault}", remedy, field=field)


def as_request_error(error: BaseException) -> RequestError | None:
    """The answer for an exception that is not our fault; None where it is (500)."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return RequestError(507, "disk_full", *_FULL_DISK)
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        return RequestError(507, "disk_full", *_FULL_DISK)
    if isinstance(error, SpikeHTRError):
        fault, _, remedy = str(error).rpartition("; ")
        return RequestError(422, "invalid", fault or remedy, remedy if fault else "")
    return None
