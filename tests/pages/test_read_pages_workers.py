"""Pages read by several processes: what one page at a time gives, in order, whatever happens to one of them."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crash_help import POISON, SLOW, find_or_crash
from pages_help import random_recognizer, simple_page
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.page_source import Failure, PageJob
from spikehtr.pages.page_stages import PageResult
from spikehtr.pages.read_pages import read_pages
from spikehtr.pages.result_names import ResultNames
from spikehtr.pages.shard import Shard
from spikehtr.pages.worker_pool import WorkerPool
from spikehtr.results import Page

RECOGNIZER = random_recognizer()
FORM = PageFormat("page")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[PageJob]:
    folder = tmp_path_factory.mktemp("pages")
    for number in range(7):
        image, _ = simple_page(1 + number % 3, size=(900, 400), seed=number)
        if number in (2, 4):
            image.putpixel((0, 0), POISON if number == 2 else SLOW)
        image.save(folder / f"{number}.png")
    (folder / "5.png").write_bytes((folder / "5.png").read_bytes()[:5000])  # cut short
    sources, _, _ = find_sources([str(folder)])
    names = ResultNames()
    return [job for source in sources for job in names.jobs(source)]


def shown(results: list[PageResult]) -> list[str]:
    return [one.result.reason if isinstance(one.result, Failure) else str(one.shown) for one in results]


def test_processes_give_what_one_page_at_a_time_gives_but_for_the_page_that_crashes(
    jobs: list[PageJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    together = list(read_pages(RECOGNIZER, jobs, ReadOptions(find_or_crash, workers=2, batch_size=2), form=FORM))
    alone: list[PageResult] = []
    for job in jobs:
        if job.name != "2":
            alone += read_pages(RECOGNIZER, [job], ReadOptions(find_or_crash), form=FORM)
    assert [one.job.name for one in together] == [str(number) for number in range(7)], "in order"
    crashed = together.pop(2)
    assert isinstance(crashed.result, Failure)
    assert "exit code 9" in crashed.result.reason
    assert shown(together) == shown(alone)
    assert [type(one.result) for one in together].count(Page) == 5
    assert together[0].result == alone[0].result


def test_without_a_recognizer_lines_are_found_by_processes_too(jobs: list[PageJob]) -> None:
    results = list(read_pages(None, jobs, ReadOptions(find_or_crash, workers=2)))
    assert [len(one.result.lines) if isinstance(one.result, Page) else None for one in results] == [
        1,
        2,
        None,
        1,
        2,
        None,
        1,
    ]


def test_a_segmenter_that_cannot_be_sent_is_used_by_threads(jobs: list[PageJob]) -> None:
    seen: list[tuple[int, int]] = []

    def find(page: Image.Image) -> list[object]:
        seen.append(page.size)
        return []

    results = list(read_pages(RECOGNIZER, jobs, ReadOptions(find, workers=2)))  # type: ignore[arg-type]
    assert len(seen) == 6
    assert len(results) == 7


def test_few_pages_start_no_process(jobs: list[PageJob]) -> None:
    with patch.object(WorkerPool, "__init__", side_effect=AssertionError):
        assert len(list(read_pages(RECOGNIZER, jobs[:2], ReadOptions(find_or_crash, workers=2)))) == 2


def test_no_more_pages_are_taken_than_are_to_be_held_at_once(jobs: list[PageJob]) -> None:
    taken = 0

    def many() -> object:
        nonlocal taken
        for _ in range(40):
            for job in (jobs[0], jobs[5]):
                taken += 1
                yield job

    most = done = 0
    with patch("spikehtr.pages.read_pages.POOLED_BATCHES", 1):
        for _ in read_pages(None, many(), ReadOptions(find_or_crash)):  # type: ignore[arg-type]
            done += 1
            most = max(most, taken - done)
    assert (taken, done) == (80, 80)
    assert most <= 20


@given(st.text(max_size=30), st.integers(1, 40))
def test_a_page_is_in_exactly_one_shard(name: str, of: int) -> None:
    assert sum(Shard(number, of).has(name) for number in range(1, of + 1)) == 1


def test_shards_are_of_like_size() -> None:
    sizes = [sum(Shard(number, 8).has(f"box-{page:05d}") for page in range(8000)) for number in range(1, 9)]
    assert min(sizes) > 850
    assert max(sizes) < 1150


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "-1/4", "1/0", "a/b", "1/2/3", "1.5/2"])
def test_what_is_no_shard_is_told(text: str) -> None:
    with pytest.raises(SpikeHTRError, match="--shard"):
        Shard.parse(text)


def test_a_shard_is_parsed() -> None:
    assert Shard.parse(" 3/16 ") == Shard(3, 16)


def test_paths_of_folders_do_not_decide_a_shard(tmp_path: Path) -> None:
    """The same scans below another folder, on another machine: the same shards."""
    for box in ("a", "b"):
        (tmp_path / box).mkdir()
        for number in range(6):
            Image.new("L", (40, 30)).save(tmp_path / box / f"{number}.png")
    parts = []
    for box in ("a", "b"):
        names = ResultNames()
        sources = find_sources([str(tmp_path / box)]).sources
        parts.append([Shard(1, 2).has(job.name) for source in sources for job in names.jobs(source)])
    assert parts[0] == parts[1]
