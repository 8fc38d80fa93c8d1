"""Settings of a project that the browser may change, each checked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from spikehtr.pages.segmenters import NAMES
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


# What only says how the workbench looks: noted like the others, but undo passes over it.
_OF_LOOKS = ("language", "ui.")


def is_setting(name: str) -> bool:
    """Whether it is one of these, and no note of the program's own."""
    return name in KNOWN or name.startswith("ui.")


def is_of_looks(name: str) -> bool:
    return name.startswith(_OF_LOOKS)


def default_of(name: str) -> Any:
    return KNOWN[name][0] if name in KNOWN else None


def check(values: object) -> dict[str, Any]:
    """Names and values as a browser sent them."""
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
    return values
