"""Settings of earlier versions that are gone: model files made with those versions still carry them.

A retired setting that was off changed nothing, so a file that holds it reads as before. One that was on is an error:
what the file was made with cannot be said any more. Settings that a user writes are never migrated.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from spikehtr.config.parsing import ConfigError
from spikehtr.config.tree import Config

_RETIRED: dict[str, tuple[str | None, Any]] = {  # the key that says whether it was on, and its value when it was not
    "model.span_mask": ("ratio", 0.0),
    "training.bypass_anneal": ("until", 0.0),
    "training.surrogate_anneal": ("until", 0.0),
    "training.spike_anneal": ("until", 0.0),
    "training.consistency": (None, 0.0),
    "training.reducer_warmup": (None, 0.0),
    "training.teacher_weight": (None, None),  # None: no value of it changed how the file reads
    "decoding": ("method", "greedy"),
}


def config_of_file(values: Mapping[str, Any], source: str) -> Config:
    """The configuration in a model file's header, `source` its name; without what is retired since it was written."""
    values = deepcopy(dict(values))
    for key, (switch, off) in _RETIRED.items():
        *parents, name = key.split(".")
        section: Any = values
        for parent in parents:
            section = section.get(parent, {}) if isinstance(section, dict) else {}
        if not isinstance(section, dict) or name not in section:
            continue
        found = section.pop(name)
        if switch is not None:
            found = found.get(switch, off) if isinstance(found, dict) else found
        if off is not None and found != off:
            full = key if switch is None else f"{key}.{switch}"
            raise ConfigError(
                f"{source}: made with {full} = {found}, a setting that is gone: read it with the version "
                "that wrote it, or train it anew without"
            )
    return Config.from_dict(values, source)
