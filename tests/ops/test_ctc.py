"""CTC on the device against torch's: costs and gradients of the logits."""

import pytest
import torch
import torch.nn.functional as F
from ops_help import DEVICE, needs_gpu

from spikehtr.ops.triton.ctc import ctc_costs


def lines(lengths, target_lengths, labels=6, seed=0, spread=2.0):
    g = torch.Generator().manual_seed(seed)
    size, most = max(lengths), max(1, *target_lengths)
    logits = torch.randn(len(lengths), size + 1, labels, generator=g) * spread
    targets = torch.randint(1, labels, (len(lengths), most), generator=g)
    parts = logits, targets, torch.tensor(lengths), torch.tensor(target_lengths)
    return [x.to(DEVICE) for x in parts]


def both(logits, targets, lengths, target_lengths, kinds=("torch", "ours")):
    answers = []
    for kind in kinds:
        leaf = logits.clone().requires_grad_()
        log_probs = leaf.log_softmax(-1)
        if kind == "torch":
            frames = log_probs.transpose(0, 1)
            costs = F.ctc_loss(frames, targets, lengths, target_lengths, reduction="none", zero_infinity=True)
        else:
            costs = ctc_costs(log_probs, lengths, targets, target_lengths)
        weights = torch.arange(1, len(costs) + 1, device=costs.device)
        answers.append((costs, *torch.autograd.grad((costs * weights).sum(), leaf)))
    return answers


@pytest.mark.parametrize(
    ("lengths", "target_lengths"),
    [([7, 5, 3], [3, 1, 3]), ([9, 9], [4, 0]), ([1, 4], [1, 2]), ([6], [5])],
    ids=str,
)
@pytest.mark.parametrize("labels", [2, 6])  # with two, every label repeats its neighbour
def test_equals_torch(lengths, target_lengths, labels):
    (costs, slopes), (our_costs, our_slopes) = both(*lines(lengths, target_lengths, labels))
    assert torch.allclose(costs, our_costs, rtol=1e-5, atol=1e-5)
    assert torch.allclose(slopes, our_slopes, atol=1e-5)


@pytest.mark.parametrize("most", [7, 8, 9])  # a tile holds as many blanks as labels and one more
def test_targets_that_just_fill_a_tile(most):
    (costs, slopes), (our_costs, our_slopes) = both(*lines([20, 20, 12], [most, most - 1, 1]))
    assert torch.allclose(costs, our_costs, rtol=1e-5, atol=1e-5)
    assert torch.allclose(slopes, our_slopes, atol=1e-5)


def test_costs_are_the_same_where_no_gradient_is_asked_for():
    logits, targets, lengths, target_lengths = lines([7, 5, 3], [3, 1, 3])
    costs = ctc_costs(logits.log_softmax(-1), lengths, targets, target_lengths)
    again = ctc_costs(logits.requires_grad_().log_softmax(-1), lengths, targets, target_lengths)
    assert torch.equal(costs, again)


def test_a_line_that_cannot_be_spelled_costs_nothing():
    logits, targets, lengths, target_lengths = lines([3, 8], [3, 3])
    targets[0] = 1  # three equal labels need five frames
    (costs, slopes), (our_costs, our_slopes) = both(logits, targets, lengths, target_lengths)
    assert our_costs[0] == costs[0] == 0
    assert our_slopes[0].abs().max() == slopes[0].abs().max() == 0
    assert torch.allclose(slopes[1], our_slopes[1], atol=1e-5)


def test_very_sure_logits_stay_finite():
    (costs, slopes), (our_costs, our_slopes) = both(*lines([12, 12], [4, 2], spread=60.0))
    assert torch.allclose(costs, our_costs, rtol=1e-4)
    assert torch.isfinite(our_slopes).all()
    assert torch.allclose(slopes, our_slopes, atol=1e-3)


def test_frames_past_the_end_do_not_matter():
    logits, targets, lengths, target_lengths = lines([7, 4], [2, 2])
    costs = ctc_costs(logits.log_softmax(-1), lengths, targets, target_lengths)
    logits[1, 4:] = torch.nan
    again = ctc_costs(logits.log_softmax(-1), lengths, targets, target_lengths)
    assert torch.equal(costs, again)


def assert_near(plain, quick, tolerance):
    assert (plain.double() - quick.double()).norm() <= tolerance * plain.double().norm()


@pytest.mark.parametrize("count", [3, pytest.param(64, marks=needs_gpu)])
def test_equals_torch_in_double_precision_on_long_lines(count):
    g = torch.Generator().manual_seed(1)
    lengths = torch.randint(90, 149, (count,), generator=g).tolist()
    logits, *rest = lines(lengths, torch.randint(1, 40, (count,), generator=g).tolist(), labels=80)
    costs, slopes = both(logits.double(), *rest, kinds=("torch",))[0]
    our_costs, our_slopes = both(logits, *rest, kinds=("ours",))[0]
    assert_near(costs, our_costs, 1e-5)
    assert_near(slopes, our_slopes, 1e-5)


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_host_is_never_stopped():
    logits, targets, lengths, target_lengths = lines([30, 20], [5, 9])
    logits.requires_grad_()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ctc_costs(logits.log_softmax(-1), lengths, targets, target_lengths).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
