import torch

from conftest import draw_line, micro
from spikehtr.assets import FONTS
from spikehtr.data.batching import Lines
from spikehtr.data.compiling import compile_store
from spikehtr.data.synth import synthesise
from spikehtr.evaluation.evaluation import evaluate_lines, short_names
from spikehtr.evaluation.predict import predict
from spikehtr.evaluation.rate_tables import about_rows
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.text import Charset


def lines_of(folder, names):
    for name in names:
        synthesise(["ink", "pen", "nib"], FONTS, 5, folder / name, height=32, seed=len(name))
    store = compile_store([folder / name for name in names], folder / f"{'-'.join(names)}.arrow", height=32)[0]
    return Lines(store, store.rows(), store.charset, 96, labelled=False)


def network(lines):
    torch.manual_seed(0)
    return SpikeHTR(micro(timesteps=1).model, len(lines.charset)).train()


def test_every_line_is_read_once_in_order_whatever_the_batches(tmp_path):
    lines = lines_of(tmp_path, ["one", "three"])
    net = network(lines)
    done = []
    found = predict(net, lines, batch_size=3, progress=done.append)
    assert net.training  # as it was
    assert done == [3, 6, 9, 10]
    assert [p.row for p in found] == list(range(10))
    assert [p.id for p in found] == [lines.store.record(row)["id"] for row in range(10)]
    assert [p.set for p in found] == [str(tmp_path / "one")] * 5 + [str(tmp_path / "three")] * 5
    other = predict(net, lines, batch_size=10)
    assert [p[:3] for p in other] == [p[:3] for p in found]


def test_parts_are_sets(tmp_path):
    mixed, single = lines_of(tmp_path, ["one", "three"]), lines_of(tmp_path, ["seventh"])
    done = []
    found = evaluate_lines(
        network(mixed), [mixed, single], ["mixed", "x/named"], batch_size=10, about={"model": "m"}, progress=done.append
    )
    assert done == [10, 15]
    assert [p.set for p in found.predictions] == ["one"] * 5 + ["three"] * 5 + ["named"] * 5
    assert list(found.summary["sets"]) == ["one", "three", "named"]
    assert found.about["model"] == "m"
    assert found.about["lines_per_second"] > 0
    assert (found.picture(12) == single.store.line(2)).all()
    assert found.about["unknown_characters"] == {"characters": [], "lines": 0}
    few = Lines(single.store, single.rows, Charset(tuple("inkpe")), 96, labelled=False)
    torch.manual_seed(0)
    missing = evaluate_lines(SpikeHTR(micro(timesteps=1).model, 6), [few])
    nibs = sum("b" in p.reference for p in missing.predictions)
    assert nibs
    assert missing.about["unknown_characters"] == {"characters": ["b"], "lines": nibs}
    assert ("characters the model does not know", f"b in {nibs} lines") in about_rows(missing.summary)
    unnamed = evaluate_lines(network(mixed), [single])
    assert {p.set for p in unnamed.predictions} == {"seventh"}
    assert draw_line("x").shape[0] == unnamed.picture(0).shape[0]


def test_what_was_read_is_normalised_like_the_reference(tmp_path, monkeypatch):
    """The rates compare code point by code point: doubled and outer spaces must not count on one side only."""
    lines = lines_of(tmp_path, ["one"])

    class Read:
        text, confidence = "  ink   e\u0301 \u00ac ", 0.5

    read = "spikehtr.decoding.decoders.decode_frames"
    monkeypatch.setattr(read, lambda frames, _: [Read] * len(frames.lengths.wait()))
    assert {p.text for p in predict(network(lines), lines)} == {"ink \u00e9"}


def test_short_names_stay_apart():
    names = ["x/a", "y/a", "z/b", "z/b", "store:q/c.arrow", "/"]
    assert short_names(names) == {
        "x/a": "x/a",
        "y/a": "y/a",
        "z/b": "b",
        "store:q/c.arrow": "c.arrow",
        "/": "/",
    }
