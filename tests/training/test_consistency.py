"""Two readings of a line side by side: what is compared with what, and that they come closer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_help import SETTINGS, Epochs

from conftest import micro
from spikehtr.baselines import build
from spikehtr.config import Config, TrainingConfig
from spikehtr.data.batching import Batch, Lines
from spikehtr.model.losses import distillation, other_view, spike_htr_loss
from spikehtr.model.network import Output
from spikehtr.training.devices import make_fabric
from spikehtr.training.loop import Run
from spikehtr.training.step import Moment, TrainStep


def output(spans, vocabulary=4, seed=0):
    """An Output with these spans [line][frame] of (first, end); rows past a line's own are anything."""
    frames = max(map(len, spans))
    generator = torch.Generator().manual_seed(seed)
    filled = [[*line, *[(7, 9)] * (frames - len(line))] for line in spans]
    logits = torch.randn(len(spans), frames, vocabulary, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([len(line) for line in spans])
    return Output(logits, lengths, None, torch.tensor(filled), torch.ones(len(spans)))


@st.composite
def two_readings(draw, longest):
    """Spans of two readings of as many positions, some of them left out."""
    size = draw(st.integers(1, 16))

    def reading():
        spans, place = [], 0
        while place < size:
            place += draw(st.integers(0, 4))  # left out
            end = min(place + draw(st.integers(1, longest)), size)
            if place < end:
                spans.append((place, end))
            place = end
        return spans or [(0, 1)]

    return [reading(), reading()]


@given(st.integers(1, 3).flatmap(lambda n: st.tuples(st.just(n), st.lists(two_readings(n), min_size=1, max_size=3))))
def test_each_frame_is_compared_with_what_the_other_reading_says_of_its_positions(case):
    longest, pairs = case
    out = output([line for lines in pairs for line in lines])
    found, posteriors = other_view(out, longest), out.logits.softmax(-1)
    for pair, lines in enumerate(pairs):
        for one, other in ((0, 1), (1, 0)):
            for frame, (first, end) in enumerate(lines[one]):
                rows = []
                for position in range(first, end):
                    covering = [i for i, (_, stop) in enumerate(lines[other]) if position < stop]
                    rows.append(posteriors[2 * pair + other, covering[0] if covering else len(lines[other]) - 1])
                expected = torch.stack(rows).mean(0)
                assert torch.allclose(found[2 * pair + one, frame], expected)


def test_readings_that_say_the_same_do_not_diverge():
    out = output([[(0, 1), (1, 3), (3, 4)]] * 2)
    logits = out.logits[:1].expand(2, -1, -1)
    out = out._replace(logits=logits)
    assert distillation(out.logits, out.lengths, other_view(out, 2)).item() == pytest.approx(0, abs=1e-12)


def test_the_divergence_is_added_to_the_loss_and_moves_each_towards_the_other():
    net = build(micro(timesteps=1).model, 4)
    out = output([[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 3)]])
    logits = out.logits.requires_grad_()
    targets, lengths = torch.ones(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.long)
    plain, both = (
        spike_htr_loss(out, targets, lengths, net, TrainingConfig(consistency=weight)) for weight in (0.0, 0.5)
    )
    assert plain.consistency == 0
    assert both.consistency > 0
    assert both.total.item() == pytest.approx((plain.total + 0.5 * both.consistency).item())
    wanted = other_view(out, net.config.reducer.longest)
    (gradient,) = torch.autograd.grad(both.consistency, logits)
    valid = out.lengths.sum()
    expected = (logits.softmax(-1) - wanted) / valid  # of KL(q | p) for each frame; q is taken for fixed
    assert torch.allclose(gradient[0], expected[0])
    assert torch.allclose(gradient[1, :2], expected[1, :2])
    assert (gradient[1, 2:] == 0).all()


@pytest.mark.parametrize("mode", ["keep-and-merge", "prune-only"])
def test_a_step_reads_every_line_twice_and_a_line_alike_both_times_where_nothing_is_random(mode):
    changes = {
        "model.reducer.mode": mode,
        "training.consistency": 0.3,
        "data.augment.probability": 0.0,
        "model.timesteps": 1,
    }
    config = micro().with_overrides(changes | {"model.mixer.dropout": 0.0, "model.mixer.drop_path": 0.0})
    once = config.with_overrides({"training.consistency": 0.0})
    images = torch.randint(0, 255, (2, 1, config.model.height, 96), dtype=torch.uint8)
    batch = Batch(
        images, torch.tensor([96, 50]), torch.ones(2, 4, dtype=torch.long), torch.tensor([4, 2]), torch.arange(2)
    )
    numbers = []
    for c in (config, once):
        torch.manual_seed(0)
        step = TrainStep(c, build(c.model, 12), make_fabric("cpu", precision="fp32"))
        seen = []
        step.net.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(len(args[0])))
        numbers.append(step(batch, Moment(0.5, 1e-3, 0)))
        assert seen == [4 if c is config else 2]
    assert numbers[0].tolist() == pytest.approx(numbers[1].tolist(), rel=1e-4, abs=1e-6)
    assert numbers[0][5] == pytest.approx(0, abs=1e-6)


def test_readings_come_closer(store, tmp_path):
    ends = []
    for name, weight in (("free", 1e-6), ("held", 5.0)):
        changes = {"training.consistency": weight, "data.augment.probability": 1.0, "training.epochs": 6}
        config = Config().with_overrides(SETTINGS | changes)
        (tmp_path / name).mkdir()
        lines = Lines(store, store.rows(), store.charset, config.data.max_width)
        run, told = Run(config, lines, None, tmp_path / name), Epochs()
        run.fit(tell=told)
        values = told[-1].values
        ends.append(values["consistency"])
        parts = values["ctc"] + 0.2 * values["aux"] + 0.05 * values["kl"] + weight * values["consistency"]
        assert values["loss"] == pytest.approx(parts, rel=1e-4)
    assert 0 < ends[1] < 0.7 * ends[0]
