"""Whatever happens to a folder of results, in whatever order: what a person wrote is there afterwards.

Every byte string that a person wrote into a file is in that file, or in a backup beside it, until that person writes
something else there or deletes it. Pages are read by a stub, so that many sequences can be tried.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, currently_in_test_context, event, given, settings
from hypothesis import strategies as st
from PIL import Image

from spikehtr.pages.inputs import find_sources
from spikehtr.pages.origins import FILE, SUFFIX, Format
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.page_source import PageJob
from spikehtr.pages.page_stages import PageResult
from spikehtr.pages.transcribe_run import TranscribeRun, transcribe
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word

TOUCHES = {"open", "os.rename", "os.link", "os.remove", "os.chmod", "os.mkdir"}
NAMES = [f"{stem}{suffix}" for stem in "ab" for suffix in (*SUFFIX.values(), ".overlay.png")]
PLACES = [f"{folder}/{name}" for folder in ("scans", "out") for name in NAMES]


class Watch:
    """Calls a function just before the n-th time that a file of a folder is touched. Python has no way to take an
    audit hook off again, so there is one for all."""

    folder = ""
    left = -1
    then: Callable[[], None] | None = None

    @classmethod
    def hook(cls, name: str, arguments: tuple[Any, ...]) -> None:
        if cls.then is None or name not in TOUCHES or cls.folder not in str(arguments[:2]):
            return
        cls.left -= 1
        if cls.left < 0:
            then, cls.then = cls.then, None
            then()


sys.addaudithook(Watch.hook)


def stub(generation: int) -> Callable[..., Iterator[PageResult]]:
    """Reads a word on every page, another one each time."""

    def read_pages(recognizer: None, jobs: Iterable[PageJob], how: ReadOptions, *more: object) -> Iterator[PageResult]:
        for job in jobs:
            letters = tuple(Glyph(letter, 0.9, (1.0, 1.0, 8.0, 8.0)) for letter in f"reading{generation}")
            line = TextLine("l", ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0)), (), (Word(letters),), 0.9)
            page = Page(job.source.origin.name, 12, 10, (Region("r", (line,)),), "stub")
            yield PageResult(job, page, Image.new("L", (12, 10), 99), [])

    return read_pages


@dataclass(frozen=True)
class Read:
    form: Format
    output: str
    whole_folder: bool
    resume: bool
    overwrite: bool
    overlay: bool


@dataclass
class World:
    """A folder with scans and results, and what a person wrote there."""

    base: Path
    written: dict[str, set[bytes]] = field(default_factory=dict)  # by the file, as long as it must be found
    count: int = 0
    last: Read | None = None

    def __post_init__(self) -> None:
        (self.base / "scans").mkdir(parents=True)
        (self.base / "out").mkdir()
        for shade, name in enumerate("ab"):
            Image.new("L", (12, 10), 100 + shade).save(self.base / "scans" / f"{name}.png")

    def number(self) -> int:
        self.count += 1
        return self.count

    def place(self, place: str | int) -> str:
        """A file by its path, or by its number among the results that are there."""
        if isinstance(place, str):
            return place
        there = [name for name in PLACES if (self.base / name).is_file()] or PLACES
        return there[place % len(there)]

    def read(self, how: Read) -> TranscribeRun:
        self.last = how
        scans = self.base / "scans"
        inputs = [scans] if how.whole_folder else [scans / "a.png", scans / "b.png"]
        sources, failures, _ = find_sources(map(str, inputs), self.base / how.output)
        assert not failures
        run = TranscribeRun(
            how.form,
            self.base / how.output,
            how.resume,
            how.overlay,
            overwrite=how.overwrite,
        )
        with patch("spikehtr.pages.transcribe_run.read_pages", stub(self.number())):
            for _ in transcribe(None, sources, None, run):  # type: ignore[arg-type]
                pass
        return run

    def edit(self, place: str | int, way: str) -> None:
        """With an editor that sets the time stamps back."""
        place = self.place(place)
        path = self.base / place
        before = path.read_bytes() if path.is_file() else b""
        stamps = path.stat() if path.is_file() else None
        self.written.setdefault(place, set()).discard(before)  # replaced by the person
        after = {"append": before, "mend": before.replace(b"reading", b"mended"), "anew": b""}[way.split(",")[0]]
        after += b" by hand %d" % self.number()
        if way.endswith("renamed"):
            swap = path.with_name(".swap")
            swap.write_bytes(after)
            swap.replace(path)
        else:
            path.write_bytes(after)
        if stamps:
            os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
        self.written[place].add(after)

    def delete(self, place: str | int) -> None:
        place = self.place(place)
        path = self.base / place
        if path.is_file():
            self.written.get(place, set()).discard(path.read_bytes())
            path.unlink()

    def spoil_notes(self, folder: str, share: float | None) -> None:
        notes = self.base / folder / FILE
        if notes.is_file():
            data = notes.read_bytes()
            notes.unlink() if share is None else notes.write_bytes(data[: round(share * len(data))])

    def move(self, copy: bool, hidden_too: bool) -> None:
        new = self.base.with_name(f"{self.base.name.partition('-')[0]}-{self.number()}")
        if copy:
            skip = None if hidden_too else shutil.ignore_patterns(".*")
            shutil.copytree(self.base, new, ignore=skip)
        else:
            self.base.rename(new)
        self.base = new

    def check(self) -> None:
        for place, contents in self.written.items():
            path = self.base / place
            backups = [file for file in path.parent.iterdir() if file.name.startswith(f"{path.name}.bak")]
            found = {file.read_bytes() for file in [path, *backups] if file.is_file()}
            assert contents <= found, f"{place}: lost {contents - found}"


def plain(world: World, how: Read) -> None:
    """Read in peace: beside keeping what is not ours, everything else is done."""
    before = {path: path.read_bytes() for path in (world.base / how.output).iterdir() if path.is_file()}
    run = world.read(how)
    if how.whole_folder or any("the name was taken" in remark for remark in run.remarks):
        return
    assert not run.failures
    for stem in "ab":
        path = world.base / how.output / f"{stem}{SUFFIX[run.form]}"
        was = before.get(path)
        is_new = f"reading{world.count}<".encode() in path.read_bytes().replace(b'"', b"<").replace(b"\n", b"<")
        if was is None:
            assert is_new
        elif was in world.written.get(f"{how.output}/{path.name}", set()):
            assert not is_new or how.overwrite
            assert is_new or how.resume or not how.overwrite
        elif run.form != "text":  # what we wrote and nobody touched, whatever became of the notes
            assert is_new is not how.resume


def again(world: World, resume: bool, overwrite: bool) -> None:
    """The command that was given last, once more."""
    if world.last is not None:
        plain(world, replace(world.last, resume=resume, overwrite=overwrite))


def corrected(world: World, place: str | int, way: str, resume: bool, overwrite: bool) -> None:
    """The story that this is about: a result is corrected, and the same command given again."""
    world.edit(place, way)
    again(world, resume, overwrite)


def event_of_hypothesis(name: str) -> None:
    if currently_in_test_context():
        event(name)


def killed(world: World, how: Read, at: int) -> bool:
    """Another process reads, and is killed just before it touches a file for the n-th time; whether it came to that."""
    world.last = how
    child = os.fork()
    if child == 0:
        try:
            Watch.folder, Watch.left = str(world.base), at
            Watch.then = lambda: os.kill(os.getpid(), signal.SIGKILL)
            world.read(how)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    world.number()
    if os.WIFSIGNALED(status):
        event_of_hypothesis("killed")
    return os.WIFSIGNALED(status)


def disturbed(world: World, how: Read, at: int, place: str | int, way: str) -> bool:
    """A person saves a file while the run is at it; whether the run took long enough for that."""
    Watch.folder, Watch.left, Watch.then = str(world.base), at, lambda: world.edit(place, way)
    try:
        world.read(how)
    finally:
        late, Watch.then = Watch.then is not None, None
    if not late:
        event_of_hypothesis("saved during a run")
    return not late


reads = st.builds(
    Read,
    st.sampled_from(list(SUFFIX)),
    st.sampled_from(["out", "out", "scans"]),
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.sampled_from([False, False, True]),
    st.booleans(),
)
places = st.one_of(st.integers(0, 9), st.sampled_from(PLACES))  # mostly of what is there
ways = st.sampled_from(["append", "mend", "anew", "append, renamed", "mend, renamed"])
moments = st.integers(0, 70)
steps = st.one_of(
    st.tuples(st.just(plain), reads),
    st.tuples(st.just(again), st.booleans(), st.booleans()),
    st.tuples(st.just(World.edit), places, ways),
    st.tuples(st.just(corrected), places, ways, st.booleans(), st.booleans()),
    st.tuples(st.just(corrected), st.integers(0, 9), ways, st.just(False), st.just(False)),
    st.tuples(st.just(disturbed), reads, moments, places, ways),
    st.tuples(st.just(killed), reads, moments),
    st.tuples(st.just(World.delete), places),
    st.tuples(
        st.just(World.spoil_notes), st.sampled_from(["out", "scans"]), st.one_of(st.none(), st.floats(0, 1, width=16))
    ),
    st.tuples(st.just(World.move), st.booleans(), st.booleans()),
)


def sequences(shortest: int, longest: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Something is read first, so that there are results from the beginning."""
    first = st.tuples(st.just(plain), reads)
    return st.builds(lambda one, more: [one, *more], first, st.lists(steps, min_size=shortest, max_size=longest))


def never_lost(sequence: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name).resolve() / "world")
        for step, *arguments in sequence:
            step(world, *arguments)
            world.check()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("way", ["mend", "anew", "mend, renamed"])
@pytest.mark.parametrize("form", ["page", pytest.param("text", marks=pytest.mark.slow)])
def test_an_edit_at_any_moment_of_a_run_is_kept(form: Format, way: str, overwrite: bool, tmp_path: Path) -> None:
    """Whatever the run is about to do with a file."""
    how = Read(form, "out", False, False, overwrite, False)
    for moment in itertools.count():
        world = World(tmp_path / f"{moment}")
        world.read(how)
        came = disturbed(world, how, moment, f"out/a{SUFFIX[form]}", way)
        world.check()
        if not came:
            break
        world.read(how)
        world.check()
    assert moment > 30, "a run touches its files often"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a fork of this process")
@pytest.mark.parametrize("form", ["page", pytest.param("text", marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_of_a_run_loses_no_edit(form: Format, tmp_path: Path) -> None:
    how = Read(form, "out", False, False, True, False)
    for moment in itertools.count():
        world = World(tmp_path / f"{moment}")
        world.read(how)
        world.edit(f"out/a{SUFFIX[form]}", "mend")
        came = killed(world, how, moment)
        world.check()
        if not came:
            break
        world.read(replace(how, resume=True, overwrite=False))
        world.check()
        for stem in "ab":
            assert (world.base / "out" / f"{stem}{SUFFIX[form]}").stat().st_size, "done after all"
    assert moment > 30


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a fork of this process")
@settings(max_examples=25, suppress_health_check=QUIET)
@given(sequences(3, 12))
def test_no_sequence_loses_an_edit(sequence: list[tuple[Any, ...]]) -> None:
    never_lost(sequence)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a fork of this process")
@settings(max_examples=300, suppress_health_check=QUIET)
@given(sequences(6, 20))
def test_none_of_many_sequences_loses_an_edit(sequence: list[tuple[Any, ...]]) -> None:
    never_lost(sequence)
