"""Muon (Jordan et al. 2024): a matrix's step is its momentum made orthogonal, so that every direction of it counts the
same, however small the gradients are there. What it gives to a network of spikes: docs/explanation/training-spikes.md.

    m <- m + (1 - momentum) * (g - m)
    w <- w - rate * weight_decay * w - rate * 0.2 * sqrt(max(rows, columns)) * orthogonal(g + momentum * (m - g))

The factor 0.2 * sqrt(max(rows, columns)) makes an update as large as AdamW's usually are at the same rate (Liu et al.
2025). A convolution's kernel is a matrix of a row for each channel that it makes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)  # the source's: singular values in (0, 1] go to about 1, small ones fast
_SMALLEST = 16  # rows and columns; below, there is too little to make orthogonal


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """[N, rows, columns], with singular values of about 1 (0.7 to 1.2) and the same singular vectors; zeros stay zeros.

    By Newton and Schulz's iteration: products alone, in bf16 on a GPU; fewer where there are fewer rows than columns.
    """
    a, b, c = _QUINTIC
    dtype = matrices.dtype
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(dtype)


def matrices_of(net: nn.Module) -> list[Tensor]:
    """What Muon is for: weights with many rows and columns, depthwise kernels of many taps too. Not what has a row for
    each label, or is a table."""
    labels = getattr(net, "per_label", ())
    weights = [(name, p) for name, p in net.named_parameters() if "weight" in name.rpartition(".")[2]]
    return [p for name, p in weights if p.dim() > 1 and min(len(p), p[0].numel()) >= _SMALLEST and name not in labels]


def stacks(shapes: list[torch.Size], spare: int) -> list[list[int]]:
    """Which matrices to make orthogonal together, the largest of each stack first: those that at most `spare` zeros
    fill up to its size. Zeros change nothing; on a GPU a few of them cost less than a stack more."""
    found = []
    rest = sorted(range(len(shapes)), key=lambda i: shapes[i].numel(), reverse=True)
    while rest:
        most = shapes[rest[0]]
        fit = [i for i in rest if all(a <= b for a, b in zip(shapes[i], most, strict=True))]
        fit = [i for i in fit if most.numel() - shapes[i].numel() <= spare]
        found.append(fit)
        rest = [i for i in rest if i not in fit]
    return found


class Muon(torch.optim.AdamW):
    """AdamW for the parameters of `groups`; Muon for `matrices`, at `times` the learning rate of the first group.
    `spare`: of `stacks`."""

    def __init__(
        self,
        matrices: list[Tensor],
        groups: list[dict[str, Any]],
        lr: float,
        weight_decay: float,
        times: float = 1.0,
        momentum: float = 0.95,
        fused: bool = False,
        spare: int = 0,
    ) -> None:
        super().__init__(groups, lr=lr, fused=fused)
        self.matrices, self.decay, self.times, self.momentum = matrices, weight_decay, times, momentum
        self.spare = spare

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for p in self.matrices:
            if set_to_none or p.grad is None:
                p.grad = None
            else:
                p.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        learning = [p for p in self.matrices if p.grad is not None]
        if not learning:
            return loss
        rate = self.times * self.param_groups[0]["lr"]  # a number, or a tensor while the step is recorded
        gradients = [p.grad for p in learning if p.grad is not None]
        for p in learning:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum"] for p in learning]
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        updates = torch._foreach_lerp(gradients, momenta, self.momentum)
        torch._foreach_mul_(learning, 1 - rate * self.decay)
        rates = torch.zeros((), device=learning[0].device) + rate
        wide = [update.mT if len(update) > update.shape[1] else update for update in [u.flatten(1) for u in updates]]
        for indices in stacks([matrix.shape for matrix in wide], self.spare):
            stack = wide[0].new_zeros(len(indices), *wide[indices[0]].shape)
            places = [place[: len(wide[i]), : wide[i].shape[1]] for i, place in zip(indices, stack, strict=True)]
            torch._foreach_copy_(places, [wide[i] for i in indices])
            straight = orthogonal(stack)
            for i, change in zip(indices, straight, strict=True):
                rows, columns = wide[i].shape
                change = change[:rows, :columns] if len(learning[i]) == rows else change[:rows, :columns].mT
                learning[i].addcmul_(change.reshape(learning[i].shape), rates, value=-0.2 * columns**0.5)
        return loss
