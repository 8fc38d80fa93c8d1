"""Making a store from any source: in constant memory, resumable, and never half-written under its final name.

Work is done in parts of some hundred lines, each a small Arrow file that appears only when it is finished. A run that
was killed leaves its parts, and the next one over the same sources goes on behind them. At the end the parts are
joined, the result takes its name, and the parts go.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from spikehtr.data.fingerprint import fingerprint
from spikehtr.data.formats import locate, read
from spikehtr.data.geometry import scale_line, shrink_line
from spikehtr.data.images import ImageError, line_image
from spikehtr.data.samples import (
    NOTHING_FOUND,
    ImportReport,
    Problem,
    Sample,
    corrected_elsewhere_remark,
    machine_lines_remark,
    printable,
)
from spikehtr.data.store import VERSION, LineStore, StoreError, is_store
from spikehtr.data.store_parts import PART, Row, alone, claim, join_parts, pack, parts_of, write_part
from spikehtr.errors import SpikeHTRError


class Shape(NamedTuple):
    """What is done to every line of a store."""

    height: int
    max_width: int | None
    straightened: bool
    machine_lines: bool = False  # whether lines are taken that a model read and no person changed or confirmed


Progress = Callable[[int], None]


def compile_store(
    specs: Sequence[str | Path],
    output: Path,
    height: int = 64,
    max_width: int | None = None,
    progress: Progress | None = None,
    straighten: bool = False,
    machine_lines: bool = False,
) -> tuple[LineStore, ImportReport]:
    """Read `specs` (paths or `format:path`) into the store `output`; the open store and what could not be used.

    With `max_width` lines are fitted to it once and for all: smaller and quicker to read, but of use at that width
    only. With `straighten` they are made level, as `data.straighten` asks. With `machine_lines` those whose text is a
    model's are taken, too. `progress` is called with the number of samples done so far. Of two programs that write the
    same store, one waits for the other.
    """
    if not output.parent.is_dir():
        raise SpikeHTRError(f"{output}: the folder {output.parent} does not exist; make it first")
    with alone(output):
        return _compile(specs, output, Shape(height, max_width, straighten, machine_lines), progress)


def _compile(
    specs: Sequence[str | Path], output: Path, shape: Shape, progress: Progress | None
) -> tuple[LineStore, ImportReport]:
    _check_stores(specs, shape)
    report = ImportReport()
    parts = parts_of(output)
    claim(parts, _key(specs, shape))
    samples = _all_samples(specs, report, shape.machine_lines)
    done = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # decoding and resizing leave Python's lock
        for number in range(1 << 30):
            chunk = list(islice(samples, PART))
            if not chunk:
                break
            part = parts / f"{number:06d}.arrow"
            if not part.exists():
                write_part(part, list(pool.map(lambda sample: _row(sample, shape), chunk)))
            done += len(chunk)
            if progress:
                progress(done)
    if not done and report.machine_read:
        raise SpikeHTRError(f"{', '.join(map(str, specs))}: {machine_lines_remark(report.machine_read, 0)}")
    if not done:
        raise SpikeHTRError(f"no line found in {', '.join(map(str, specs))}{_reasons(report, specs)}")
    described = {
        "height": shape.height,
        "max_width": shape.max_width,
        "straightened": shape.straightened,
        "sources": [printable(spec) for spec in specs],
    }
    join_parts(parts, output, described, report)
    shutil.rmtree(parts)
    return LineStore(output), report


def _check_stores(specs: Sequence[str | Path], shape: Shape) -> None:
    """What was made level or fitted to a width once cannot be had as it was."""
    for store in _stores(specs):
        if not shape.straightened and store.straightened:
            raise SpikeHTRError(
                f"{store.path} holds straightened lines: set data.straighten=true (compile: --straighten)"
            )
        if store.max_width and shape.max_width and store.max_width * shape.height != shape.max_width * store.height:
            raise StoreError(
                f"{store.path} was compiled for a width of {store.max_width} at {store.height} pixels of height, "
                f"not for {shape.max_width} at {shape.height}: compile it again without --max-width"
            )


def _stores(specs: Sequence[str | Path]) -> Iterator[LineStore]:
    """Those of the sources that are stores."""
    for name, path in map(locate, specs):
        if name in (None, "store") and is_store(path):
            yield LineStore(path)


def scaled_again(specs: Sequence[str | Path], height: int | None) -> Iterator[str]:
    """A remark on each store whose lines are of another height than is asked for."""
    for store in _stores(specs):
        if height not in (None, store.height):
            yield (
                f"{store.path} holds lines {store.height} pixels high, scaled to {height} here from that, not from "
                f"the images; `spikehtr data compile --height {height}` does it from the images"
            )


@cache
def tell_once(text: str) -> None:
    """A remark on stderr; the same one is made only once, however often the lines are opened."""
    print(text, file=sys.stderr)


def open_lines(
    specs: Sequence[str | Path],
    height: int | None = 64,
    max_width: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = tell_once,
    straighten: bool = False,
    machine_lines: bool | None = None,
) -> LineStore:
    """A store of any sources: the file itself if it is one, else one compiled into the cache, once.

    With `height` None a store is taken as it is, whatever its lines are like. A store of another height serves, too:
    its lines are scaled as images of that height would be, into the cache. Lines whose text is a model's, unchanged and
    unconfirmed, are left out unless `machine_lines` (None: not, and the caller has no option for it); a store has what
    it was made with.

    The cache is $SPIKEHTR_CACHE, or `spikehtr` in the user's cache folder. `say` is told if something was left out.
    """
    for remark in scaled_again(specs, height):
        say(remark)
    given = _given(specs, height, straighten)
    shape = Shape(height or 64, max_width, straighten, bool(machine_lines))
    store = given if given is not None else _cached(specs, shape, progress)
    if number := store.meta.get("machine_read"):
        asked = machine_lines is not None and store is not given
        say(machine_lines_remark(number, len(store), "--machine-lines" if asked else "`data compile --machine-lines`"))
    if number := store.meta.get("corrected_elsewhere"):
        say(corrected_elsewhere_remark(number, [printable(spec) for spec in specs]))
    if number := store.meta["left_out"]:
        say(left_out(number, store.meta["sources"] if store is given else [printable(spec) for spec in specs]))
    return store


def left_out(number: int, sources: Sequence[str]) -> str:
    """A remark that not all lines of the sources are there."""
    what = "line or file" if number == 1 else "lines or files"
    return f"{number} {what} of {', '.join(sources)} left out; `spikehtr data check {shlex.join(sources)}` lists them"


def _given(specs: Sequence[str | Path], height: int | None, straighten: bool) -> LineStore | None:
    """The one source, if it is a store that holds what is wanted."""
    name, path = locate(specs[0])
    if len(specs) > 1 or name not in (None, "store") or not is_store(path):
        return None
    store = LineStore(path)
    if height is None:
        return store
    if store.height != height or store.straightened != straighten:
        return None  # scaled or made level from what it holds, in the cache; what is level remains so
    return store


def cache_folder() -> Path:
    """$SPIKEHTR_CACHE, or `spikehtr` in the user's cache folder."""
    root = Path(os.environ.get("SPIKEHTR_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "spikehtr")
    return root.expanduser()


def _cached(specs: Sequence[str | Path], shape: Shape, progress: Progress | None) -> LineStore:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{_key(specs, shape)}.arrow"
    with FileLock(target.with_suffix(".lock")):  # of two programs at once, one waits and finds what the other made
        if is_store(target):
            return LineStore(target)
        return compile_store(specs, target, shape.height, shape.max_width, progress, *shape[2:])[0]


def _all_samples(specs: Sequence[str | Path], report: ImportReport, machine_lines: bool) -> Iterator[Sample]:
    for spec in specs:
        name = printable(spec)
        for sample in read(spec, report, machine_lines):
            yield sample if sample.source else replace(sample, source=name)


def _row(sample: Sample, shape: Shape) -> Row | Problem:
    """One line, decoded, cut, scaled and encoded; or why not."""
    try:
        line = scale_line(line_image(sample), shape.height, shape.straightened and not sample.straightened)
        line = shrink_line(line, shape.max_width) if shape.max_width else line
    except ImageError as error:
        return Problem("unreadable image", sample.origin, str(error), "replace the image, or take the line out")
    names = ("id", "text", "split", "document", "page", "origin", "source", "machine")
    return {name: getattr(sample, name) for name in names} | pack(line)


def _key(specs: Sequence[str | Path], shape: Shape) -> str:
    height, max_width, straightened, machine_lines = shape
    more = " level" * straightened + " machine" * machine_lines
    return fingerprint(specs, f"{VERSION} {height} {max_width} {PART}{more}")


def _reasons(report: ImportReport, specs: Sequence[str | Path]) -> str:
    """The commonest reasons why lines were left out, for a message."""
    found = [f"{kind} ({number})" for (_, kind), number in report.counts.most_common(3) if kind != NOTHING_FOUND]
    verb = "lists them" if found else "says what was looked for"
    why = f": {', '.join(found)}" if found else ""
    return f"{why}; `spikehtr data check {shlex.join(map(printable, specs))}` {verb}" if report.counts else ""
