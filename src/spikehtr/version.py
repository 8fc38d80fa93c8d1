"""Which program this is: its version, and, since many states of the code share one, a digest of the code itself."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"
MODEL_FORMAT = "spikehtr-1"  # of recognisers' files


# What trainings learn from, compute and are chosen by.
_TRAINING = ("baselines", "config", "data", "decoding", "evaluation", "model", "ops", "training")
_TRAINING_FILES = ("architectures.py", "registry.py", "text.py", "weights.py")
_PRESETS = Path("config", "presets.py")


@cache
def code_digest(package: Path = Path(__file__).parent) -> str:
    """Of the Python code and the studies, the same wherever they are installed; the compiled parts are not in it."""
    return _digest(package, [path for kind in ("*.py", "*.yaml") for path in package.rglob(kind)])


@cache
def training_digest(package: Path = Path(__file__).parent) -> str:
    """Of what a training follows from besides its settings, lines and seed: networks that are compared share it.

    Presets are settings, and each run records all of its own.
    """
    files = {path for room in _TRAINING for path in (package / room).rglob("*.py")} - {package / _PRESETS}
    return _digest(package, [*files, *(package / name for name in _TRAINING_FILES if (package / name).is_file())])


def _digest(package: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(package).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:12]
