"""The description of the HTTP service, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from spikehtr.version import __version__

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "fault", "remedy"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "file": {"type": ["string", "null"]},
                "fault": {"type": "string"},
                "remedy": {"type": "string"},
            },
        }
    },
}
_STATUSES = {
    "400": "the body is not what it was announced as",
    "401": "a token is needed",
    "403": "the request comes from another site, or asks for another host",
    "404": "no such model",
    "406": "none of the formats asked for can be written",
    "413": "too many bytes or pixels",
    "415": "not an image that can be read",
    "422": "a parameter is wrong",
    "429": "too many lines wait: Retry-After says when to come back",
    "503": "the server is stopping, or the model cannot be loaded",
    "504": "not done in time",
    "507": "the disk is full",
}


def _errors(*statuses: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    out: dict[str, Any] = {status: {"description": _STATUSES[status], "content": content} for status in statuses}
    if "429" in out:
        out["429"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    return out


def _gives(what: str, schema: dict[str, Any] | None = None, media: str = "application/json") -> dict[str, Any]:
    return {"200": {"description": what, "content": {media: {"schema": schema or {"type": "object"}}}}}


def _get(summary: str, answers: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": answers}}


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TEXT = {"schema": {"type": "string"}}
_PAGE = {
    "description": "what was read",
    "content": {
        "application/json": {"schema": {"type": "object", "description": "a page of format spikehtr-page-1"}},
        "application/vnd.prima.page+xml": _TEXT,
        "application/xml": _TEXT,
        "text/xml": _TEXT,
        "application/alto+xml": _TEXT,
        "text/plain": _TEXT,
        "text/html": _TEXT,
    },
}
_JOB_ID = {"name": "job", "in": "path", "required": True, "schema": {"type": "integer"}}

DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Spike-HTR", "version": __version__, "summary": "Reads handwriting"},
    "components": {
        "schemas": {"Error": _ERROR},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "security": [{}, {"token": []}],
    "paths": {
        "/v1/transcribe": {
            "post": {
                "summary": "Read an image of a page or of a line",
                "parameters": [
                    {
                        "name": "as",
                        "in": "query",
                        "schema": {"enum": ["auto", "line", "page"], "default": "auto"},
                        "description": "what the image shows; auto: by its shape",
                    },
                    {"name": "model", "in": "query", "schema": {"type": "string"}, "description": "see /v1/models"},
                ],
                "requestBody": {
                    "required": True,
                    "content": {
                        "image/*": _BINARY,
                        "application/octet-stream": _BINARY,
                        "application/x-www-form-urlencoded": _BINARY,
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "required": ["image"],
                                "properties": {
                                    "image": {"type": "string", "format": "binary"},
                                    "page": {
                                        "type": "string",
                                        "format": "binary",
                                        "description": "PAGE or ALTO XML that gives the lines",
                                    },
                                },
                            }
                        },
                    },
                },
                "responses": {
                    "200": _PAGE,
                    **_errors("400", "401", "403", "404", "406", "413", "415", "422", "429", "503", "504", "507"),
                },
            }
        },
        "/v1/models": _get("The models there are", _gives("the models") | _errors("401", "403")),
        "/v1/jobs": _get("The last jobs of the workbench", _gives("the jobs") | _errors("401", "403")),
        "/v1/jobs/{job}": _get("One job", _gives("the job") | _errors("401", "403", "404"), _JOB_ID),
        "/healthz": _get("Whether the server works; needs no token", _gives("it does") | _errors("403", "503")),
        "/metrics": _get(
            "Counts for Prometheus", _gives("the counts", {"type": "string"}, "text/plain") | _errors("401", "403")
        ),
        "/openapi.json": _get("This description", _gives("this description") | _errors("401", "403")),
    },
}
