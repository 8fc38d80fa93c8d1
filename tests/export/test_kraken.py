"""A model as a file for kraken, and kraken reading with it where it is installed."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

from pages_help import save_random, simple_page
from spikehtr.cli import app
from spikehtr.decoding.kneser_ney import train_ngrams
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.export.kraken_files import NAME, LanguageModelBuffers
from spikehtr.recognizer import Recognizer
from spikehtr.weights import attach_language_model, load_model, update_notes


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A model that notes a temperature, and the same for kraken."""
    model = save_random(tmp_path / "m.safetensors")
    update_notes(model, {"temperature": 2.0})
    result = CliRunner().invoke(app, ["export", "kraken", str(model)])
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "m.kraken.safetensors") in result.output
    return model, tmp_path / "m.kraken.safetensors"


def test_the_file_holds_what_kraken_asks_for(files: tuple[Path, Path]) -> None:
    loaded = load_model(files[0])
    with safe_open(str(files[1]), "pt") as file:
        ((prefix, described),) = json.loads(file.metadata()["kraken_meta"]).items()
    assert (described["_model"], described["_tasks"], described["temperature"]) == (NAME, ["recognition"], 2.0)
    assert tuple(described["charset"]) == loaded.charset.characters
    assert described["config"] == loaded.config.to_dict()
    weights = load_file(files[1])
    assert weights.keys() == {f"{prefix}.net.{name}" for name in loaded.net.state_dict()}
    for name, value in loaded.net.state_dict().items():
        assert torch.equal(weights[f"{prefix}.net.{name}"], value)


@pytest.fixture
def carrying(files: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The model with a language model, and the same for kraken."""
    model = tmp_path / "with.safetensors"
    lines = ["the cat sat on the mat", "a cat and a hat"]
    attach_language_model(files[0], LanguageModel.from_ngrams(train_ngrams(lines, 3)), model)
    assert CliRunner().invoke(app, ["export", "kraken", str(model)]).exit_code == 0
    return model, tmp_path / "with.kraken.safetensors"


def test_a_language_model_goes_along(carrying: tuple[Path, Path]) -> None:
    carried = load_model(carrying[0]).language_model
    assert carried is not None
    with safe_open(str(carrying[1]), "pt") as file:
        ((prefix, described),) = json.loads(file.metadata()["kraken_meta"]).items()
    beginning = f"{prefix}.language_model."
    tensors = {name.removeprefix(beginning): v for name, v in load_file(carrying[1]).items() if beginning in name}
    buffers = LanguageModelBuffers(described["language_model"])  # as the plug-in makes them, before it has the weights
    buffers.load_state_dict(tensors)
    found = buffers.model()
    assert (found.vocabulary, found.start, found.notes) == (carried.vocabulary, carried.start, carried.notes)
    assert all(np.array_equal(found.arrays[name], values) for name, values in carried.arrays.items())


def test_the_registry_names_the_class() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["kraken.models"] == {NAME: f"spikehtr.kraken_plugin:{NAME}"}


def test_the_model_itself_is_not_overwritten(tmp_path: Path) -> None:
    model = save_random(tmp_path / "m.safetensors")
    before = model.read_bytes()
    error = CliRunner().invoke(app, ["export", "kraken", str(model), "-o", str(model)]).exception
    assert isinstance(error, SpikeHTRError)
    assert "is the model itself" in str(error)
    assert model.read_bytes() == before


# From here on with kraken itself: `pip install 'spikehtr[kraken]'` in an environment of its own.


def plugged(path: Path) -> tuple[object, object]:
    """The model as kraken loads it, and a configuration to read with."""
    pytest.importorskip("kraken.tasks", reason="kraken is not installed", exc_type=ImportError)
    from kraken.configs import RecognitionInferenceConfig
    from kraken.tasks import RecognitionTaskModel

    config = RecognitionInferenceConfig(accelerator="cpu", device=1, batch_size=2, num_line_workers=0)
    return RecognitionTaskModel.load_model(path), config


def segmented(image: object, lines: list[object], kind: str) -> object:
    from kraken.containers import Segmentation

    return Segmentation(kind, "page.png", "horizontal-lr", False, lines=lines)


def test_kraken_reads_what_we_read(files: tuple[Path, Path]) -> None:
    model, config = plugged(files[1])
    from kraken.containers import BaselineLine

    image, _ = simple_page(4)
    page = Recognizer.load(files[0], precision="fp32").transcribe_page(image)
    lines = [
        BaselineLine(
            line.id,
            baseline=[list(map(round, p)) for p in line.baseline],
            boundary=[list(p) for p in line.polygon],
        )
        for line in page.lines
    ]
    lines.insert(2, dataclasses.replace(lines[0], id="off", boundary=[[5000, 1], [5100, 1], [5100, 50]]))
    records = list(model.predict(image, segmented(image, lines, "baselines"), config))
    assert [record.id for record in records] == [line.id for line in lines]
    assert records.pop(2).prediction == ""  # a line off the page has no text, and stays in its place
    assert any(line.text for line in page.lines)
    for record, line in zip(records, page.lines, strict=True):
        assert " ".join(record.prediction.split()) == line.text
        sure = [c for char, c in zip(record.prediction, record.confidences, strict=True) if not char.isspace()]
        glyphs = [glyph for word in line.words for glyph in word.characters]
        assert sure == pytest.approx([glyph.confidence for glyph in glyphs], abs=1e-5)  # at the noted temperature
        # Cuts are distances along the baseline: here it is level, so they are columns.
        cuts = [cut for char, cut in zip(record.prediction, record._cuts, strict=True) if not char.isspace()]
        ends = record.baseline[0][0], record.baseline[-1][0]
        for cut, glyph in zip(cuts, glyphs, strict=True):
            for distance, x in zip(cut, (glyph.box[0], glyph.box[2]), strict=True):
                assert distance + ends[0] == pytest.approx(min(max(x, ends[0]), ends[1]), abs=3)


def test_kraken_reads_boxes_too(files: tuple[Path, Path]) -> None:
    model, config = plugged(files[1])
    from kraken.containers import BBoxLine

    image, _ = simple_page(1)
    box = (80, 70, 680, 150)
    (record,) = model.predict(image, segmented(image, [BBoxLine("l", bbox=box)], "bbox"), config)
    expected = Recognizer.load(files[0], precision="fp32").transcribe(image.crop(box))
    assert record.prediction == expected.text != ""
    ready = model.net._recognizer
    (again,) = model.predict(image, segmented(image, [BBoxLine("l", bbox=box)], "bbox"), config)
    assert (again.confidences, model.net._recognizer) == (record.confidences, ready)  # made once, for many pages
    config.temperature = 3.0
    (cooler,) = model.predict(image, segmented(image, [BBoxLine("l", bbox=box)], "bbox"), config)
    assert cooler.prediction == record.prediction
    assert max(cooler.confidences) < max(record.confidences)
    first, character = record.cuts[0], expected.characters[0]
    assert [point[0] for point in first] == [round(80 + x) for x in (character.x0,) * 2 + (character.x1,) * 2]


def test_kraken_reads_with_the_language_model(carrying: tuple[Path, Path]) -> None:
    model, config = plugged(carrying[1])
    from kraken.containers import BBoxLine

    image, _ = simple_page(1)
    box = (80, 70, 680, 150)
    (record,) = model.predict(image, segmented(image, [BBoxLine("l", bbox=box)], "bbox"), config)
    expected = Recognizer.load(carrying[0], precision="fp32").transcribe(image.crop(box))
    assert record.prediction == expected.text
    assert record.confidences == pytest.approx([c.confidence for c in expected.characters], abs=1e-5)


def test_kraken_writes_it_again_the_same(files: tuple[Path, Path], tmp_path: Path) -> None:
    model, _ = plugged(files[1])
    from kraken.models import load_models, write_safetensors

    write_safetensors([model.net], tmp_path / "again.safetensors")
    (again,) = load_models(tmp_path / "again.safetensors", tasks=["recognition"])
    assert again.user_metadata == model.net.user_metadata
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.net.parameters(), strict=True))
