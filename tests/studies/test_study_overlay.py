"""The overlays against the paper's own tables, and how a variant's settings come together."""

import re
from pathlib import Path

import pytest

from spikehtr.config import PRESETS, Config
from spikehtr.config.presets import FINE_TUNING
from spikehtr.errors import SpikeHTRError
from spikehtr.studies.study_overlay import load_study, study_names

OURS = sorted((Path(__file__).parents[2] / "benchmarks" / "studies").glob("*.yaml"))
PAPER = Path(__file__).parents[3] / "shared" / "paper" / "spike-htr.tex"


def published(label):
    """The cells of the paper's table of this label, row by row, without LaTeX."""
    if not PAPER.is_file():
        pytest.skip("the paper is not here: shared/paper beside the checkout")
    text = PAPER.read_text()
    start = text.index(f"\\label{{{label}}}")
    body = text[start : text.index(r"\end{tabular}", start)]
    rows = [re.sub(r"\\(mid|top)rule", "", row) for row in body.split(r"\\")]
    return [[re.sub(r"\\textbf\{([^}]*)\}", r"\1", cell).strip() for cell in row.split("&")] for row in rows]


def cells(study):
    return [list(v.paper) for v in study.variants if v.paper]


@pytest.mark.parametrize("name", ["t-sweep", "inkcoder", "reduction", "encoder", "mixer", "ann-control"])
def test_every_row_of_the_papers_table_is_there_as_printed(name):
    study = load_study(name)
    wanted = [row[1:] for row in published(study.paper.table) if len(row) == len(study.paper.columns) + 1]
    wanted = [row for row in wanted if any(re.fullmatch(r"[\d./]+", cell) for cell in row)]
    assert cells(study) == wanted


def test_scale_is_the_papers_table_row_by_row():
    study = load_study("scale")
    wanted = [row for row in published(study.paper.table) if len(row) == 4 and "/" in row[1]]
    sizes = {row[0]: row[1] for row in published("tab:ablate_scale_cfg") if row[0] in ("tiny", "small", "medium")}
    assert cells(study) == [[sizes[row[0]], cell] for row in wanted for cell in row[1:]]


def test_main_has_every_method_of_the_paper():
    study = load_study("main")
    rows = [row for row in published(study.paper.table) if len(row) == 8 and row[1] in ("ANN", "SNN")]
    wanted = {(re.sub(r"~?\\cite.*", "", row[0]).strip(), row[3], *row[4:]) for row in rows}
    ours = set()
    for v in study.variants:
        if v.paper:
            spiking = v.label.startswith("Spike-HTR")
            steps = str(v.set["model.timesteps"]) if spiking else "--"
            ours.add(("Spike-HTR (ours)" if spiking else v.label, steps, *v.paper))
    assert ours == wanted


@pytest.mark.parametrize("name", study_names())
def test_every_variant_is_a_configuration_of_its_own(name):
    study = load_study(name)
    running = [v for v in study.variants if not v.why and (study.takes_model or (v.preset or study.preset) in PRESETS)]
    made = [study.config(v) for v in running]
    assert len({(config.to_yaml(), v.begin) for config, v in zip(made, running, strict=True)}) == len(made)
    seeds = {study.config(running[0], seed=seed).training.seed for seed in range(3)}
    assert seeds == {0, 1, 2}


def test_who_has_the_last_word():
    study = load_study("inkcoder")
    config = study.config(
        study.variant("poisson"), "tiny", ("model.timesteps=1", "model.entry=ttfs", "training.seed=7"), 3, seed=2
    )
    assert (config.model.timesteps, config.model.entry) == (1, "poisson")  # user over study, variant over user
    assert (config.training.epochs, config.training.seed, config.model.dim) == (3, 9, 384)
    assert study.config(study.variant("full")) == Config.preset("base").with_overrides({"model.timesteps": 2})


def test_main_shows_no_blank_lines_whatever_presets_do():
    assert [Config.preset(name).data.augment.blank for name in ("swift", "fine", "base")] == [0.02, 0.02, 0]
    study = load_study("main")
    here = [variant for variant in study.variants if not variant.why]
    assert {study.config(variant).data.augment.blank for variant in here} == {0}


def test_what_does_not_run_says_why(monkeypatch):
    study = load_study("main")
    gone = study.variant("dan").model_copy(update={"why": "this network is not here"})
    assert study.left_out(gone) == "not reproduced: this network is not here"
    assert study.left_out(study.variant("base-t2")) == "not run: ask for it with --only base-t2"
    assert study.left_out(study.variant("base-t2"), ("base-t2",)) == ""
    assert study.left_out(study.variant("tiny-t1"), ("base-t2",)) == "not run: not asked for"
    monkeypatch.setattr("spikehtr.studies.study_overlay.PRESETS", tuple(p for p in PRESETS if p != "swift"))
    assert study.left_out(study.variant("swift-t1")) == "not run: there is no preset called swift"


HEAD = "title: A\npreset: tiny\npaper: {table: t, caption: c, columns: [IAM], rates: [IAM], split: test}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "variants: [{name: a, label: A, colour: red}]", "variants.0.colour"),
        (HEAD + "variants: [{name: a, label: A}, {name: a, label: B}]", "two variants have one name"),
        (HEAD + "variants: [{name: a, label: A, paper: ['1', '2']}]", "2 published values for 1 columns"),
        (HEAD + "reference: b\nvariants: [{name: a, label: A}]", "no variant is called b"),
        (HEAD + "variants: []", "mine.yaml: variants: there are none; list one at least"),
        ("[", "not valid YAML"),
    ],
)
def test_mistakes_in_an_overlay_are_named(text, says, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(SpikeHTRError, match=re.escape(says)):
        load_study(str(path))
    with pytest.raises(SpikeHTRError, match=r"nowhere\.yaml"):
        load_study("nowhere.yaml")


def test_a_preset_may_be_named_by_the_user_alone(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("title: A\nvariants: [{name: a, label: A}, {name: b, label: B, preset: kraken}]")
    study = load_study(str(path))
    a, b = study.variants
    assert study.left_out(a) == ""
    assert [study.config(v, "tiny").model.arch for v in (a, b)] == ["spike-htr", "kraken"]
    assert study.config(a, "tiny").model.dim == 384
    with pytest.raises(SpikeHTRError, match="mine: variant a has no preset: give one by --preset"):
        study.config(a)
    path.write_text("title: A\npreset: gone\nvariants: [{name: a, label: A}]")
    study = load_study(str(path))
    (a,) = study.variants
    assert study.left_out(a) == "not run: there is no preset called gone"
    assert study.left_out(a, preset="tiny") == ""
    assert study.left_out(a, preset="tinny") == ""
    with pytest.raises(SpikeHTRError, match="did you mean 'tiny'"):
        study.config(a, "tinny")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_studies_of_our_own_have_no_table_of_the_paper(path):
    study = load_study(str(path))
    assert study.paper.columns == ()
    assert study.comparisons
    made = [study.config(v) for v in study.variants]
    assert len({config.to_yaml() for config in made}) == len(made)


def test_the_fine_tuning_study_does_what_train_from_does():
    rows = [v for v in load_study("fine-tuning").variants if v.begin == "model"]
    assert len(rows) == 4
    own = {"training.epochs", "training.validate_every", "data.train_lines"}  # how long, and what the study is about
    keys = sorted(FINE_TUNING.keys() - own)
    for row in rows:
        assert [row.set[key] for key in keys] == [FINE_TUNING[key] for key in keys]
