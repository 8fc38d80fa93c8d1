"""Reading configuration text and explaining what is wrong with it."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from spikehtr.errors import SpikeHTRError

# The paper's symbols that are no setting's name here.
_SYMBOLS = {"T": "model.timesteps", "lif.tau": "model.lif.decay", "lif.V_th": "model.lif.threshold"}
_SYMBOLS |= dict.fromkeys(("lr", "training.lr"), "training.learning_rate")


class ConfigError(SpikeHTRError):
    """A configuration that cannot be used; the message names every problem by its dotted key."""


def load_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError) as error:  # a date like 2024-13-45 is a ValueError
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
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{text!r}: the value is not valid YAML") from None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_key(asked: str, keys: Sequence[str], unknown: str | None = None) -> str:
    """`asked` is what the user wrote, `unknown` the part of it that does not exist (all of it unless given). What was
    meant is a setting, or a section as deep as what was written."""
    sections = {key.rsplit(".", 1)[0] for key in keys if "." in key}
    choices = [key for key in keys if key not in sections or key.count(".") == asked.count(".")]
    tails = {key.rsplit(".", 1)[-1]: key for key in reversed(keys)}
    # A symbol; or the right name in no place: 'encoder' for 'model.encoder'.
    meant = _SYMBOLS.get(asked.removeprefix("model.")) or tails.get(asked)
    near = f"; did you mean {meant!r}?" if meant else ""
    section, _, name = asked.rpartition(".")
    beside = {key.rpartition(".")[2]: key for key in choices if section and key.rpartition(".")[0] == section}
    if not near and name in tails:  # the right name, in a wrong place
        near = f"; did you mean {tails[name]!r}?"
    if not near and (close := difflib.get_close_matches(name, list(beside), n=1, cutoff=0.5)):
        near = f"; did you mean {beside[close[0]]!r}?"
    if not near and not beside:  # a section that is not there
        near = did_you_mean(asked, choices)
    if not near:  # nearly the right name, in a wrong place
        close = difflib.get_close_matches(asked.rsplit(".", 1)[-1], list(tails), n=1, cutoff=0.75)
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
        said = f"{problem['msg'].removeprefix('Value error, ')}{shown}"
        lines.append(f"{key}: {said}" if key else said)  # no key: two of them do not go together
    return "\n".join(f"{source}: {line}" if source else line for line in lines)


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice (the second would win in silence) and knows that 3e-4 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)
