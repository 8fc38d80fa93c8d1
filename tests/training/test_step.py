"""A step of training: what is prepared of a batch, and what is learnt from it."""

import torch

from conftest import micro
from spikehtr.data.batching import Batch
from spikehtr.registry import build
from spikehtr.training.devices import make_fabric
from spikehtr.training.step import TrainStep, prepare


def lines(config, count=2):
    images = torch.randint(0, 255, (count, 1, config.model.height, 64), generator=torch.Generator().manual_seed(1))
    widths, lengths = torch.tensor([64, 50] * (count // 2)), torch.tensor([4, 2] * (count // 2))
    return Batch(images.to(torch.uint8), widths, torch.ones(count, 4, dtype=torch.long), lengths, torch.arange(count))


def test_lines_without_ink_lose_their_text_too():
    plain = micro().with_overrides({"data.augment.probability": 0.0})
    batch = lines(plain, 200)
    torch.manual_seed(0)
    found = prepare(batch, plain.with_overrides({"data.augment.blank": 0.3}))
    whole = prepare(batch, plain)
    empty = found.target_lengths == 0
    assert 0.2 < empty.float().mean() < 0.4
    assert torch.equal((found.images != whole.images).flatten(1).any(1), empty)
    assert torch.equal(found.target_lengths[~empty], batch.target_lengths[~empty])
    assert torch.equal(found.min_lengths == 0, empty)
    assert torch.equal(whole.target_lengths, batch.target_lengths)


def test_on_a_cpu_no_column_is_kept_that_no_line_needs():
    config = micro().with_overrides({"data.augment.probability": 1.0, "data.augment.stretch": 0.33})
    for seed in range(5):
        torch.manual_seed(seed)
        found = prepare(lines(config), config)
        assert found.images.shape[-1] == int(found.widths.max())


def test_a_network_learns_that_paper_is_no_text():
    config = micro().with_overrides({"data.augment.blank": 0.99, "data.augment.probability": 0.0})
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, 12), make_fabric("cpu", precision="fp32"))
    losses = [step(lines(config), 1e-2, seed)[0].item() for seed in range(12)]
    assert losses[-1] < 0.2 * losses[0]
