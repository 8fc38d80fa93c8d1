"""Which networks a benchmark times: presets, at several timesteps where they have any. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable

from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError


def listed(values: Iterable[str]) -> list[str]:
    """`["tiny,base", "swift"]` -> tiny, base, swift."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def numbers(values: Iterable[str]) -> list[int]:
    parts = listed(values)
    wrong = [part for part in parts if not part.isdecimal() or int(part) < 1]
    if wrong:
        raise SpikeHTRError(f"--timesteps takes whole numbers from 1, as in 1,2; not {wrong[0]!r}")
    return [int(part) for part in parts]


def named_configs(presets: list[str], timesteps: list[int], overrides: list[str]) -> list[tuple[str, Config]]:
    """Every preset at every number of timesteps; a baseline, which has no steps in time, once."""
    found = []
    for preset in presets:
        config = Config.preset(preset).with_overrides(overrides)
        if config.model.arch != "spike-htr":
            found.append((preset, config))
            continue
        found += [(f"{preset} T={steps}", config.with_overrides({"model.timesteps": steps})) for steps in timesteps]
    return found
