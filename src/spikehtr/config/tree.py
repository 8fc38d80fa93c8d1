"""One strict tree for everything that can be set: model, data, training.

The same tree is a YAML file, dotted command-line overrides and the header of a weight file. An unknown key is an
error that names the nearest valid one. Defaults are the paper's values (base tier, Tables 8-10). The sections stand in
`model_section.py` (`baseline_section.py` for the recognisers to compare with), `data_section.py` and
`training_section.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

import yaml
from pydantic import BaseModel, ValidationError, model_validator

from spikehtr.config.data_section import DataConfig
from spikehtr.config.model_section import ModelConfig
from spikehtr.config.parsing import ConfigError, did_you_mean, explain, load_yaml, parse_override, unknown_key
from spikehtr.config.presets import BASELINES, PRESETS, TIERS
from spikehtr.config.section import Section
from spikehtr.config.training_section import TrainingConfig
from spikehtr.files import whole_file


class Config(Section):
    """The whole tree. Immutable: `with_overrides` gives a changed copy."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        m = self.model
        if m.arch != "spike-htr" and m.reducer.mode != "none" and self.training.aux_weight == 0:
            raise ValueError(
                f"model.reducer.mode={m.reducer.mode} on {m.arch} needs training.aux_weight above 0: "
                "that loss alone trains the head that tells what to merge"
            )
        if not m.encoder.shortcuts and self.training.bypass_penalty > 0:
            raise ValueError(
                "training.bypass_penalty is about membrane shortcuts, and there are none with "
                "model.encoder.neurons=read, .spikes_first=true or .bypass=false: leave it at 0, or change that"
            )
        return self

    @classmethod
    def preset(cls, name: str) -> Self:
        if name not in PRESETS:
            near = did_you_mean(name, PRESETS)
            raise ConfigError(f"no preset called {name!r}{near} (there are: {', '.join(PRESETS)})")
        return cls.from_dict(TIERS[name] if name in TIERS else BASELINES[name])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "") -> Self:
        """Build from nested mappings; `source` (a file name, say) opens the error message."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(explain(error, known_keys(), source)) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a YAML file. A top-level `preset: tiny` starts from that tier instead of from base."""
        values = load_yaml(path)
        preset = values.pop("preset", None)
        start = {} if preset is None else cls.preset(str(preset)).to_dict()
        return cls.from_dict(_merge(start, values), str(path))

    def with_reducer(self) -> Self:
        """A copy with keep-and-merge on; a baseline then needs the auxiliary loss, whose weight is the paper's."""
        changes: dict[str, Any] = {"model.reducer.mode": "keep-and-merge"}
        if self.model.arch != "spike-htr" and self.training.aux_weight == 0:
            changes["training.aux_weight"] = TrainingConfig().aux_weight
        return self.with_overrides(changes)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted key."""
        return _flat(self.to_dict())

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        with whole_file(path) as temporary:
            temporary.write_text(self.to_yaml(), encoding="utf-8")

    def with_overrides(self, overrides: Mapping[str, Any] | Iterable[str]) -> Self:
        """A copy with dotted keys changed: `{"model.timesteps": 1}` or `["model.timesteps=1"]`.

        What stands behind an equals sign is read as YAML: `true`, `0.5`, `[LA, QK]` and `3e-4` are what they look like.
        """
        pairs = overrides if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
        values = self.to_dict()
        for key, value in pairs.items():
            *parents, last = key.split(".")
            section = values
            for depth, name in enumerate(parents):
                if not isinstance(section.get(name), dict):
                    unknown = None if name in section else ".".join(parents[: depth + 1])
                    raise ConfigError(unknown_key(key, known_keys(), unknown))
                section = section[name]
            if last not in section:
                raise ConfigError(unknown_key(key, known_keys()))
            if isinstance(section[last], dict):
                if not isinstance(value, Mapping):
                    choices = ", ".join(f"{key}.{name}" for name in section[last])
                    raise ConfigError(f"{key} is a section: set one of {choices}")
                value = _merge(section[last], value)
            section[last] = value
        return type(self).from_dict(values)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in extra.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def known_keys(section: type[BaseModel] = Config, prefix: str = "") -> tuple[str, ...]:
    """Every dotted key of the tree, sections included."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys.extend(known_keys(field.annotation, f"{prefix}{name}."))
    return tuple(keys)
