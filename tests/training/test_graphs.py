from itertools import pairwise

import numpy as np
import pytest
import torch
from training_help import SETTINGS, Epochs

from readers_help import Rehearsals
from spikehtr.config import Config, TrainingConfig
from spikehtr.data.batching import Batch, Lines
from spikehtr.registry import build
from spikehtr.training.devices import make_fabric
from spikehtr.training.graphs import GraphedUpdate, make_step, pad_batch
from spikehtr.training.loop import TrainingRun
from spikehtr.training.optim import make_optimizer

pytestmark = pytest.mark.usefixtures("full_precision")


@pytest.mark.parametrize(("width", "labels", "padded"), [(1, 0, (64, 32)), (64, 32, (64, 32)), (65, 33, (128, 64))])
def test_batches_are_padded_to_few_sizes_with_white_and_nothing(width, labels, padded):
    images = torch.randint(0, 255, (2, 1, 24, width), dtype=torch.uint8)
    targets = torch.ones(2, labels, dtype=torch.long)
    batch = Batch(images, torch.tensor([width, 1]), targets, torch.tensor([labels, 0]), torch.arange(2))
    more = pad_batch(batch)
    assert (more.images.shape[-1], more.targets.shape[-1]) == padded
    assert torch.equal(more.images[..., :width], images)
    assert (more.images[..., width:] == 255).all()
    assert torch.equal(more.targets[:, :labels], targets)
    assert (more.targets[:, labels:] == 0).all()
    assert torch.equal(more.widths, batch.widths)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_recorded_update_is_the_update_it_stands_for(optimizer, device):
    """At a rate that changes, with a parameter that learns nothing at first; rehearsed where there is no GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("graphs are recorded on a GPU; there is none here")
    draw = torch.Generator().manual_seed(0)
    sizes = [(32, 48), (64, 20), (32, 48), (7,), (3, 16)]
    start, gradients = ([torch.randn(size, generator=draw).to(device) for size in sizes] for _ in range(2))
    nets, norms = [], []
    for recorded in (False, True):
        net = torch.nn.ParameterList([tensor.clone() for tensor in start])
        made = make_optimizer(net, TrainingConfig(optimizer=optimizer, weight_decay=0.2))

        def work(net=net, made=made):
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            made.step()
            return norm.detach()

        update = GraphedUpdate(work, net.parameters(), made, torch.device(device))
        update.recordings = update.recordings if device == "cuda" else Rehearsals()
        told = []
        for number in range(8):
            rate = 0.01 * (number + 1)
            for p, gradient in zip(net, gradients, strict=True):
                p.grad = gradient * (1 + number)
            net[3].grad = None if number < 4 else net[3].grad
            for group in made.param_groups:
                group["lr"] = rate
            told.append(update(rate) if recorded else work())
        assert made.param_groups[0]["lr"] == rate
        assert not recorded or len(update.recordings.kept) == 2
        nets.append(net)
        norms.append(torch.stack(told))
    assert torch.allclose(*norms)
    for before, a, b in zip(start, *nets, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert not torch.allclose(a, before, atol=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_when_an_update_is_recorded_changes_no_bit(optimizer, device):
    """A run that is resumed begins with updates that are not."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("graphs are recorded on a GPU; there is none here")
    weights = []
    for unrecorded in (1, 3, 6):
        torch.manual_seed(0)
        net = torch.nn.ParameterList([torch.randn(size, device=device) for size in [(32, 48), (64, 20), (7,)]])
        made = make_optimizer(net, TrainingConfig(optimizer=optimizer, weight_decay=0.2))

        def work(made=made):
            made.step()
            return torch.zeros((), device=device)

        update = GraphedUpdate(work, net.parameters(), made, torch.device(device))
        update.recordings = update.recordings if device == "cuda" else Rehearsals()
        update.recordings.seen[(True,) * 3] = 1 - unrecorded
        for number in range(6):
            for p in net:
                p.grad = torch.randn_like(p)
            update(0.01 / (number + 3))
        assert len(update.recordings.kept) == (unrecorded < 6)
        weights.append(torch.cat([p.detach().flatten() for p in net]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_an_update_for_which_a_recording_finds_no_memory_is_made_all_the_same():
    net = torch.nn.ParameterList([torch.ones(3)])
    made = make_optimizer(net, TrainingConfig(learning_rate=0.1))
    asked = []

    class Full(Rehearsals):
        def capture(self, work, rehearse):
            asked.append(work)
            raise torch.OutOfMemoryError

    def work():
        made.step()
        return torch.zeros(())

    update = GraphedUpdate(work, net.parameters(), made, torch.device("cpu"))
    update.recordings = Full()
    seen = [net[0].clone()]
    for _ in range(4):
        net[0].grad = torch.ones(3)
        update(0.1)
        seen.append(net[0].detach().clone())
    assert all((after < before).all() for before, after in pairwise(seen))
    assert len(asked) == 1  # and not asked for again


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are recorded on a GPU; there is none here")
def test_recorded_steps_are_the_steps_they_recorded(store, tmp_path):
    """With GELU: a neuron's threshold turns the last digit, which the padding decides, into another course. Without
    dropout, whose kernels draw by place, so that another padding is another draw."""
    losses = []
    for number, graphs in enumerate((False, True)):
        config = Config().with_overrides(
            SETTINGS | {"training.cuda_graphs": graphs, "training.epochs": 6, "model.neuron": "gelu"}
        )
        config = config.with_overrides({"model.mixer.dropout": 0.0, "model.mixer.drop_path": 0.0})
        lines = Lines(store, store.rows(), store.charset, config.data.max_width)
        (tmp_path / str(number)).mkdir()
        run = TrainingRun(config, lines, None, tmp_path / str(number), make_fabric("cuda", precision="fp32"))
        run.fit(tell=(told := Epochs()))
        losses.append([epoch.values["loss"] for epoch in told])
        assert (getattr(run.train_step, "graphed", None) is not None) == graphs
        assert not graphs or run.train_step.graphed.recordings.kept
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)  # the same sums at another padding


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are recorded on a GPU; there is none here")
def test_a_recorded_step_of_spikes(store):
    """One step and its gradients, recorded and not, from the same weights, at the same padding."""
    found = []
    for graphs in (False, True):
        config = Config().with_overrides(SETTINGS | {"training.cuda_graphs": graphs})
        lines = Lines(store, store.rows(), store.charset, config.data.max_width)
        torch.manual_seed(0)
        take = make_step(config, build(config.model, len(store.charset)), make_fabric("cuda", precision="fp32"))
        batch = pad_batch(lines.batch(np.arange(4)))
        for _ in range(4):  # with a rate of 0: the same step each time, seen often enough to be recorded
            numbers = take(batch, 0.0, 7)
        assert not graphs or take.graphed.recordings.kept
        found.append((numbers.cpu(), torch.cat([p.grad.flatten().cpu() for p in take.net.parameters()])))
    (plain, expected), (recorded, gradients) = found
    assert torch.allclose(recorded, plain, rtol=1e-4)
    assert (gradients - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is pinned for a GPU; there is none here")
@pytest.mark.parametrize("width", [64, 65])
def test_padded_batches_stay_pinned(width):
    values = (torch.zeros(2, 1, 8, width, dtype=torch.uint8), torch.tensor([1, 1]), torch.zeros(2, width // 2).long())
    batch = Batch(*(value.pin_memory() for value in (*values, torch.tensor([1, 1]), torch.arange(2))))
    assert all(value.is_pinned() for value in pad_batch(batch))
