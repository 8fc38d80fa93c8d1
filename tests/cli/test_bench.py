"""`spikehtr bench` as a person meets it."""

import json
import re

import pytest
from cli_help import run
from PIL import Image

from conftest import MICRO, draw_line, micro
from spikehtr import SpikeHTR
from spikehtr.readers.cpu.engine import unsupported_reason
from spikehtr.text import Charset
from spikehtr.weights import save_model

SMALL = [part for key, value in MICRO.items() for part in ("-s", f"{key}={json.dumps(value)}")]


@pytest.mark.slow
def test_table_and_json(tmp_path):
    path = tmp_path / "bench.json"
    sizes = ("--device", "cpu", "-T", 1, "--width", 48, "-b", 2, "--rounds", 1)
    done = run("bench", *sizes, "--profile", "--json", path, *SMALL)
    assert done.returncode == 0, done.stderr
    for text in ("tiny T=1 train", "tiny T=1 read", "reference", "roofline", "first step", "copy", "most expensive"):
        assert text in done.stdout
    assert "no fast kernels on this device" in done.stdout
    found = json.loads(path.read_text())
    assert [(row["train"], row["batch_size"], row["width"]) for row in found["rows"]] == [(True, 2, 48), (False, 2, 48)]
    for row in found["rows"]:
        reference = row["paths"]["reference"]
        assert reference["lines_per_second"] == pytest.approx(2 / reference["seconds"])
        assert reference["share"] == pytest.approx(row["roofline_seconds"] / reference["seconds"])
        assert row["roofline_seconds"] > 0
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.slow  # one preset: the test above
def test_several_presets_at_their_own_widths(tmp_path):
    path = tmp_path / "bench.json"
    small = ("-s", "model.height=32", "-s", "model.baseline.scale=0.05", "-s", "data.max_width=64")
    sizes = ("--device", "cpu", "-b", 2, "--rounds", 1, "--json", path)
    done = run("bench", "--presets", "htr-vt,kraken", "-T", "1,2", *sizes, *small)
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(path.read_text())["rows"] if not row["train"]]
    assert [(row["name"], row["arch"], row["width"]) for row in rows] == [
        ("htr-vt", "htr-vt", 64),
        ("kraken", "kraken", 64),
    ]
    assert all(row["flops"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--preset", "tinny"], "did you mean 'tiny'"),
        (["-T", "9"], "max_timesteps"),
        (["-T", "1,x"], "not 'x'"),
        (["--presets", "tiny,htr-vd"], "did you mean 'htr-vt'"),
        (["--json", "nowhere/b.json"], "make it first"),
        (["--device", "gpu"], "no device called 'gpu'"),
        (["--rounds", "0"], "--rounds"),
        (["--cpu", "--device", "cuda", "--width", "64"], "leave out --device, --width"),
        (["--lines", "2"], "belong to --cpu"),
    ],
)
def test_wrong_use_is_explained(args, says, tmp_path):
    done = run("bench", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_cpu_reads_lines_in_every_way_and_lists_layers(tmp_path):
    path = tmp_path / "cpu.json"
    sizes = ("--cpu", "-p", "tiny,kraken", "--lines", 2, "--rounds", 1, "--json", path)
    done = run("bench", *sizes, *SMALL, "-s", "model.baseline.scale=0.05")
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    assert all(rate > 0 for row in report["ways"] for rate in row["lines_per_second"].values())
    ways = {(row["network"], row["way"]) for row in report["ways"]}
    assert ("kraken", "PyTorch") in ways
    if unsupported_reason(SpikeHTR(micro().model, 5)) is None:
        assert {("tiny T=1", way) for way in ("PyTorch", "engine, dense", "engine")} <= ways
        layers = {row["layer"]: row for row in report["layers"]["tiny T=1"]}
        assert 0 <= layers["encoder.stage1.blocks.0.pw2"]["density"] <= 1
        assert layers["encoder.stage1.blocks.0.pw1"]["density"] is None
        assert "encoder.stage1.blocks.0.pw2" in done.stdout


def test_cpu_reads_with_a_model_file_and_given_lines(tmp_path):
    charset = Charset.from_texts(["ink"])
    model, lines = tmp_path / "mine.safetensors", tmp_path / "lines"
    save_model(model, SpikeHTR(micro().model, len(charset)), micro(), charset)
    lines.mkdir()
    for name in ("a", "b"):
        Image.fromarray(draw_line("ink")).save(lines / f"{name}.png")
        (lines / f"{name}.gt.txt").write_text("ink")
    done = run("bench", "--cpu", "-m", model, "-d", lines, "-n", 2, "--rounds", 1)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert re.search(r"^2 lines, \d ways, 1 round: about \d+ (s|min); fewer --lines", done.stderr)
    assert "2 lines" in done.stdout
    for wrong, says in ((["-m", model], "belong to --cpu"), (["--cpu", "-m", model, "-T", 2], "cannot be changed")):
        done = run("bench", *wrong)
        assert done.returncode == 2
        assert says in done.stderr
