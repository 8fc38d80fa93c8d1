"""Settings of a project that the browser may change, each checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from spikehtr.pages.segmenters import NAMES
from spikehtr.serve.database import Database
from spikehtr.serve.http_errors import invalid

_LARGEST = 16_384  # characters of a value as JSON
PALETTE = "æœßſÆŒ¶§†‡ꝑꝓꝗ⁊ꝛ&¬\u2013\u2014„“”«»"


def _one_of(*values: object) -> Callable[[Any], bool]:
    return lambda value: value in values


def _text_up_to(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= most


def _number_between(least: float, most: float) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return is_number and least <= value <= most

    return check


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


# Name: default, what is allowed in words, and the check of it.
KNOWN: dict[str, tuple[Any, str, Callable[[Any], bool]]] = {
    "language": (None, "en, fr, de or null", _one_of("en", "fr", "de", None)),
    "palette": (PALETTE, "a text of up to 1,000 characters", _text_up_to(1000)),
    "reread": (True, "true or false", _is_bool),
    "read_on_import": (True, "true or false", _is_bool),
    "segmenter": ("builtin", f"builtin, {', '.join(NAMES)}", _one_of("builtin", *NAMES)),
    "model": (None, "the name of a model", _text_up_to(100)),  # None: the one that the server was started with
    "threshold": (0.8, "a number from 0 to 1", _number_between(0, 1)),
    "direction": ("auto", "auto, ltr or rtl", _one_of("auto", "ltr", "rtl")),
    "iiif_width": (0, "a width in pixels, 0 for the full one", _number_between(0, 20_000)),
}


class Settings:
    def __init__(self, log: Database) -> None:
        self._log = log

    def all(self) -> dict[str, Any]:
        return {name: default for name, (default, _, _) in KNOWN.items()} | {
            name: value for name, value in _stored(self._log).items() if name in KNOWN or name.startswith("ui.")
        }

    def __getitem__(self, name: str) -> Any:
        found = self._log.row("SELECT value FROM settings WHERE key = ?", name)
        return json.loads(found["value"]) if found else KNOWN[name][0]

    def change(self, values: object) -> None:
        """Check and keep; all or none."""
        if not isinstance(values, dict):
            raise invalid("settings", "must be an object of names and values")
        for name, value in values.items():
            if name.startswith("ui."):
                if len(name) > 100 or len(json.dumps(value, ensure_ascii=False)) > _LARGEST:
                    raise invalid(name, f"larger than {_LARGEST} characters", "keep less in it")
            elif name not in KNOWN:
                raise invalid(name, f"no such setting: there are {', '.join(KNOWN)}, and names that begin with ui.")
            elif not KNOWN[name][2](value):
                raise invalid(name, f"must be {KNOWN[name][1]}")
        with self._log.transaction():
            for key, value in values.items():
                written = json.dumps(value, ensure_ascii=False)
                self._log.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", key, written)


def _stored(log: Database) -> dict[str, Any]:
    return {row["key"]: json.loads(row["value"]) for row in log.rows("SELECT key, value FROM settings")}
