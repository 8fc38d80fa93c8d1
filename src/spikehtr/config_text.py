"""Reading configuration text and explaining what is wrong with it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from spikehtr.errors import SpikeHTRError


class ConfigError(SpikeHTRError):
    """A configuration that cannot be used; the message names every problem by its dotted key."""


def load_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values at the top level, found {type(values).__name__}")
    return values


def parse_override(text: str) -> tuple[str, Any]:
    """`model.timesteps=1` -> ("model.timesteps", 1)."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r}: write an override as key=value, for example model.timesteps=1")
    try:
        return key.strip(), yaml.load(value, _StrictLoader)
    except yaml.YAMLError:
        raise ConfigError(f"{text!r}: the value is not valid YAML") from None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_key(asked: str, keys: Sequence[str], unknown: str | None = None) -> str:
    """`asked` is what the user wrote, `unknown` the part of it that does not exist (all of it unless given)."""
    near = did_you_mean(asked, keys)
    if not near:  # right name, wrong place: 'timesteps' for 'model.timesteps'
        tails = {key.rsplit(".", 1)[-1]: key for key in reversed(keys)}
        close = difflib.get_close_matches(asked.rsplit(".", 1)[-1], list(tails), n=1, cutoff=0.6)
        near = f"; did you mean {tails[close[0]]!r}?" if close else ""
    return f"unknown key {unknown or asked!r}{near}"


def explain(error: ValidationError, keys: Sequence[str], source: str = "") -> str:
    """One line for each problem pydantic found, each opening with `source` (a file name, say) if there is one."""
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(unknown_key(key, keys))
            continue
        given = problem.get("input")
        shown = "" if isinstance(given, Mapping | BaseModel) else f" (found {given!r})"
        lines.append(f"{key}: {problem['msg'].removeprefix('Value error, ')}{shown}")
    return "\n".join(f"{source}: {line}" if source else line for line in lines)


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice: the second would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
