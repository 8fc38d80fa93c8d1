"""The order in which a PAGE or ALTO file says that its regions are read, which need not be the one they stand in."""

from __future__ import annotations

from collections.abc import Iterator

from spikehtr.data.formats import xml
from spikehtr.data.formats.xml_pages import PageLine


def in_reading_order(root: xml.Element, lines: list[PageLine]) -> list[PageLine]:
    """Lines in the order of the file's <ReadingOrder>; what that does not name comes after it, as it stands.

    It names regions, in ALTO lines too. Within what is named, and in a file without one, lines stay as they stand.
    """
    order = next(root.iter("{*}ReadingOrder"), None)
    if order is None:
        return lines
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(_named(order)))}

    def rank(line: PageLine) -> int:
        above = (line.element, *line.element.iterancestors())
        names = (element.get("id") or element.get("ID") for element in above)
        return next((ranks[name] for name in names if name in ranks), len(ranks))

    return sorted(lines, key=rank)


def _named(group: xml.Element) -> Iterator[str]:
    """The ids that a group and the groups in it refer to, first to last."""
    for part in sorted(group.iterchildren("{*}*"), key=lambda part: xml.number(part.get("index")) or 0):
        name = part.get("regionRef") or part.get("REF")
        if name:
            yield name
        yield from _named(part)
