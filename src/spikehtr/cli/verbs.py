"""How the command line takes its options: each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperOption

Function = TypeVar("Function", bound=Callable[..., Any])


class _Verb(TyperCommand):
    """Refuses an option that is given twice but holds one value: the last would be taken without a word."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, given = parse(args=args)
            for option, times in Counter(given).items():
                if isinstance(option, TyperOption) and times > 1 and not (option.multiple or option.is_flag):
                    ctx.fail(f"{option.opts[0]} is given {times} times, but takes one value: give it once")
            return values, rest, given

        parser.parse_args = parse_once  # type: ignore[method-assign]
        return parser


class Verbs(typer.Typer):
    """Verbs that take each option once."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        return super().command(name, cls=_Verb, **options)
