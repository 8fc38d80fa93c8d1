"""Verbs with more than one command."""

from __future__ import annotations

import typer
from typer.core import TyperGroup


class RunByDefault(TyperGroup):
    """`VERB ARGUMENT...` is `VERB run ARGUMENT...`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)
