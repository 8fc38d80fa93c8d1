"""A digest in the result itself, by which an unchanged file is known wherever it has been moved or copied.

XML ends with a comment, JSON with a member `digest`; both are computed over all bytes before them. Plain text has none.
"""

from __future__ import annotations

import re

from spikehtr.data.formats.written import digest_of
from spikehtr.pages.origins import Format

_TAILS = (
    re.compile(rb"<!-- spikehtr:digest=([0-9a-f]{32}) -->\n\Z"),
    re.compile(rb',\n "digest": "([0-9a-f]{32})"\n\}\n\Z'),
)
_SEAL = re.compile(rb'spikehtr:digest=|"digest":\s*"[0-9a-f]{32}"')
_TAIL = 128  # bytes at the end of a file in which a seal is looked for


def sealed(text: str, form: Format) -> bytes:
    """A finished result as it goes into its file."""
    if form == "text":
        return text.encode()
    if form in ("json", "iiif"):
        body = text.rstrip().removesuffix("}").rstrip().encode()
        return body + f',\n "digest": "{digest_of(body)}"\n}}\n'.encode()
    body = text.encode()
    return body + f"<!-- spikehtr:digest={digest_of(body)} -->\n".encode()


def is_intact(data: bytes) -> bool | None:
    """Whether a file is just as it was sealed; None where it bears no seal at all."""
    for tail in _TAILS:
        if match := tail.search(data, max(0, len(data) - _TAIL)):
            return digest_of(data[: match.start()]) == match[1].decode()
    return False if _SEAL.search(data) else None
