"""READ2016, as the archives of the ICFHR 2016 competition unpack.

They hold `PublicData/Training`, `PublicData/Validation` and `Test-ICFHR-2016`, each with PAGE XML in `page` (doubled in
some copies: `page/page`) and images in `Images` (or doubled, or beside `page`). The part's name gives the split.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from spikehtr.data.formats import page_xml, xml
from spikehtr.data.formats.helpers import split_of, walk
from spikehtr.data.formats.xml_pages import XML
from spikehtr.data.samples import ImportReport, Sample

LOOKS_FOR = "folders Training, Validation or Test with PAGE XML in page/ (the ICFHR 2016 archives)"


def recognises(path: Path) -> bool:
    return path.is_dir() and any(
        file.parent.name.lower() == "page" and split_of(file, path) and xml.sniff(file) == "PcGts"
        for file in islice(walk(path, XML), 50)
    )


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    return page_xml.read(path, report)
