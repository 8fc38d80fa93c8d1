"""The models of a project: the bundled one, one named at the start, and those fine-tuned here.

Loaded when needed, and PyTorch with them: importing it takes longer than all else that a start needs.
"""

from __future__ import annotations

import json
import re
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from spikehtr.data.images import ImageError
from spikehtr.errors import SpikeHTRError
from spikehtr.serve.http_errors import RequestError, invalid
from spikehtr.version import MODEL_FORMAT

if TYPE_CHECKING:
    from spikehtr.recognizer import Recognizer

BUNDLED_NAME = "bundled"  # stands for its file, too
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".safetensors"
_KEPT = 2  # loaded models


def check_file(file: Path) -> None:
    """A look at a model file that needs no PyTorch; loading it tells the rest."""
    if str(file) == BUNDLED_NAME:
        return
    if not file.is_file():
        raise SpikeHTRError(f"{file}: {'a folder, not a model file' if file.is_dir() else 'no such file'}")
    try:
        with safe_open(str(file), "np") as opened:
            about = opened.metadata() or {}
    except (SafetensorError, OSError):
        raise SpikeHTRError(f"{file}: not a model file; take a .safetensors of `spikehtr train`") from None
    if (found := about.get("format")) != MODEL_FORMAT:
        raise SpikeHTRError(
            f"{file}: not a recogniser's file of format {MODEL_FORMAT} (found {found or 'no format note'}); "
            "take a .safetensors of `spikehtr train`"
        )


class Models:
    def __init__(self, folder: Path, given: Path | None = None, device: str = "auto") -> None:
        """`folder`: where fine-tuned models are kept; `given`: a model file named when the server was started."""
        self.folder, self.given, self._device = folder, given, device
        folder.mkdir(parents=True, exist_ok=True)
        self._loaded: dict[str, Recognizer] = {}
        self._lock = threading.Lock()

    @cached_property
    def device(self) -> str:
        if self._device != "auto":
            return self._device
        from torch.cuda import is_available

        return "cuda" if is_available() else "cpu"

    @property
    def default(self) -> str:
        return self.given.stem if self.given is not None else BUNDLED_NAME

    def names(self) -> list[str]:
        own = sorted(file.stem for file in self.folder.glob(f"*{_SUFFIX}"))
        first = [self.given.stem] if self.given is not None else []
        return list(dict.fromkeys([*first, BUNDLED_NAME, *own]))

    def file(self, name: str) -> str | Path:
        """A model's file by its name; never a path."""
        if self.given is not None and name == self.given.stem:
            return self.given
        if name == BUNDLED_NAME:
            return BUNDLED_NAME
        file = self.folder / f"{name}{_SUFFIX}"
        if not _NAME.fullmatch(name) or not file.is_file():
            remedy = f"there are {', '.join(self.names())}"
            raise RequestError(404, "not_found", f"there is no model {name[:100]!r}", remedy)
        return file

    def get(self, name: str) -> Recognizer:
        self.file(name)
        with self._lock:
            from spikehtr.recognizer import Recognizer

            if name not in self._loaded:
                try:
                    model = Recognizer.load(self.file(name), self.device)
                except (SpikeHTRError, ImageError) as error:
                    raise RequestError(503, "no_model", str(error), "choose another model") from None
                model.name = name if name != BUNDLED_NAME else model.name
                self._loaded[name] = model
                while len(self._loaded) > _KEPT:
                    self._loaded.pop(next(iter(self._loaded)))
            return self._loaded[name]

    def list(self, current: str) -> list[dict[str, Any]]:
        from spikehtr.weights import load_header

        out = []
        for name in self.names():
            try:
                notes = json.loads(load_header(self.file(name)).get("notes", "{}"))
            except (SpikeHTRError, ValueError):
                continue
            about = notes.get("workbench") or {}
            out.append(
                {
                    "name": name,
                    "cer": about.get("cer"),
                    "created": about.get("created"),
                    "from": about.get("from"),
                    "current": name == current,
                }
            )
        return out


def check_new_name(models: Models, name: object) -> str:
    """A name for a model that is to be made; the next free one where none is given."""
    if name in (None, ""):
        number = 1
        while f"tuned-{number}" in models.names():
            number += 1
        return f"tuned-{number}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        remedy = "take up to 64 letters, digits, points, hyphens"
        raise invalid("name", "not a name for a model", remedy)
    if name in models.names():
        raise RequestError(409, "conflict", f"there is a model {name} already", "take another name")
    return name
