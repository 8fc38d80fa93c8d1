"""Training losses (Eqs. 2 and 19, Table 10), all in fp32: CTC, auxiliary CTC, masked symmetric KL, penalties."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import TrainingConfig
from spikehtr.model.encoder import SpikingConv2d
from spikehtr.model.lif import expected_firing
from spikehtr.model.network import Network, Output
from spikehtr.ops.masks import at_least_fp32, valid_mask


class Share(NamedTuple):
    """One device's part of a batch that several share: the mean of the devices' losses is then the whole batch's.

    `lines` and `frames` are the whole batch's, divided by the number of devices.
    """

    own: Tensor  # [B], 1 for a line of this device, 0 for one that only fills it up
    lines: float
    frames: Tensor  # scalar, valid frames


class Losses(NamedTuple):
    """The weighted sum, and its parts before weighting."""

    total: Tensor
    main: Tensor
    aux: Tensor
    kl: Tensor
    bypass: Tensor


def ctc(logits: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor, part: Share | None = None) -> Tensor:
    """Mean over lines of -log p(target) / target length; a line too short to spell its target counts 0. Where there is
    nothing to spell, every frame has to be blank, and the cost is the mean over them.

    logits [B, L, V], lengths [B], targets [B, U] of labels, target_lengths [B] -> scalar
    """
    log_probs = at_least_fp32(logits).log_softmax(-1)  # [B, L, V]
    with torch.autocast(logits.device.type, enabled=False):
        costs = ops.ctc_costs(log_probs, lengths, targets, target_lengths)  # [B]
    costs = costs / torch.where(target_lengths > 0, target_lengths, lengths.clamp(min=1))
    return _mean(costs, part)


def _mean(costs: Tensor, part: Share | None) -> Tensor:
    """Over the batch's lines: [B] -> scalar"""
    return costs.mean() if part is None else (costs * part.own).sum() / part.lines


def symmetric_kl(
    main: Tensor, aux: Tensor, lengths: Tensor, temperature: float = 1.0, part: Share | None = None
) -> Tensor:
    """Mean over valid frames of (KL(p|q) + KL(q|p)) / 2 = sum((p - q)(log p - log q)) / 2.

    logits [B, L, V] of both heads, lengths [B] -> scalar
    """
    log_p = (at_least_fp32(main) / temperature).log_softmax(-1)
    log_q = (at_least_fp32(aux) / temperature).log_softmax(-1)
    skl = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1) / 2  # [B, L]
    mask = valid_mask(lengths, skl.shape[1])
    if part is None:
        return (skl * mask).sum() / mask.sum()
    return (skl * mask * part.own[:, None]).sum() / part.frames


def bypass_penalty(net: nn.Module) -> Tensor:
    """Sum of alpha^2 over the membrane shortcuts: 0 where there are none."""
    alphas: list[Tensor] = [m.alpha for m in net.modules() if isinstance(m, SpikingConv2d) and m.alpha is not None]
    if not alphas:
        return torch.zeros((), device=next(net.parameters()).device)
    return torch.stack(alphas).square().sum()


def spike_htr_loss(
    out: Output,
    targets: Tensor,
    target_lengths: Tensor,
    net: Network,
    config: TrainingConfig,
    part: Share | None = None,
) -> Losses:
    """What training minimises: main + 0.2 aux + 0.05 KL (+ penalties on alpha and firing, + what a part that was shown
    the transcripts costs).

    A network without an auxiliary head has 0 for the two terms that need one.
    """
    text = None if out.text_costs is None else _mean(out.text_costs, part)
    if text is not None and net.autoregressive:
        main, text = text, None
    else:
        main = ctc(out.logits, out.lengths, targets, target_lengths, part)
    aux = kl = torch.zeros_like(main)
    if out.aux_logits is not None:
        aux = ctc(out.aux_logits, out.lengths, targets, target_lengths, part)
        kl = symmetric_kl(out.logits, out.aux_logits, out.lengths, config.kl_temperature, part)
    bypass = bypass_penalty(net)
    total = main + config.aux_weight * aux + config.kl_weight * kl + config.bypass_penalty * bypass
    if text is not None:
        total = total + text
    if config.firing_penalty:
        total = total + config.firing_penalty * (expected_firing(net) - config.firing_target).clamp(min=0)
    return Losses(total, main, aux, kl, bypass)
