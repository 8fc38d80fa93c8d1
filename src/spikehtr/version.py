"""Which program this is: its version, and, since many states of the code share one, a digest of the code itself."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"
MODEL_FORMAT = "spikehtr-1"  # of recognisers' files


@cache
def code_digest(package: Path = Path(__file__).parent) -> str:
    """Of the Python code and the studies, the same wherever they are installed; the compiled parts are not in it."""
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.yaml") for path in package.rglob(kind)):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(package).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:12]
