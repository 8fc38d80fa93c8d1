"""What to read: files, folders, globs and addresses, in any mixture, as sources of pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path, PurePath
from typing import NamedTuple

from spikehtr.data.formats import alto_xml, page_xml, xml
from spikehtr.data.formats.helpers import IMAGE_SUFFIXES, page_name, walk
from spikehtr.data.formats.xml_pages import ImageFinder
from spikehtr.data.images import ImageError
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import ClientOptions
from spikehtr.pages.iiif.manifests import is_address
from spikehtr.pages.page_images import SUFFIX as IMAGE
from spikehtr.pages.page_images import made_from
from spikehtr.pages.page_source import TIFF, Failure, Kind, Source, count_pages
from spikehtr.pages.remote import is_manifest_file, remote_files

ROOTS = {"PcGts": page_xml.parse, "alto": alto_xml.parse}  # what PAGE and ALTO files are read with
OVERLAY = ".overlay.png"  # pages with their lines drawn in: results, never inputs
SUFFIXES = IMAGE_SUFFIXES | {".pdf", ".xml"}


class FoundInputs(NamedTuple):
    """What there is to read, what could not be found or looked into, and what is worth knowing."""

    sources: list[Source]
    failures: list[Failure]
    remarks: list[str]


def find_sources(inputs: Iterable[str], output: Path | None = None, client: ClientOptions | None = None) -> FoundInputs:
    """Every file once, in the order asked for; folders in name order. Images that an XML file names go with it.

    `output`: the folder of the results, which are no inputs where it lies within a folder that is.
    `client`: how addresses, IIIF manifests among them, are fetched.
    """
    sources: dict[Path, Source] = {}
    failures: list[Failure] = []
    for given in inputs:
        if not given.strip():  # a variable of a script that was never set; as a path it would be the working folder
            failures.append(Failure("an empty name", "name files or folders; `.` is the folder you are in"))
            continue
        path = Path(given)
        if is_address(given) or is_manifest_file(path):
            for source in _remote(given, client or ClientOptions(), failures):
                sources.setdefault(Path(source.address), source)
            continue
        paths = [path]
        if has_magic(given) and not path.exists():
            found = sorted(glob(given, recursive=True))  # noqa: PTH207 (patterns with a root)
            paths = [Path(name) for name in found] or paths
        for one in paths:
            for source in _at(one, output, failures):
                sources.setdefault(source.path.resolve(), source)
    left, passed = _without_named_images(list(sources.values()))
    return FoundInputs(left, failures, passed)


def _remote(address: str, client: ClientOptions, failures: list[Failure]) -> Iterator[Source]:
    """A manifest, those of a collection, or a file that is fetched."""
    missing: list[str] = []
    try:
        for found in remote_files(address, client, missing):
            if found.path is None:
                yield Source(Path(found.address), "iiif", found.place, address=found.address, client=client)
            else:
                kind: Kind = "pdf" if found.place.suffix == ".pdf" else "image"
                yield Source(found.path, kind, found.place, address=found.address, client=client)
    except SpikeHTRError as error:
        missing.append(str(error))
    failures += [Failure(address, message.removeprefix(f"{address}: ")) for message in missing]


def _at(path: Path, output: Path | None, failures: list[Failure]) -> list[Source]:
    """The file, or all files of the folder."""
    if not path.exists():
        reason = "a link to what is not there" if path.is_symlink() else "nothing of this name is there"
        failures.append(Failure(str(path), reason))
        return []
    if not path.is_dir():
        return [_source(path, PurePath(path.name))]
    report = ImportReport()
    sources = list(_in_folder(path, output, report))
    failures += [Failure(problem.where, problem.message) for problem in report.problems]
    if not sources and not report.problems:
        failures.append(Failure(str(path), "the folder holds no image, PDF, PAGE or ALTO file"))
    return sources


def _source(path: Path, place: PurePath) -> Source:
    suffix = path.suffix.lower()
    return Source(path, "pdf" if suffix == ".pdf" else "xml" if suffix == ".xml" else "image", place)


def _in_folder(folder: Path, output: Path | None, report: ImportReport) -> Iterator[Source]:
    results = output.resolve() if output is not None else None
    if results is not None and folder.resolve() not in results.parents:  # elsewhere, or the very folder that is read
        results = None
    for path in walk(folder, frozenset(SUFFIXES), report):
        if path.name.endswith(OVERLAY) or (results is not None and path.parent.resolve().is_relative_to(results)):
            continue
        if path.suffix.lower() != ".xml" or xml.sniff(path) in ROOTS:  # other XML in a folder is none of our business
            yield _source(path, path.relative_to(folder))


def _without_named_images(sources: list[Source]) -> tuple[list[Source], list[str]]:
    """Without the images, or the pages of images, that XML files among the sources name; and without the XML files of
    PDFs among the sources, which cannot give their lines: a remark for each PDF. The page images that we made of a PDF
    or TIFF among the sources, and what names them, are results of that file, as it is itself read."""
    made = _made_of(sources)
    finder = ImageFinder()
    named: dict[Path, set[int]] = {}
    files: dict[tuple[Path, int], list[int]] = {}  # of each page, where its XML files stand in `sources`
    documents = {source.path.resolve() for source in sources if source.kind == "pdf"}
    left: list[Source | None] = list(sources)
    passed = Counter[Path]()
    for place, source in enumerate(sources):
        if source.kind == "xml":
            root = xml.load(source.path, ImportReport())
            if root is not None and (parse := ROOTS.get(xml.name_of(root))):
                content = parse(root)
                image = finder.find(source.path, content.image)
                result_of = made.get(image.resolve()) if image else None
                if image and (result_of or image.resolve() in documents):
                    left[place] = None
                    passed[result_of or image] += 1
                elif image:
                    left[place] = replace(source, image=image)
                    index = (content.frame or 1) - 1
                    named.setdefault(image.resolve(), set()).add(index)
                    files.setdefault((image.resolve(), index), []).append(place)
    remarks = [
        f"{file}: it is read itself; PAGE or ALTO files of its pages are passed over: {count}"
        for file, count in passed.items()
    ]
    left = [None if source and source.path.resolve() in made else source for source in left]
    for places in files.values():
        if len(places) > 1:
            remarks += _of_one_page(places, left)
    return [part for source in left if source and (part := _left_of(source, named))], remarks


def _of_one_page(places: list[int], left: list[Source | None]) -> list[str]:
    """What to say of several XML files of one page. Of NAME.xml and NAME.alto.xml, results in two formats, the first is
    read and the other taken out of `left`."""
    remarks = []
    first: dict[Path, Source] = {}  # by folder and page
    sources = [(source, place) for place in places if (source := left[place])]
    for source, place in sorted(sources, key=lambda entry: len(entry[0].path.name)):
        before = first.setdefault(source.path.with_name(page_name(source.path)), source)
        if before is not source:
            left[place] = None
            remarks.append(
                f"{source.path}: passed over, {before.path.name} is of the same page; name it alone to read it"
            )
    several = [str(source.path) for source in first.values()]
    if len(several) > 1:
        remarks.append(f"{', '.join(several)}: of the same page, which is read by each of them")
    return remarks


def _made_of(sources: list[Source]) -> dict[Path, Path]:
    """The images among the sources that are pages of other sources, written by us: each with its source."""
    known = {source.path.resolve(): source.path for source in sources}
    if not any(path.suffix.lower() in (".pdf", *TIFF) for path in known):  # and no image need be opened
        return {}
    pairs = ((path, made_from(path)) for path in known if path.suffix.lower() == IMAGE)
    return {path: known[file.resolve()] for path, file in pairs if file is not None and file.resolve() in known}


def _left_of(source: Source, named: dict[Path, set[int]]) -> Source | None:
    """A source without the pages that are named; None where that leaves nothing."""
    given = named.get(source.path.resolve()) if source.kind == "image" else None
    if given is None:
        return source
    try:
        count = count_pages(source)
    except ImageError:  # told when its XML file is read
        return None
    return None if count == 1 or given.issuperset(range(count)) else replace(source, given=frozenset(given))
