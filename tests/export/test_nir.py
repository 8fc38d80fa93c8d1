"""The NIR file and its manifest, simulated: the same spikes in every neuron, the same logits."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from export_help import CHARSET, loaded
from PIL import Image

from conftest import draw_line
from spikehtr import Recognizer
from spikehtr.data.geometry import fit_line
from spikehtr.errors import SpikeHTRError
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.watching import watch
from spikehtr.readers import make_reader

nir = pytest.importorskip("nir", reason="the extra `export` is not installed")

from spikehtr.export.nir import save  # noqa: E402
from spikehtr.export.simulate import FORMAT, OPERATIONS, Simulation  # noqa: E402

VARIANTS = {
    "T=1": {"timesteps": 1},
    "T=2": {},
    "spikes first": {"encoder__spikes_first": True},
    "T=1, bursts": {"timesteps": 1, "encoder__pw1_burst": 4, "mixer__burst": 3, "lif__burst_step": 0.25},
    "T=1, bursts of integrators": {"timesteps": 1, "lif__decay": 1.0, "encoder__spikes_first": True, "mixer__burst": 2},
    "read": {"encoder__neurons": "read", "mixer__neurons": "read", "mixer__blocks": ["LA", "QK", "LK"]},
    "alone": {"encoder__neurons": "read", "mixer__neurons": "alone", "mixer__blocks": ["LK", "SR"]},
    "coarse grey ttfs": {
        "encoder__stem_stride": [4, 2],
        "encoder__strides": [[1, 1], [2, 2], [2, 1]],
        "encoder__channels": [12, 20],
        "in_channels": 1,
        "entry": "ttfs",
        "reducer__mode": "prune-only",
    },
    "poisson": {"entry": "poisson", "lif__decay": 0.3, "reducer__mode": "merge-only", "encoder__downsample": "avg"},
    "integrator": {
        "lif__decay": 1.0,
        "entry": "repeat",
        "encoder__downsample": "max",
        "encoder__bypass": False,
        "positions": 8,
        "reducer__mode": "none",
    },
    "one resolution": {"timesteps": 3, "encoder__dual_resolution": False},
}


def line(width):
    """A drawn line [1, H, W] in float64, W of this many pixels."""
    pixels = draw_line("a spiking pen")[:, :width]
    assert pixels.shape[1] == width
    return torch.from_numpy(pixels.copy())[None].double() / 255


@torch.no_grad()
def recorded(net, image):
    """The network's logits [L, V], and what every neuron fired."""
    fired, net = {}, net.double()
    with watch(net, lambda name, _, __, spikes: fired.__setitem__(name, spikes[:, 0]), MultiStepLIF):
        return net(image[None]).logits[0], fired


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_files_alone_give_the_same_spikes(variant, tmp_path):
    model, image = loaded(**VARIANTS[variant]), line(96)
    save(model, tmp_path / "m.nir", width=112)
    logits, spikes = Simulation(tmp_path / "m.nir")(image)
    expected, fired = recorded(model.net, image)
    assert spikes.keys() == fired.keys()
    assert len([name for name in fired if name.startswith("encoder")]) == (3 if variant in ("read", "alone") else 12)
    for name in fired:
        assert torch.equal(spikes[name], fired[name]), name
        assert 0 < fired[name].mean() < 1, name  # neither silent nor always on
    assert logits.shape == expected.shape
    assert torch.allclose(logits, expected, atol=1e-6)


def test_a_changed_weight_changes_spikes(tmp_path):
    """The comparison above can fail: the simulation reads the file's numbers, and the spikes depend on them."""
    model, image = loaded(), line(96)
    save(model, tmp_path / "m.nir", width=96)
    simulation = Simulation(tmp_path / "m.nir")
    _, before = simulation(image)
    part = simulation.parts["encoder.stage2.conv.neuron"].nodes["encoder.stage2.conv.neuron"]
    part.v_threshold = part.v_threshold + np.float32(0.1)
    _, after = simulation(image)
    assert torch.equal(before["encoder.stage1.conv.neuron"], after["encoder.stage1.conv.neuron"])
    assert not torch.equal(before["encoder.stage2.conv.neuron"], after["encoder.stage2.conv.neuron"])


@pytest.mark.parametrize("variant", ["T=2", "T=1, bursts"])
def test_the_manifest_names_every_step_and_every_node(variant, tmp_path):
    model = loaded(**VARIANTS[variant])
    assert save(model, tmp_path / "m.nir", width=64) == tmp_path / "m.json"
    manifest = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    graph = nir.read(tmp_path / "m.nir")
    known = {"image"}
    for step in manifest["steps"]:
        assert set(step["reads"]) <= known, step["name"]
        assert step["name"] not in known
        known.add(step["name"])
        if step["on"] == "nir":
            part = graph.nodes[step["name"]]
            found = part.nodes if isinstance(part, nir.NIRGraph) else {step["name"]: part}
            kinds = {name: type(node).__name__ for name, node in found.items() if name not in ("input", "output")}
            assert kinds == step["nodes"]
        else:
            assert manifest["operations"][step["operation"]] == OPERATIONS[step["operation"]].__doc__
            assert manifest["operations"][step["operation"]]
    neurons = [name for name, module in model.net.named_modules() if isinstance(module, MultiStepLIF)]
    assert sorted(step["fires"] for step in manifest["steps"] if "fires" in step) == sorted(neurons)
    assert manifest["output"] == manifest["steps"][-1]["name"]
    assert manifest["charset"] == list(CHARSET.characters)


def test_the_manifest_says_what_goes_in_and_what_comes_out(tmp_path):
    model = loaded()
    config = model.config.with_overrides({"data.straighten": True, "data.max_width": 96})
    save(model._replace(config=config), tmp_path / "m.nir", width=96)
    manifest = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    assert (manifest["polarity"], manifest["range"]) == ("dark ink on bright paper", [0.0, 1.0])
    assert (manifest["straighten"], manifest["max_width"], manifest["height"]) == (True, 96, 32)
    assert manifest["blank"] == 0
    for key in ("straighten", "height", "max_width"):
        assert f"`{key}`" in manifest["input"]
    # What these keys tell is enough for the model's text.
    page = Image.fromarray(draw_line("a spiking pen", height=40))
    pixels = fit_line(page, manifest["height"], manifest["max_width"], manifest["straighten"])
    assert pixels.shape[1] % manifest["stride"] == 0
    labels = Simulation(tmp_path / "m.nir")(torch.from_numpy(pixels.copy())[None].double() / 255)[0].argmax(1).tolist()
    text = "".join(manifest["charset"][b - 1] for a, b in pairwise([0, *labels]) if b and a != b)
    reader = Recognizer(model.net, config, CHARSET, reader=make_reader(model.net, "fp64"))
    assert text
    assert text == reader.transcribe(page).text


def test_neurons_are_nir_s_with_the_stated_time_step(tmp_path):
    save(loaded(lif__decay=0.75, lif__threshold=0.8), tmp_path / "m.nir", width=64)
    manifest = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    node = nir.read(tmp_path / "m.nir").nodes["encoder.stage1.conv.neuron"].nodes["encoder.stage1.conv.neuron"]
    assert isinstance(node, nir.LIF)
    assert node.tau.shape == (8, 32, 64)
    assert np.allclose(1 - manifest["dt"] / node.tau, 0.75)  # what is left of the membrane after a step
    assert np.allclose(manifest["dt"] / node.tau * node.r, 1.0)  # the input counts in full
    assert np.allclose(node.v_threshold, 0.8)
    assert not node.v_leak.any()
    assert not node.v_reset.any()


def test_bursts_of_one_step_are_neurons_side_by_side(tmp_path):
    save(loaded(**VARIANTS["T=1, bursts"]), tmp_path / "m.nir", width=96)
    manifest = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))
    name = "encoder.stage1.blocks.0.pw1.neuron"
    (step,) = (step for step in manifest["steps"] if step.get("fires") == name)
    nodes = nir.read(tmp_path / "m.nir").nodes[step["name"]].nodes
    found = [float(nodes[f"{name}.{number}"].v_threshold.flat[0]) for number in range(4)]
    assert found == [1.0, 1.25, 1.5, 1.75]
    _, spikes = Simulation(tmp_path / "m.nir")(line(96))
    assert spikes[name].max() > 1


def test_what_cannot_be_expressed_is_refused(tmp_path):
    with pytest.raises(SpikeHTRError, match="nothing in this one fires: its neuron is GELU"):
        save(loaded(neuron="gelu"), tmp_path / "m.nir")
    with pytest.raises(SpikeHTRError, match="fires several times in one of several steps"):
        save(loaded(mixer__burst=2), tmp_path / "m.nir", width=64)
    for width in (0, 30, 8196):
        with pytest.raises(SpikeHTRError, match="--width must be a multiple of 4 up to 8192"):
            save(loaded(), tmp_path / "m.nir", width)
    assert not list(tmp_path.iterdir())
    beside = save(loaded(), tmp_path / "m.nir", width=64)
    with pytest.raises(SpikeHTRError, match="is for lines 32 pixels high, up to 64 wide, in steps of 4"):
        Simulation(tmp_path / "m.nir")(torch.zeros(1, 32, 68))
    beside.write_text(beside.read_text(encoding="utf-8").replace(FORMAT, "spikehtr-nir-1"), encoding="utf-8")
    with pytest.raises(SpikeHTRError, match="in format spikehtr-nir-1, not spikehtr-nir-2; export it again"):
        Simulation(tmp_path / "m.nir")


def test_the_documentation_names_every_host_operation():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "exported-files.md").read_text(encoding="utf-8")
    assert [name for name in OPERATIONS if f"`{name}`" not in text] == []
