"""Distillation: what is compared with what, and that a student comes closer."""

import pytest
import torch
import torch.nn.functional as F
from training_help import SETTINGS, Epochs

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.errors import SpikeHTRError
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.training.job import Job, run_job
from spikehtr.training.loop import TrainingError, TrainingRun
from spikehtr.training.losses import Share, distillation
from spikehtr.training.teacher import Teacher, load_teacher, mean_over
from spikehtr.weights import load_model, save_model

PLAIN = {"data.augment.probability": 0.0, "model.mixer.dropout": 0.0, "model.mixer.drop_path": 0.0}


def settings(**changes):
    return Config().with_overrides(SETTINGS | PLAIN | {key.replace("__", "."): value for key, value in changes.items()})


def teacher_of(config, labels, seed=1):
    torch.manual_seed(seed)
    return Teacher(build(config.model, labels))


def test_a_merged_frame_is_compared_with_the_mean_of_its_positions():
    rows = torch.rand(2, 5, 3)
    spans = torch.tensor([[[0, 1], [1, 4], [4, 5]], [[0, 2], [2, 3], [0, 0]]])
    found = mean_over(rows, spans, longest=3)
    expected = [
        [rows[0, 0], rows[0, 1:4].mean(0), rows[0, 4]],
        [rows[1, :2].mean(0), rows[1, 2], torch.zeros(3)],
    ]
    assert torch.allclose(found, torch.stack([torch.stack(line) for line in expected]))


def test_the_loss_is_torch_s_and_ignores_padding():
    logits, wanted = torch.randn(2, 4, 5), torch.randn(2, 4, 5).softmax(-1)
    lengths = torch.tensor([4, 2])
    each = F.kl_div(logits.log_softmax(-1), wanted, reduction="none").sum(-1)
    expected = (each[0].sum() + each[1, :2].sum()) / 6
    assert distillation(logits, lengths, wanted) == pytest.approx(expected.item(), rel=1e-5)
    disturbed = logits.clone()
    disturbed[1, 2:] += 3
    assert distillation(disturbed, lengths, wanted) == distillation(logits, lengths, wanted)
    one = Share(torch.tensor([1.0, 0.0]), 2, torch.tensor(6.0))
    other = Share(torch.tensor([0.0, 1.0]), 2, torch.tensor(6.0))
    parts = sum(distillation(logits, lengths, wanted, part) for part in (one, other))
    assert parts == pytest.approx(expected.item(), rel=1e-5)
    certain = F.one_hot(torch.zeros(2, 4, dtype=torch.long), 5).float()  # 0 log 0 is 0
    assert distillation(logits, lengths, certain).isfinite()


@pytest.mark.parametrize("mode", ["none", "keep-and-merge"])
def test_a_network_is_its_own_perfect_teacher_where_nothing_is_merged(mode):
    config = micro(timesteps=1, reducer__mode=mode, reducer__eta=9.0, reducer__gamma=0.3, reducer__tau=0.0)
    torch.manual_seed(0)
    net = SpikeHTR(config.model, 6).double().eval()
    teacher = Teacher(SpikeHTR(config.model, 6))
    teacher.net.load_state_dict(net.state_dict())
    teacher.to(next(net.parameters()))
    images, widths = torch.rand(2, 1, 32, 96), torch.tensor([96, 50])
    out = net(images, widths)
    wanted = teacher(images, widths, out.spans, config.model.reducer.longest)
    assert wanted.shape == out.logits.shape
    assert not wanted.requires_grad
    loss = distillation(out.logits, out.lengths, wanted)
    assert (out.keep_ratio < 1).any() == (mode != "none")
    assert (loss < 1e-6) == (mode == "none")


def trained(store, tmp_path, teacher, **changes):
    config = settings(**changes)
    lines = Lines(store, store.rows(), store.charset, config.data.max_width)
    tmp_path.mkdir(exist_ok=True)
    run, told = TrainingRun(config, lines, None, tmp_path, teacher=teacher), Epochs()
    return run, told


def test_a_student_comes_closer_and_its_teacher_stays(store, tmp_path):
    teacher = teacher_of(settings(model__neuron="gelu"), len(store.charset))
    before = teacher.digest
    run, told = trained(store, tmp_path / "r", teacher, training__epochs=6, training__teacher_weight=4.0)
    run.fit(tell=told)
    values = [epoch.values["teacher"] for epoch in told]
    assert values[-1] < 0.7 * values[0]
    assert Teacher(teacher.net).digest == before
    assert not teacher.net.training
    assert all(p.grad is None for p in teacher.net.parameters())
    assert told[-1].values["loss"] == pytest.approx(
        told[-1].values["ctc"] + 4 * values[-1] + 0.2 * told[-1].values["aux"] + 0.05 * told[-1].values["kl"],
        rel=1e-4,
    )
    again, _ = trained(store, tmp_path / "r", teacher_of(settings(), len(store.charset), seed=9), training__epochs=6,
                       training__teacher_weight=4.0)  # fmt: skip
    with pytest.raises(TrainingError, match="another teacher"):
        again.resume()


def test_a_baseline_can_teach(store, tmp_path):
    config = Config.preset("htr-vt").with_overrides({"model.height": 24, "model.baseline.scale": 0.05})
    teacher = teacher_of(config, len(store.charset))
    run, told = trained(store, tmp_path / "r", teacher, training__epochs=1)
    run.fit(tell=told)
    assert told[-1].values["teacher"] > 0
    assert not teacher.recordable


def test_a_teacher_that_does_not_fit_is_refused(tmp_path):
    config, charset = settings(), Charset(("a", "b"))
    path = tmp_path / "teacher.safetensors"
    save_model(path, SpikeHTR(config.model, 3), config, charset)
    assert load_teacher(path, config, charset).net.config.reducer.mode == "none"
    with pytest.raises(SpikeHTRError, match=r"characters of the run, .* \(2 are known to one only\)"):
        load_teacher(path, config, Charset(("a", "c")))
    with pytest.raises(SpikeHTRError, match="another order"):
        load_teacher(path, config, Charset(("b", "a")))
    with pytest.raises(SpikeHTRError, match="its height is 24, the run's 32"):
        load_teacher(path, settings(model__height=32), charset)
    with pytest.raises(SpikeHTRError, match="its stride is 4, the run's 8"):
        load_teacher(path, Config.preset("kraken").with_overrides({"model.height": 24}), charset)


def test_hand_over_and_teacher_in_one_job(store, tmp_path):
    """A GELU network, handed over to spikes at T = 2 and taught by itself."""
    gelu = settings(model__neuron="gelu", training__epochs=1)
    first = Job(gelu, [store.path], tmp_path / "gelu")
    first.claim_folder()
    from spikehtr.training.devices import make_fabric

    run_job(first, make_fabric(), lambda _: None)
    model = tmp_path / "gelu" / "best.safetensors"
    said = []
    spiking = gelu.with_overrides({"model.neuron": "lif", "model.timesteps": 2, "model.encoder.dual_resolution": False})
    second = Job(spiking, [store.path], tmp_path / "lif", start=model, teacher=model)
    second.claim_folder()
    run_job(second, make_fabric(), said.append)
    assert any("of the start not used: encoder.fusion" in line for line in said)
    notes = load_model(tmp_path / "lif" / "best.safetensors").notes
    assert (notes["teacher"], notes["started_from"]) == ("best.safetensors", "best.safetensors")
