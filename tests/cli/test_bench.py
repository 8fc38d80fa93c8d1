"""`spikehtr bench` as a person meets it."""

import json

import pytest
from test_cli import run

from conftest import MICRO

SMALL = [part for key, value in MICRO.items() for part in ("-s", f"{key}={json.dumps(value)}")]


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
        assert row["roofline_seconds"] >= row["overlapped_seconds"] > 0
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_several_presets_at_their_own_widths(tmp_path):
    path = tmp_path / "bench.json"
    small = ("-s", "model.height=32", "-s", "model.baseline.scale=0.05", "-s", "data.max_width=64")
    sizes = ("--device", "cpu", "-b", 2, "--rounds", 1, "--no-train", "--json", path)
    done = run("bench", "--presets", "htr-vt,kraken", "-T", "1,2", *sizes, *small)
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())["rows"]
    assert [(row["name"], row["arch"], row["width"]) for row in rows] == [
        ("htr-vt", "htr-vt", 64),
        ("kraken", "kraken", 64),
    ]
    assert all(row["flops"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--no-train", "--no-inference"], "nothing to time"),
        (["--preset", "tinny"], "did you mean 'tiny'"),
        (["-T", "9"], "max_timesteps"),
        (["-T", "1,x"], "not 'x'"),
        (["--presets", "tiny,htr-vd"], "did you mean 'htr-vt'"),
        (["--json", "nowhere/b.json"], "make it first"),
        (["--device", "gpu"], "no device called 'gpu'"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_wrong_use_is_explained(args, says, tmp_path):
    done = run("bench", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []
