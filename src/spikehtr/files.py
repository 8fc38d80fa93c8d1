"""Writing a file so that it is either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary name beside `path`; what is written there takes the name when the block ends well.

    A link is followed, not replaced. On an error nothing is left behind.
    """
    target = Path(path).resolve()
    # Of the name only a beginning, to know it by: names are limited in bytes, of which a character may need four.
    temporary = target.with_name(f".{target.name[:32]}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
