"""Small files in the layouts that the readers know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from spikehtr.data.samples import ImportReport, Sample

SHARED = Path(__file__).parents[4] / "shared" / "data"
PAGE_2013 = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15"
POLYGON = "10,10 90,10 90,30 10,30"

Reader = Callable[[Path, ImportReport], Iterator[Sample]]


def real(name: str) -> Path:
    """A folder of the project's open data; skips the test where it is not there."""
    if not (SHARED / name).is_dir():
        pytest.skip("the real data are not here: shared/data beside the checkout")
    return SHARED / name


def gather(reader: Reader, path: Path) -> tuple[list[Sample], ImportReport]:
    report = ImportReport()
    return list(reader(path, report)), report


def kinds(report: ImportReport) -> dict[str, int]:
    """What was reported, by kind."""
    return {kind: number for (_, kind), number in report.counts.items()}


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def draw(path: Path, size: tuple[int, int] = (40, 20)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 220).save(path)
    return path


def page_line(name: str = "l1", text: str | None = "Hello", coords: str | None = POLYGON, more: str = "") -> str:
    points = "" if coords is None else f'<Coords points="{coords}"/>'
    words = "" if text is None else f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv>"
    return f'<TextLine id="{name}">{points}{more}{words}</TextLine>'


def page_xml(*lines: str, image: str = "p.png", size: tuple[int, int] = (100, 200), namespace: str = PAGE_2013) -> str:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{namespace}">'
        f'<Page imageFilename="{image}" imageWidth="{size[0]}" imageHeight="{size[1]}">'
        f'<TextRegion id="r1">{"".join(lines)}</TextRegion></Page></PcGts>'
    )


def page(folder: Path, *lines: str, name: str = "p", **options: object) -> Path:
    """A PAGE file and its image of 100 x 200 pixels."""
    draw(folder / f"{name}.png", (100, 200))
    return write(folder / f"{name}.xml", page_xml(*lines, image=f"{name}.png", **options))  # type: ignore[arg-type]
