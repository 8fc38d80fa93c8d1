"""One self-contained HTML page: headings, tables, figures. No script, no font, nothing from outside, all text escaped.

Readable on a phone and in print, light or dark as the reader's system is.
"""

from __future__ import annotations

import base64
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.version import __version__, code_digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #666; --rule: #d5d5d5; --band: #f5f5f3;
  --mark: #ffd9cf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181a; --soft: #a0a0a0; --rule: #3a3d40;
  --band: #202326; --mark: #7a2f1d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; } h3 { font-size: 1rem; }
.wide { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; text-align: left; }
th { color: var(--soft); font-weight: 600; }
.r { text-align: right; } .c { text-align: center; }
figure { margin: 1rem 0; break-inside: avoid; }
figure img { max-width: 100%; height: auto; border: 1px solid var(--rule); background: #fff; }
figcaption, footer { color: var(--soft); font-size: .9rem; }
pre { background: var(--band); padding: .5rem .75rem; overflow-x: auto; white-space: pre-wrap; }
pre, .mono { font: .9rem/1.5 ui-monospace, monospace; }
mark { background: var(--mark); color: inherit; border-bottom: 2px solid currentColor; }
summary { cursor: pointer; }
footer { margin-top: 3rem; border-top: 1px solid var(--rule); }
@media print { body { max-width: none; font-size: 10pt; } details::details-content { content-visibility: visible; } }
"""


class Fragment(str):
    """HTML that is safe already: `marked` makes it; any other string is escaped."""

    __slots__ = ()


class HtmlReport:
    """A page that is put together from the top down. Every method takes plain text, or a Fragment."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = [f"<h1>{escape(title)}</h1>"]

    def heading(self, text: str, level: int = 2) -> None:
        self._parts.append(f"<h{level}>{_safe(text)}</h{level}>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{_safe(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f"<pre><code>{_safe(text)}</code></pre>")

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> None:
        """`align` has a letter a column: l, r or c; columns it does not reach are l. An empty `head` leaves it out."""
        top = f"<thead>{_row('th', head, align)}</thead>" if head else ""
        body = "".join(_row("td", row, align) for row in rows)
        self._parts.append(f'<div class="wide"><table>{top}<tbody>{body}</tbody></table></div>')

    def figure(self, picture: bytes | Figure, alt: str, caption: str = "") -> None:
        """`picture`: the bytes of a PNG, or a matplotlib figure; `alt` says what it shows to who cannot see it."""
        packed = base64.b64encode(picture if isinstance(picture, bytes) else _drawn(picture)).decode()
        image = f'<img src="data:image/png;base64,{packed}" alt="{escape(alt)}">'
        below = f"<figcaption>{_safe(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{image}{below}</figure>")

    @contextmanager
    def details(self, summary: str) -> Iterator[None]:
        """What is added inside the `with` block folds away behind `summary`."""
        self._parts.append(f"<details><summary>{_safe(summary)}</summary>")
        try:
            yield
        finally:
            self._parts.append("</details>")

    def foot(self, facts: Mapping[str, object]) -> None:
        """Small print, for `environment()`."""
        told = ", ".join(f"{name} {value}" for name, value in facts.items())
        self._parts.append(f"<footer><p>{escape(told)}</p></footer>")

    def html(self) -> str:
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style>"
        )
        body = "\n".join(self._parts)
        return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'

    def save(self, path: Path) -> None:
        try:
            with whole_file(path) as temporary:
                # A surrogate that came with odd data is shown as what it is rather than stopping the report.
                temporary.write_text(self.html(), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None


def marked(text: str, places: Iterable[int]) -> Fragment:
    """`text` with the characters at these places marked; neighbours share one mark."""
    wanted = set(places)
    parts: list[str] = []
    for place, character in enumerate(text):
        if place in wanted and place - 1 not in wanted:
            parts.append("<mark>")
        # A marked space would be a thin bar, and two of them one.
        parts.append("\u2423" if character == " " and place in wanted else escape(character))
        if place in wanted and (place + 1 not in wanted or place + 1 == len(text)):
            parts.append("</mark>")
    return Fragment(f'<span class="mono" dir="auto">{"".join(parts)}</span>')


def environment(device: str | None = None) -> dict[str, str]:
    """What a result was made with: program and its code's digest, Python, torch, system and the device's name."""
    import torch

    name = _processor()
    if device is not None and torch.device(device).type == "cuda" and torch.cuda.is_available():
        name = torch.cuda.get_device_name(device)
    system = f"{platform.system()} {platform.machine()}"
    python = ".".join(map(str, sys.version_info[:3]))
    program = {"spikehtr": __version__, "code": code_digest()}
    return program | {"python": python, "torch": torch.__version__, "platform": system, "device": name}


def _processor() -> str:
    """The processor's name; Python knows it on some systems only."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(errors="replace").splitlines() if facts.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _safe(text: object) -> str:
    return text if isinstance(text, Fragment) else escape(str(text))


def _row(tag: str, cells: Sequence[object], align: str) -> str:
    made = []
    for place, cell in enumerate(cells):
        side = align[place : place + 1]
        made.append(f"<{tag}{f' class={side}' if side in ('r', 'c') else ''}>{_safe(cell)}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"


def _drawn(figure: Figure) -> bytes:
    png = BytesIO()
    figure.savefig(png, format="png", bbox_inches="tight")
    return png.getvalue()
