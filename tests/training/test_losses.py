import pytest
import torch
import torch.nn.functional as F

from conftest import micro
from spikehtr import Config, SpikeHTR
from spikehtr.model.lif import expected_firing
from spikehtr.training.losses import bypass_penalty, ctc, spike_htr_loss, symmetric_kl


def problem():
    g = torch.Generator().manual_seed(0)
    logits, aux = torch.randn(2, 9, 6, generator=g), torch.randn(2, 9, 6, generator=g)
    return logits, aux, torch.tensor([9, 5]), torch.tensor([[1, 2, 2], [3, 0, 0]]), torch.tensor([3, 1])


def test_ctc_is_minus_log_of_the_summed_paths():
    """Against the sum over all paths that collapse to the target, by enumeration (Eq. 2)."""
    import itertools

    logits = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = [1, 1]
    p = logits[0].softmax(-1)
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        collapsed = [label for label, _ in itertools.groupby(path) if label]
        if collapsed == target:
            total += float(torch.stack([p[i, label] for i, label in enumerate(path)]).prod())
    loss = ctc(logits, torch.tensor([4]), torch.tensor([target]), torch.tensor([2]))
    assert loss.item() == pytest.approx(-torch.tensor(total).log().item() / 2, rel=1e-5)


def test_ctc_of_an_empty_line_is_the_mean_over_its_frames():
    """So that empty paper weighs as much as a line with text, however wide it is."""
    logits = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(0))
    lengths, blanks = torch.tensor([9, 4]), logits.log_softmax(-1)[..., 0]
    for number in (0, 1):
        one = slice(number, number + 1)
        loss = ctc(logits[one], lengths[one], torch.tensor([[3, 1]]), torch.tensor([0]))
        assert loss.item() == pytest.approx(-blanks[number, : lengths[number]].mean().item(), rel=1e-5)


def test_ctc_of_an_impossible_line_is_zero_not_infinite():
    logits = torch.zeros(1, 2, 4, requires_grad=True)
    loss = ctc(logits, torch.tensor([2]), torch.tensor([[1, 1]]), torch.tensor([2]))
    loss.backward()
    assert loss == 0
    assert torch.isfinite(logits.grad).all()


def test_symmetric_kl_equals_torch_and_ignores_padding():
    main, aux, lengths, _, _ = problem()
    p, q = main.log_softmax(-1), aux.log_softmax(-1)
    both = F.kl_div(q, p, log_target=True, reduction="none") + F.kl_div(p, q, log_target=True, reduction="none")
    expected = torch.cat([both[0, :9].sum(-1), both[1, :5].sum(-1)]).mean() / 2
    assert symmetric_kl(main, aux, lengths).item() == pytest.approx(expected.item(), rel=1e-5)
    disturbed = main.clone()
    disturbed[1, 5:] = 50.0
    assert symmetric_kl(disturbed, aux, lengths) == symmetric_kl(main, aux, lengths)
    assert symmetric_kl(main, main, lengths) == 0
    assert symmetric_kl(main, aux, lengths, temperature=10.0) < symmetric_kl(main, aux, lengths)


def test_total_is_the_papers_weighted_sum():
    config = Config().with_overrides({"training.bypass_penalty": 0.5})
    net = SpikeHTR(micro(encoder__bypass_init=0.2).model, 6)
    out = net(torch.rand(2, 1, 32, 48))
    targets, target_lengths = torch.tensor([[1, 2, 2], [3, 0, 0]]), torch.tensor([3, 1])
    loss = spike_htr_loss(out, targets, target_lengths, net, config.training)
    assert loss.total.item() == pytest.approx(
        (loss.main + 0.2 * loss.aux + 0.05 * loss.kl + 0.5 * loss.bypass).item(), rel=1e-6
    )
    assert loss.bypass.item() == pytest.approx(0.04 * 9, rel=1e-5)  # 3 stage convolutions, 3 DW, 3 PW2


def test_a_price_on_firing_is_added():
    net = SpikeHTR(micro().model, 6)
    out = net(torch.rand(2, 1, 32, 48))
    what = out, torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1]), net
    free, priced = (
        spike_htr_loss(*what, Config().with_overrides({"training.firing_penalty": price}).training).total
        for price in (0.0, 2.0)
    )
    expected = expected_firing(net).item()
    assert (priced - free).item() == pytest.approx(2 * expected, rel=1e-4)
    for target in (expected / 3, 2 * expected):  # only what is above it has a price
        settings = {"training.firing_penalty": 2.0, "training.firing_target": target}
        less = spike_htr_loss(*what, Config().with_overrides(settings).training).total
        assert (less - free).item() == pytest.approx(2 * max(expected - target, 0), rel=1e-4, abs=1e-6)


def test_bypass_penalty_without_bypass_is_zero():
    assert bypass_penalty(SpikeHTR(micro(encoder__bypass=False).model, 6)) == 0


def test_padding_of_targets_does_not_matter():
    logits, _, lengths, targets, target_lengths = problem()
    wider = F.pad(targets, (0, 4), value=5)
    assert ctc(logits, lengths, targets, target_lengths) == ctc(logits, lengths, wider, target_lengths)
