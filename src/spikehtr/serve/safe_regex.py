"""Regular expressions of users, in a process of their own: some take for ever, and then it is ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spikehtr.serve.http_errors import RequestError, invalid

_SECONDS = 5.0
_LONGEST = 500  # characters of an expression
_PROGRAM = """
import json, re, sys
given = json.load(sys.stdin)
pattern = re.compile(given["pattern"], given["flags"])
if given["replacement"] is None:
    out = [[m.span() for m in pattern.finditer(text) if m.end() > m.start()] for text in given["texts"]]
else:
    out = [pattern.sub(given["replacement"], text) for text in given["texts"]]
json.dump(out, sys.stdout)
"""


@dataclass(frozen=True)
class Finder:
    """What is looked for: words as they are, or an expression."""

    text: str
    is_expression: bool
    flags: int

    @classmethod
    def of(cls, text: object, is_expression: bool, is_exact: bool) -> Finder:
        if not isinstance(text, str) or not text:
            raise invalid("q", "must say what to look for")
        if len(text) > _LONGEST:
            raise invalid("q", f"longer than {_LONGEST} characters")
        flags = 0 if is_exact else int(re.IGNORECASE)
        if is_expression:
            try:
                re.compile(text, flags)
            except (re.error, RecursionError, OverflowError) as error:
                raise invalid("q", f"not a regular expression ({error})") from None
        return cls(text, is_expression, flags)

    def spans(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """Where each text matches, as [begin, end)."""
        if self.is_expression:
            found: list[list[list[int]]] = self._run(texts, None)
            return found
        pattern = re.compile(re.escape(self.text), self.flags)
        return [[list(match.span()) for match in pattern.finditer(text)] for text in texts]

    def replaced(self, texts: Sequence[str], replacement: str) -> list[str]:
        """In an expression's replacement a group stands as \\1."""
        if self.is_expression:
            found: list[str] = self._run(texts, replacement)
            return found
        pattern = re.compile(re.escape(self.text), self.flags)
        return [pattern.sub(lambda match: replacement, text) for text in texts]

    def _run(self, texts: Sequence[str], replacement: str | None) -> Any:
        given = {"pattern": self.text, "flags": self.flags, "replacement": replacement, "texts": list(texts)}
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        try:
            done = subprocess.run(command, input=json.dumps(given).encode(), capture_output=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise invalid("q", f"took more than {_SECONDS:g} s", "look for something simpler") from None
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
            raise RequestError(422, "invalid", f"replacement: {last[0][:200]}", "write \\1 for the first group")
        return json.loads(done.stdout)
