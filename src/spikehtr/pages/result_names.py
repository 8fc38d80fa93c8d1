"""What the result of each page is called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from spikehtr.data.formats.helpers import page_name
from spikehtr.pages.origins import Origin, Origins
from spikehtr.pages.page_source import PageJob, Source, count_pages


class ResultNames:
    """Names of results: those of the sources, with the page's number where there are several, never the same twice, nor
    that of another source's result from before."""

    def __init__(self, origins: Origins | None = None) -> None:
        self._taken: set[str] = set()
        self.origins = origins or Origins(None)

    def jobs(self, source: Source) -> list[PageJob]:
        """The pages of a source. What cannot be opened is an error."""
        count = count_pages(source)
        place = source.place if source.kind == "iiif" else source.place.with_suffix("")
        stem = (place.with_name(page_name(source.place)) if source.kind == "xml" else place).as_posix()
        names = (
            [stem] if count == 1 and source.kind != "iiif" else [f"{stem}-{index + 1:04d}" for index in range(count)]
        )
        taken = [
            (index, name, self._take(name, source.origin))
            for index, name in enumerate(names)
            if index not in source.given
        ]
        return [PageJob(source, index, unique, unique != name, count) for index, name, unique in taken]

    def kept(self, job: PageJob) -> PageJob:
        """The job under its name, or under a new one where another run has given it to another source meanwhile."""
        if not self.origins.another(job.name, job.source.origin):
            return job
        return replace(job, name=self._take(job.name, job.source.origin), renamed=True)

    def _take(self, name: str, source: Origin) -> str:
        # A source that was read before keeps its name. On some disks A and a are one file.
        before = itertools.takewhile(self.origins.noted, _numbered(name))
        own = (one for one in before if one.lower() not in self._taken and self.origins.owns(one, source))
        free = (one for one in _numbered(name) if one.lower() not in self._taken)
        unique = next(own, None) or next(one for one in free if not self.origins.another(one, source))
        self._taken.add(unique.lower())
        return unique


def _numbered(name: str) -> Iterator[str]:
    """name, name~2, name~3 and so on."""
    yield name
    yield from (f"{name}~{number}" for number in itertools.count(2))
