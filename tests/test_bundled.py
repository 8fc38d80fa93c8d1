"""The model that comes with the package: what its card says is so."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rapidfuzz.distance import Levenshtein
from typer.testing import CliRunner

from conftest import LINES
from spikehtr import Recognizer
from spikehtr.assets import CARD, HERE, MODEL, SAMPLE_PAGE, SAMPLE_TEXT, SEGMENTER, SEGMENTER_CARD
from spikehtr.cli import app
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.segment.network_weights import line_network_header
from spikehtr.weights import BUNDLED, load_header, load_model, update_notes

ROOT = Path(__file__).parents[1]


def test_it_is_small_and_is_what_is_loaded_without_a_name():
    assert MODEL.stat().st_size < 20e6
    recognizer = Recognizer.load()
    assert recognizer.name == BUNDLED
    assert recognizer.temperature == load_model(BUNDLED).temperature == load_model(MODEL).temperature != 1


def test_whoever_gets_the_package_gets_the_terms_of_what_others_made():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = {file for pattern in project["license-files"] for file in ROOT.glob(pattern)}
    assert set(HERE.glob("*.md")) < told
    assert set((ROOT / "src").rglob("*.OFL.txt")) | set((ROOT / "src").rglob("*.LICENSE.txt")) < told
    assert all(list(ROOT.glob(pattern)) for pattern in project["license-files"])


def test_it_reads_the_sample_page():
    text = Recognizer.load(precision="fp32").transcribe_page(SAMPLE_PAGE).to_text()
    wanted = SAMPLE_TEXT.read_text(encoding="utf-8")
    assert Levenshtein.distance(text, wanted) < 0.1 * len(wanted)


def test_its_card_names_its_sources_and_gives_the_rates_that_its_file_notes():
    notes = json.loads(load_header(BUNDLED)["notes"])
    card = CARD.read_text(encoding="utf-8")
    assert set(notes["attribution"]) == set(notes["data"]["sources"]) == set(notes["cer"]["test"])
    for name, one in notes["attribution"].items():
        assert all(one[field] in card for field in ("title", "authors", "source", "licence")), name
        cells = next(row for row in card.splitlines() if row.startswith(f"| {name} |"))
        rates = [f"{notes['cer'][split][name]:.2%}" for split in ("validation", "test")]
        assert re.findall(r"([\d.]+%) \[", cells) == rates


def test_the_line_network_is_small_and_its_card_names_its_sources():
    assert SEGMENTER.stat().st_size < 4e6
    about = line_network_header(SEGMENTER)
    card = SEGMENTER_CARD.read_text(encoding="utf-8")
    assert set(about["attribution"]) == set(about["collections"])
    for name, one in about["attribution"].items():
        assert all(one[field] in card for field in ("title", "authors", "source", "licence")), name
        assert one["licence"].startswith("CC-BY 4.0"), name
    assert about["command"] in card


@pytest.mark.slow  # reading: the test of the sample page; rates: tests/evaluation
@pytest.mark.skipif(not LINES.is_dir(), reason="needs the open line sets, which are not in this repository")
def test_evaluating_gives_what_the_card_says(tmp_path):
    name = "cremma-wikipedia"
    result = CliRunner().invoke(
        app, ["evaluate", BUNDLED, "-d", str(LINES / name), "--split", "test", "-o", str(tmp_path), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    noted = json.loads(load_header(BUNDLED)["notes"])["cer"]["test"][name]
    assert found["rates"]["CER, plain"]["rate"] == pytest.approx(noted, abs=0.001)  # sums in another order flip spikes


@pytest.mark.slow  # exports: tests/export, tests/cli/test_export.py
def test_it_is_exported_by_its_name(tmp_path):
    pytest.importorskip("nir", reason="the extra `export` is not installed")
    result = CliRunner().invoke(app, ["export", "nir", BUNDLED, "-o", str(tmp_path / "m.nir"), "--width", "256"])
    assert result.exit_code == 0, result.output
    assert f"(the model file: {MODEL.stat().st_size / 1e6:.1f} MB)" in result.output
    assert (tmp_path / "m.nir").is_file()


def test_it_is_not_changed_in_place():
    before = MODEL.read_bytes()
    with pytest.raises(SpikeHTRError, match="change a copy"):
        update_notes(BUNDLED, {"temperature": 2.0})
    result = CliRunner().invoke(app, ["evaluate", BUNDLED, "-d", "nowhere", "--calibrate"])
    assert "change a copy" in str(result.exception)
    assert MODEL.read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said_at_once():
    with pytest.raises(SpikeHTRError, match="finds no GPU here"):
        Recognizer.load("nowhere.safetensors", device="cuda")


def test_it_reads_nothing_on_empty_paper():
    rng = np.random.default_rng(0)
    uneven = np.linspace(250, 170, 900) + rng.normal(0, 3, (64, 900))
    papers = [np.full((64, 400), 255), np.full((64, 1500), 190), uneven, uneven[:, 500:620]]
    lines = [Image.fromarray(paper.clip(0, 255).astype(np.uint8)) for paper in papers]
    read = Recognizer.load(precision="fp32").transcribe(lines)
    assert [line.text for line in read] == [""] * len(papers)
