"""`spikehtr config`: print or write a resolved configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from spikehtr.cli.options import ConfigFile, Overrides, Preset, resolve, writable


def config(
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="Write YAML here instead of printing.")
    ] = None,
) -> None:
    """Print every setting with its value, as YAML.

    Edit what it prints and pass the file to any verb with --config. A YAML file need not be complete: `preset: tiny`
    and the keys you change are enough.
    """
    resolved = resolve(preset, file, overrides)
    if output is None:
        typer.echo(resolved.to_yaml(), nl=False)
    else:
        resolved.save(writable(output))
        typer.echo(f"wrote {output}")
