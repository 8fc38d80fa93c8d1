"""`spikehtr lm`: models from texts and data, there and back as ARPA files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_help import run
from PIL import Image

LINES = ["the cat sat on the mat", "a cat and a hat", "that hat", "the end", "at the end of the mat"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    (tmp_path / "b.txt").write_text("un chat sur le tapis\nle chapeau\n")
    (tmp_path / "held.txt").write_text("the cat sat\nle chat\n")
    return tmp_path


def shown(file: Path) -> dict[str, object]:
    result = run("lm", "show", file, "--json")
    assert result.returncode == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_text_file_becomes_a_model_that_knows_what_it_is_made_of(texts: Path) -> None:
    result = run(
        "lm",
        "train",
        texts / "a.txt",
        "--validation",
        texts / "held.txt",
        "--order",
        "4",
        "-o",
        texts / "lm.safetensors",
    )
    assert result.returncode == 0, result.stderr
    facts = shown(texts / "lm.safetensors")
    assert facts["order"] == 4
    assert facts["sources"] == [{"name": "a.txt", "lines": 5, "characters": sum(map(len, LINES))}]
    assert facts["validation"]["lines"] == 2
    assert "perplexity" in result.stdout


def test_several_sources_are_weighed_by_validation_lines(texts: Path) -> None:
    words = texts / "words.txt"
    words.write_text("cat\nhat\nmat\n")
    sources = (texts / "a.txt", texts / "b.txt", "--words", words)
    result = run("lm", "train", *sources, "-o", texts / "lm.safetensors")
    assert result.returncode == 2
    assert "--validation" in result.stderr
    result = run("lm", "train", *sources, "--validation", texts / "held.txt", "-o", texts / "lm.safetensors")
    assert result.returncode == 0, result.stderr
    weights = [source["weight"] for source in shown(texts / "lm.safetensors")["sources"]]
    assert len(weights) == 3
    assert sum(weights) == pytest.approx(1)


def test_of_data_only_the_training_lines_are_taken(texts: Path) -> None:
    for split, text in (("train", "abc abc"), ("validation", "abc"), ("test", "xyz")):
        folder = texts / "data" / split
        folder.mkdir(parents=True)
        Image.new("L", (40, 20), 255).save(folder / "line.png")
        (folder / "line.gt.txt").write_text(text)
    result = run("lm", "train", texts / "data", "-o", texts / "lm.safetensors")
    assert result.returncode == 0, result.stderr
    facts = shown(texts / "lm.safetensors")
    assert facts["alphabet"] == " abc"
    assert facts["validation"]["lines"] == 1


def test_an_arpa_file_goes_out_and_comes_back(texts: Path) -> None:
    model, arpa, again = texts / "lm.safetensors", texts / "lm.arpa.gz", texts / "again.safetensors"
    assert run("lm", "train", texts / "a.txt", "-o", model).returncode == 0
    assert run("lm", "to-arpa", model, "-o", arpa).returncode == 0
    assert run("lm", "from-arpa", arpa, "-o", again).returncode == 0
    assert shown(again)["ngrams"] == shown(model)["ngrams"]


@pytest.mark.parametrize(
    ("made", "told"),
    [(b"", "holds no text"), (b"\xff\xfe\x00", "UTF-8"), (None, "no such file")],
)
def test_texts_that_cannot_be_used_are_told(texts: Path, made: bytes | None, told: str) -> None:
    if made is not None:
        (texts / "bad.txt").write_bytes(made)
    result = run("lm", "train", texts / "bad.txt", "-o", texts / "lm.safetensors")
    assert result.returncode == 2
    assert told in result.stderr
