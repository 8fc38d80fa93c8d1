"""`spikehtr evaluate` as a person meets it."""

import csv
import io
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cli_help import run as command
from PIL import Image

from conftest import draw_line, micro
from spikehtr.data.compiling import compile_store
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.readers.torch import DoubleReader
from spikehtr.recognizer import Recognizer
from spikehtr.text import Charset
from spikehtr.weights import load_model, save_model

WORDS = {"old": ["ink", "pen, nib", "Pine", "kin"], "new": ["bin", "epic!", "nice", "pie"]}


def make_model(path, seed, height=24):
    config = micro(height=height, timesteps=1).with_overrides({"data.max_width": 96, "data.workers": 0})
    charset = Charset.from_texts(" ".join(WORDS["old"] + WORDS["new"]))
    torch.manual_seed(seed)
    save_model(path, SpikeHTR(config.model, len(charset)), config, charset)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two sets of a few drawn lines, in documents of two, and models that have learnt nothing."""
    folder = tmp_path_factory.mktemp("evaluate")
    for name, words in WORDS.items():
        rows = []
        for number, word in enumerate(words):
            png = io.BytesIO()
            Image.fromarray(draw_line(word, seed=number)).save(png, "PNG")
            split = "test" if number else "train"
            rows.append(
                {"image": {"bytes": png.getvalue()}, "text": word, "document": f"{number // 2}", "split": split}
            )
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "lines.parquet")
    make_model(folder / "a.safetensors", 0)
    make_model(folder / "b.safetensors", 1)
    make_model(folder / "tall.safetensors", 2, height=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPIKEHTR_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


@pytest.fixture
def run(place):
    """The command where `place` is: its exit code, output and messages."""

    def call(*args):
        done = command("evaluate", *args)
        return done.returncode, done.stdout, done.stderr

    return call


BOTH = ("-d", "old", "-d", "new")


def test_a_model_can_read_under_another_reduction(run):
    code, out, _ = run("a.safetensors", "-d", "old", "-s", "model.reducer.mode=none", "--json")
    result = json.loads(out)
    assert (code, result["keep_ratio"], result["set"]) == (0, 1.0, ["model.reducer.mode=none"])
    _, out, _ = run("a.safetensors", "-d", "old", "-s", "model.reducer.mode=none")
    assert out.startswith("a.safetensors on 3 lines (test), model.reducer.mode=none:")


def test_lines_that_are_left_out_are_spoken_of(run, place):
    images = [{"bytes": b""}, {"bytes": b"no image"}]
    (place / "half").mkdir()
    shutil.copy(place / "old" / "lines.parquet", place / "half" / "test.parquet")
    pq.write_table(pa.table({"image": images, "text": ["a", "b"]}), place / "half" / "more.parquet")
    code, out, err = run("a.safetensors", "b.safetensors", "-d", "half", "--json")
    assert code == 0
    assert json.loads(out)
    assert err == "2 lines or files of half left out; `spikehtr data check half` lists them\n"


def test_text_and_json(run):
    code, out, err = run("a.safetensors", *BOTH)
    assert (code, err) == (0, "")
    assert "a.safetensors on 6 lines (test):" in out
    for name in ("CER, plain", "WER, whitespace words", "WER, punctuation split", "reduction ratio r", "lines/s"):
        assert name in out
    assert "by resampling documents, 2000 times; there are 4: with so few, intervals are too narrow" in out
    _, out, _ = run("a.safetensors", *BOTH, "--json", "--split", "all")
    result = json.loads(out)
    assert len(result["predictions"]) == result["lines"] == 8
    assert result["data"] == ["old", "new"]
    assert {name: part["lines"] for name, part in result["sets"].items()} == {"old": 4, "new": 4}
    assert [p["reference"] for p in result["predictions"]] == WORDS["old"] + WORDS["new"]
    assert result["documents"] == 4  # `0` and `1`, in each of two sets
    lengths = [part["rates"]["CER, plain"]["length"] for part in result["sets"].values()]
    assert sum(lengths) == result["rates"]["CER, plain"]["length"] == sum(map(len, WORDS["old"] + WORDS["new"]))


def test_double_precision_on_request(run, monkeypatch):
    seen = []
    read = DoubleReader.read
    monkeypatch.setattr(DoubleReader, "read", lambda self, *batch: seen.append(len(batch[0])) or read(self, *batch))
    for precision, lines in (("fp32", 0), ("fp64", 3)):
        code, out, _ = run("a.safetensors", "-d", "old", "--precision", precision, "--json")
        assert code == 0
        assert json.loads(out)["precision"] == precision
        assert sum(seen) == lines


def test_a_set_twice_counts_once_and_a_store_of_several_sources_is_several_sets(run, place):
    for again in ("old", "./old/", place / "old"):
        assert json.loads(run("a.safetensors", "-d", "old", "-d", again, "--json")[1])["lines"] == 3
    assert list(json.loads(run("a.safetensors", "-d", "old", "-d", "new", "-d", "old/", "--json")[1])["sets"]) == [
        "old",
        "new",
    ]
    compile_store(["old", "new"], place / "both.arrow", height=24)
    result = json.loads(run("a.safetensors", "-d", "both.arrow", "--json")[1])
    assert {name: part["lines"] for name, part in result["sets"].items()} == {"old": 3, "new": 3}
    compile_store(["old"], place / "first.arrow", height=24)
    compile_store(["both.arrow", "first.arrow"], place / "joined.arrow", height=24)
    result = json.loads(run("a.safetensors", "-d", "joined.arrow", "--json")[1])
    assert {name: part["lines"] for name, part in result["sets"].items()} == {"old": 3, "new": 3, "first.arrow": 3}


def test_a_folder_of_files(run, tmp_path):
    code, out, _ = run("a.safetensors", *BOTH, "-o", tmp_path / "r" / "s", "--worst", 2)
    assert code == 0
    assert f"report: {tmp_path / 'r' / 's' / 'report.html'}" in out
    made = tmp_path / "r" / "s"
    assert {path.name for path in made.iterdir()} == {"report.html", "evaluation.json", "lines.tsv"}
    result = json.loads((made / "evaluation.json").read_text())
    with (made / "lines.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["set"], row["id"], row["text"]) for row in rows] == [
        (p["set"], p["id"], p["text"]) for p in result["predictions"]
    ]
    page = (made / "report.html").read_text()
    assert page.count("<figure>") == 3  # two lines, and the reliability of confidences
    assert "spikehtr evaluate a.safetensors -d old -d new" in page


def test_a_trainings_report_is_not_written_over(run, tmp_path):
    (tmp_path / "log.csv").touch()
    code, _, said = run("a.safetensors", "-d", "old", "-o", tmp_path)
    assert (code, list(tmp_path.iterdir())) == (2, [tmp_path / "log.csv"])
    assert "holds a training run or a study, whose report.html is another" in " ".join(said.split())


def test_two_models_on_the_same_lines(run, tmp_path):
    code, out, err = run("a.safetensors", "tall.safetensors", *BOTH, "-o", tmp_path)  # of other heights
    assert (code, err) == (0, "")
    assert "on the same 6 lines" in out
    assert "CER, plain: " in out
    result = json.loads((tmp_path / "evaluation.json").read_text())
    for letter, model in (("A", "a.safetensors"), ("B", "tall.safetensors")):
        alone = json.loads(run(model, *BOTH, "--json")[1])
        for name, rate in alone["rates"].items():
            assert result[letter]["rates"][name] == rate
        assert result["comparisons"]["CER, plain"][letter] == alone["rates"]["CER, plain"]["rate"]
        assert [p[f"text_{letter}"] for p in result["predictions"]] == [p["text"] for p in alone["predictions"]]
        assert (tmp_path / letter / "report.html").is_file()
    found = json.loads(run("a.safetensors", "tall.safetensors", *BOTH, "--json")[1])
    assert found["comparisons"] == result["comparisons"]
    assert found["predictions"] == result["predictions"]


def test_a_model_does_not_differ_from_itself(run):
    code, out, _ = run("a.safetensors", "a.safetensors", *BOTH)
    assert code == 0
    assert out.count("No real difference shown: B minus A is +0.00 points") == 3
    assert "is better than" not in out


def test_a_source_without_the_split_is_named(run, place):
    rows = pq.read_table(place / "new" / "lines.parquet").to_pylist()
    (place / "trained").mkdir()
    kept = [row for row in rows if row["split"] == "train"]
    pq.write_table(pa.Table.from_pylist(kept), place / "trained" / "lines.parquet")
    code, out, err = run("a.safetensors", "-d", "old", "-d", "trained")
    assert code == 0
    assert "on 3 lines" in out
    assert err == "trained: no line of split 'test', left out\n"


def test_calibration_is_noted_in_the_file_and_used_from_there(run, place, monkeypatch):
    model = place / "mine.safetensors"
    shutil.copy(place / "a.safetensors", model)
    before = load_model(model)
    code, out, err = run(model, *BOTH, "--calibrate", "--split", "all")
    assert code == 1  # a network that knows nothing has too few characters right
    assert "Not calibrated: " in out
    assert "mine.safetensors is left as it was" in err
    assert model.read_bytes() == (place / "a.safetensors").read_bytes()
    monkeypatch.setattr("spikehtr.evaluation.calibration.FEW", 1)
    code, out, err = run(model, *BOTH, "--calibrate", "--split", "all", "--json")
    assert code == 0, err
    result = json.loads(out)
    found = load_model(model)
    assert found.temperature == result["calibration"]["temperature"] == result["temperature"] != 1.0
    assert f"temperature {found.temperature:.3f}" in err
    assert found.notes["calibration"]["data"] == ["old", "new"]
    assert all(torch.equal(x, y) for x, y in zip(found.net.parameters(), before.net.parameters(), strict=True))
    again = json.loads(run(model, *BOTH, "--split", "all", "--json")[1])
    assert again["calibration"] == result["calibration"]
    assert [p["confidence"] for p in again["predictions"]] == [p["confidence"] for p in result["predictions"]]
    raw = json.loads(run("a.safetensors", *BOTH, "--split", "all", "--json")[1])
    assert [p["text"] for p in raw["predictions"]] == [p["text"] for p in again["predictions"]]
    assert raw["calibration"]["words"]["raw"] == again["calibration"]["words"]["raw"]
    assert raw["predictions"][0]["confidence"] != again["predictions"][0]["confidence"]
    recognizer, sample = Recognizer.load(model, precision="fp32"), draw_line(WORDS["old"][0], seed=0)
    assert recognizer.transcribe(sample).confidence == pytest.approx(again["predictions"][0]["confidence"], abs=1e-5)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere.safetensors", "-d", "old"], "nowhere.safetensors: no such file"),
        (["old/lines.parquet", "-d", "old"], "not a model file"),
        (["a.safetensors", "nowhere.safetensors", "-d", "old"], "nowhere.safetensors: no such file"),
        (["a.safetensors", "b.safetensors", "a.safetensors", "-d", "old"], "one model, or two to compare, not 3"),
        (["a.safetensors", "b.safetensors", "-d", "old", "--calibrate"], "--calibrate takes one model"),
        (["nowhere.safetensors", "-d", "old", "--calibrate"], "nowhere.safetensors: no such file"),
        (["a.safetensors", "-d", "old", "--calibrate"], "no line of split 'validation'"),
        (["a.safetensors", "-d", "nowhere"], "no such file or folder: nowhere"),
        (["a.safetensors", "-d", "empty"], "empty holds no file: check the path"),
        (["a.safetensors", "-d", "old", "--split", "validation"], "no line of split 'validation'; there are: test (3)"),
        (["a.safetensors", "-d", "old", "--split", "Val"], "no line of split 'validation'; there are: test (3)"),
        (["a.safetensors", "-d", "old", "--split", "half"], "--split half: there are train, validation, test, and all"),
        (["a.safetensors", "-d", "old", "-o", "a.safetensors"], "a.safetensors: cannot be written"),
        (["a.safetensors", "-d", "old", "-s", "model.timesteps=2"], "a trained network cannot be changed"),
        (["a.safetensors", "-d", "old", "--calibrate", "-s", "model.reducer.k=2"], "leave model.* settings out"),
        (["a.safetensors", "-d", "old", "--device", "abacus"], "abacus"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(run, place, args, says):
    (place / "empty").mkdir(exist_ok=True)
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("spikehtr: ")
    if "empty" not in args:  # this one lists the formats
        assert err.count("\n") == 1


def test_arguments_that_typer_refuses(run):
    assert run("a.safetensors")[0] == 2
    assert run("a.safetensors", "-d", "old", "--worst", "201")[0] == 2


class TestReadings:
    """What another program has read, in place of a model."""

    def test_an_evaluations_own_table_gives_its_rates(self, run, tmp_path):
        code, out, _ = run("a.safetensors", *BOTH, "--json", "-o", str(tmp_path))
        ours = json.loads(out)
        code, out, _ = run(str(tmp_path / "lines.tsv"), *BOTH, "--json")
        theirs = json.loads(out)
        assert code == 0
        assert theirs["rates"] == ours["rates"]
        assert theirs["sets"].keys() == ours["sets"].keys()
        assert [p["text"] for p in theirs["predictions"]] == [p["text"] for p in ours["predictions"]]
        assert [p["confidence"] for p in theirs["predictions"]] == [p["confidence"] for p in ours["predictions"]]

    def test_beside_a_model(self, run, tmp_path):
        _, out, _ = run("a.safetensors", "-d", "old", "--json")
        rows = [f"{p['id']}\t{p['reference']}" for p in json.loads(out)["predictions"]]
        (tmp_path / "their.txt").write_text("\n".join(rows[1:]))
        code, out, err = run(str(tmp_path / "their.txt"), "a.safetensors", "-d", "old", "-o", str(tmp_path / "both"))
        assert code == 0, err
        assert "read as nothing: 1 of 3 lines" in err
        assert "A: " in out.splitlines()[0]
        with (tmp_path / "both/lines.tsv").open(newline="") as file:
            table = list(csv.DictReader(file, delimiter="\t"))
        assert [row["errors_A"] for row in table] == [str(len(table[0]["reference"])), "0", "0"]
        assert table[0]["confidence_A"] == ""
        assert table[0]["confidence_B"] != ""
        assert (tmp_path / "both/A/lines.tsv").is_file()

    def test_another_programs_lines_of_other_data(self, run, tmp_path):
        (tmp_path / "their.tsv").write_text("nobody's line\tink\n")
        code, _, err = run(str(tmp_path / "their.tsv"), "-d", "old")
        assert code == 2
        assert "those of the data like" in err

    def test_what_only_a_model_can_do(self, run, tmp_path):
        (tmp_path / "their.tsv").write_text("1\tink\n")
        code, _, err = run(str(tmp_path / "their.tsv"), "-d", "old", "--calibrate")
        assert code == 2
        assert "no model file" in err
        code, _, err = run(str(tmp_path / "their.tsv"), "-d", "old", "-s", "model.reducer.mode=none")
        assert code == 2
        assert "have been read" in err


def test_networks_of_two_heights_are_compared_on_one_store(run, place):
    assert command("data", "compile", "old", "new", "-o", "both.arrow", "--height", "32").returncode == 0
    code, out, err = run("tall.safetensors", "a.safetensors", "-d", "both.arrow", "--json")
    assert code == 0
    assert err.count("both.arrow holds lines 32 pixels high, scaled to 24 here from that") == 1
    result = json.loads(out)
    assert result["lines"] == 6
    assert set(result["sets"]) == {"old", "new"}
    # The one of the store's own height reads as it does without the store.
    alone = json.loads(run("tall.safetensors", "-d", "old", "-d", "new", "--json")[1])
    assert [line["text"] for line in alone["predictions"]] == [line["text_A"] for line in result["predictions"]]
