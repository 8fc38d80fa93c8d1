"""Span masking of Spike-HTR's tokens: in training only, by a learned token, at the same places at every step."""

import torch

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.model.masking import hide_spans

MASKED = {"span_mask__ratio": 0.5, "span_mask__span": 3, "mixer__dropout": 0.0, "mixer__drop_path": 0.0}


def test_spans_are_replaced_at_every_step_alike_and_within_the_line():
    torch.manual_seed(0)
    tokens, lengths, token = torch.randn(2, 3, 20, 4), torch.tensor([20, 12, 2]), torch.full((4,), 9.0)
    found = hide_spans(tokens, lengths, token, ratio=0.5, span=3)
    hidden = (found == 9).all(-1)  # [T, B, L]
    assert torch.equal(hidden[0], hidden[1])
    assert hidden[0, :2].any(1).all()
    assert not hidden[0, 1, 12:].any()
    assert not hidden[0, 2].any()  # no room for a span of half a line of two
    assert torch.equal(found[~hidden], tokens[~hidden])


def test_training_masks_and_reading_does_not():
    torch.manual_seed(0)
    net = SpikeHTR(micro(**MASKED).model, 6)
    plain = SpikeHTR(micro(**MASKED | {"span_mask__ratio": 0.0}).model, 6)
    plain.load_state_dict({name: value for name, value in net.state_dict().items() if name != "mask_token"})
    images = torch.rand(2, 1, 32, 80)
    assert plain.mask_token is None
    assert torch.equal(net.eval()(images).logits, plain.eval()(images).logits)
    need = torch.full((2,), 80)  # nothing is reduced: shapes are alike
    first, second = (net.train()(images, None, need).logits for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(*(plain.train()(images, None, need).logits for _ in range(2)))
    first.square().mean().backward()
    assert net.mask_token.grad.abs().sum() > 0
