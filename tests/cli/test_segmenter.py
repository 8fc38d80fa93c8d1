"""`spikehtr segmenter`, from folders of pages to a weight file that finds lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_help import run

from pages_help import TEXTS, baselines_of, draw_page
from spikehtr.pages.segment import network_weights as weights
from spikehtr.results.page import Page, Region, TextLine


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections of a page each, with PAGE files."""
    folder = tmp_path_factory.mktemp("pages")
    for number, name in enumerate(("letters", "registers")):
        lines = [(60.0, 90.0 + 70 * row, TEXTS[(row + number) % 4]) for row in range(4)]
        (folder / name).mkdir()
        draw_page(lines, (700, 400), seed=number).save(folder / name / "p.png")
        baselines = baselines_of(lines)
        found = tuple(
            TextLine(f"l{place}", ((x0, y - 30), (x1, y - 30), (x1, y + 12), (x0, y + 12)), ((x0, y), (x1, y)))
            for place, ((x0, y), (x1, _)) in enumerate(baselines)
        )
        page = Page("p.png", 700, 400, (Region("r", found),))
        (folder / name / "p.xml").write_text(page.to_page(), encoding="utf-8")
    return folder


TINY = ("--small", "--batch", "2", "--size", "64", "--workers", "0", "--device", "cpu")


def test_a_run_trains_scores_what_is_left_out_and_goes_on(pages: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("segmenter", "train", pages, "-o", out, "--steps", 2, "--leave-out", "letters", *TINY)
    assert done.returncode == 0, done.stderr
    assert "1 pages to train on, 1 left out" in done.stderr
    about = weights.line_network_header(out / "segmenter.safetensors")
    assert about["collections"] == ["registers"]
    assert about["scores"]["collections"] == ["letters"]
    assert about["step"] == 2
    (row,) = [json.loads(line) for line in (out / "pages.jsonl").read_text().splitlines()]
    assert (row["page"], row["lines"]) == ("letters/p", 4)
    assert "letters/p" in (out / "report.html").read_text()
    again = run("segmenter", "train", pages, "-o", out, "--steps", 2, *TINY)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    more = run(
        "segmenter", "train", pages, "-o", out, "--steps", 3, "--leave-out", "letters", "--resume", "--json", *TINY
    )
    assert "goes on from step 2" in more.stderr
    assert json.loads(more.stdout)["all"]["pages"] == 1
    assert weights.line_network_header(out / "segmenter.safetensors")["step"] == 3


def test_segmenters_are_scored_beside_each_other_in_every_view(pages: Path, tmp_path: Path) -> None:
    done = run("segmenter", "evaluate", "rules", "-d", pages, "-o", tmp_path / "plain", "--json")
    result = json.loads(done.stdout)["rules"]
    assert result["all"]["pages"] == 2
    assert result["all"]["whole"] == 1
    assert (tmp_path / "plain" / "report.html").is_file()
    cropped = run("segmenter", "evaluate", "rules", "-d", pages, "--view", "cropped", "--only", "letters")
    assert "letters" in cropped.stdout
    assert "registers" not in cropped.stdout


def test_a_page_that_cannot_be_used_is_named(pages: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    xml = (pages / "letters" / "p.xml").read_text()
    (tmp_path / "set" / "gone.xml").write_text(xml.replace("p.png", "gone.png"))
    (tmp_path / "set" / "p.xml").write_text(xml)
    (tmp_path / "set" / "p.png").write_bytes((pages / "letters" / "p.png").read_bytes())
    done = run("segmenter", "evaluate", "rules", "-d", tmp_path)
    assert done.returncode == 1
    assert "gone.xml" in done.stderr
    packed = run("segmenter", "pack", tmp_path, "-o", tmp_path / "packed")
    assert packed.returncode == 1
    assert "gone.xml" in packed.stderr
    assert run("segmenter", "evaluate", "rules", "-d", tmp_path / "packed").returncode == 0


def test_composed_pages_have_no_paper_of_a_fold_that_is_left_out(pages: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("one morning the old gardener opened his door " * 40, encoding="utf-8")
    assert run("segmenter", "pack", pages, "-o", tmp_path / "packed").returncode == 0
    compose = ("segmenter", "compose", "--text", tmp_path / "book.txt", "--like", tmp_path / "packed", "-n", 1)
    every = run(*compose, "-o", tmp_path / "all")
    kept = run(*compose, "--fold", 0, "-o", tmp_path / "0")
    assert (every.returncode, kept.returncode) == (0, 0), every.stderr + kept.stderr
    assert "2 papers" in every.stdout
    assert "1 papers" in kept.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", ".", "-o", "x"], "--minutes or --steps"),
        (["evaluate", "rules", "-d", "."], "no PAGE or ALTO"),
        (["evaluate", "crystal", "-d", "."], "no segmenter 'crystal'"),
        (["evaluate", "gone.safetensors", "-d", "."], "gone.safetensors"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = run("segmenter", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr


def test_an_export_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    from spikehtr.pages.segment.line_network import SMALL, LineNetwork

    kept = tmp_path / "kept.safetensors"
    weights.save(kept, LineNetwork(SMALL).state_dict(), SMALL, {})
    done = run("segmenter", "export", kept, "-o", tmp_path / "lines.txt")
    assert done.returncode == 2
    assert "told by its ending" in done.stderr
    assert run("segmenter", "export", kept, "-o", tmp_path / "half.safetensors").returncode == 0
    assert weights.load(tmp_path / "half.safetensors").shape == SMALL
