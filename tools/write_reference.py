"""Writes the reference pages that are made of the code: every setting, and every verb with its options.

python tools/write_reference.py            # docs/reference/settings.md and command-line.md
python tools/write_reference.py --check    # says whether they are current; nothing is written
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from typer.main import get_command

from spikehtr.cli import app
from spikehtr.config import Config
from spikehtr.config.section import Section
from spikehtr.files import whole_file

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
SETTINGS = """# Settings

*Made by `python tools/write_reference.py`.*

Every setting with its default: the base tier of the paper. `spikehtr config -p PRESET` prints the values of a preset;
`-s KEY=VALUE` changes one on the command line, and a YAML file any number ([presets](presets.md)). null means unset.
"""
VERBS = """# Command line

*Made by `python tools/write_reference.py`.*

Exit codes: 0 done, 1 problems found, 2 wrong use. Progress bars are silent when the output is not a terminal. `--help`
of any verb says what stands here.
"""
_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "null": "`null`",
    "string": "text",
}


# --------------------------------------------------------------------------------------------------------- settings
def settings_page() -> str:
    parts = [SETTINGS]
    for prefix, section in _sections(Config):
        rows = [("setting", "values", "default", "")]
        sentences, schema = _sentences(section), section.model_json_schema()
        for name, field in section.model_fields.items():
            if name in sentences:
                default = f"`{_plain(field.default)}`"
                rows.append((f"`{prefix}{name}`", _values(schema["properties"][name]), default, sentences[name]))
        if len(rows) > 1:
            about = (inspect.getdoc(section) or "").split("\n\n")[0].replace("\n", " ")
            parts.append(f"## {prefix[:-1]}\n\n{about}\n\n{_table(rows)}\n")
    return "\n".join(parts)


def _below(section: type[Section]) -> dict[str, type[Section]]:
    """The sections that a section holds."""
    kinds = {name: field.annotation for name, field in section.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}


def _sections(section: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    yield prefix, section
    for name, below in _below(section).items():
        yield from _sections(below, f"{prefix}{name}.")


def _sentences(section: type[Section]) -> dict[str, str]:
    """The sentence below each field. Read from the source here, so that no program has to when it starts."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[field.target.id] = str(after.value.value)
        elif field.target.id not in _below(section):
            sys.exit(f"{section.__name__}.{field.target.id} has no sentence below it")
    return found


def _values(schema: dict[str, Any]) -> str:
    """What a setting may be, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_values(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{_plain(value)}`" for value in schema["enum"])
    if schema["type"] == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        number = f"{len(items)} of " if "prefixItems" in schema else ""
        return f"list: {number}{_values(items[0])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    bounds = [f"from {low:g}" if low is not None else "", f"above {above:g}" if above is not None else ""]
    bounds += [f"to {high:g}" if high is not None else "", f"below {below:g}" if below is not None else ""]
    return " ".join([_TYPES[schema["type"]], *filter(None, bounds)])


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


# ----------------------------------------------------------------------------------------------------- command line
def command_page() -> str:
    return "\n".join([VERBS, *_verbs("spikehtr", get_command(app))])


def _verbs(name: str, command: Any) -> Iterator[str]:
    """A section for each verb. Typer brings its own classes for commands and options, which are not public."""
    if hasattr(command, "commands"):
        for verb, below in command.commands.items():
            if not below.hidden:
                yield from _verbs(f"{name} {verb}", below)
        return
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and "--help" not in p.opts]
    operands = [_operand(p) for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *operands, *(["[OPTIONS]"] if options else [])])
    yield f"## {name}\n\n```\n{usage}\n```\n\n{inspect.cleandoc(command.help or '')}\n"
    if options:
        yield _table([("option", "values", "default", ""), *map(_option, options)]) + "\n"


def _operand(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs == -1 and "..." not in name else ""
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> tuple[str, str, str, str]:
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: not name.startswith("--"))
    values = "" if option.is_flag else (option.metavar or _kind(option))
    plain = getattr(option.default, "value", option.default)
    shown = option.show_default is True and not option.is_flag and plain not in (None, [], ())
    default = "required" if option.required else f"`{_plain(plain)}`" if shown else ""
    return ", ".join(f"`{name}`" for name in names), values, default, " ".join((option.help or "").split())


def _kind(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if get_origin(kind) is Union:  # Optional
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    kind = next((part for part in get_args(kind) if part is not type(None)), kind)  # list[str], Optional[int]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{choice.value}`" for choice in kind)
    bounds = [f"from {option.min:g}" if option.min is not None else ""]
    bounds += [f"to {option.max:g}" if option.max is not None else ""]
    names = {int: "whole number", float: "number", Path: "path", str: "text"}
    return " ".join([names.get(kind, str(kind)), *filter(None, bounds)])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *rest = ("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def main() -> None:
    pages = {FOLDER / "settings.md": settings_page(), FOLDER / "command-line.md": command_page()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(path.name for path in stale)
            sys.exit(f"docs/reference: {names} not as the code has it: run python tools/write_reference.py")
        return
    for path in stale:
        with whole_file(path) as temporary:
            temporary.write_text(pages[path], encoding="utf-8")


if __name__ == "__main__":
    main()
