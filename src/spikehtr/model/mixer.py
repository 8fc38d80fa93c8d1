"""The 1D sequence mixer (Section 3.5): blocks of one token operator and a spiking MLP, pre-norm and residual.

Tokens are [T, B, L, d]; `mask` [B, L] is True at valid ones. Norms are per token and linear maps too, so padding can
only leak through sums over tokens (linear attention) and depthwise convolutions (LK): those two mask it. Every operator
holds two neurons, one on its features and one on its output, so a block adds whole spikes to the residual stream. With
`neurons = "read"` the second is left out, and a block adds what would have driven it; with "alone" so is LK's first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import ModelConfig
from spikehtr.config.model_section import TOKEN_OPERATORS
from spikehtr.model.lif import Nonlinearity, make_neuron, numbers_of
from spikehtr.model.masking import SharedDropout, TokenNorm, ramp


class Linear(nn.Linear):
    """nn.Linear by `ops.linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class TokenConv(nn.Conv1d):
    """A depthwise convolution over a line's own tokens: x [T, B, L, d], mask [B, L] -> [T, B, L, d]"""

    def __init__(self, dim: int, kernel: int, bias: bool = True) -> None:
        super().__init__(dim, dim, kernel, padding=kernel // 2, groups=dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return ops.along_tokens(x, mask, self.weight, self.bias)


def norm_and_fire(norm: TokenNorm, neuron: Nonlinearity, x: Tensor) -> Tensor:
    """[T, B, L, d] -> same shape; the drive between the two is never rounded."""
    return ops.token_norm_neuron(x, norm.weight, norm.bias, norm.numbers, neuron.numbers)


class SpikingLinear(nn.Module):
    """Linear map, norm, neuron: [T, B, L, din] -> [T, B, L, dout]. `last`: of a branch."""

    def __init__(self, config: ModelConfig, din: int, dout: int, last: bool = False) -> None:
        super().__init__()
        c = config.mixer
        self.linear = nn.Linear(din, dout, bias=False)
        self.norm = TokenNorm(dout)
        self.neuron = make_neuron(config, self.norm, c.burst, c.start_bias, fires=not last or c.neurons == "all")

    def forward(self, x: Tensor) -> Tensor:
        return norm_and_fire(self.norm, self.neuron, self.linear(x))


class MatchedMean(nn.Module):
    """Linear attention's `ops.matched_mean`: spikes q, k, v side by side [T, B, L, 3 d], mask [B, L] -> [T, B, L, d].
    The denominator counts the spikes that q_i shares with all keys: y is close to a mean of the matched values."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, qkv: Tensor, mask: Tensor) -> Tensor:
        return ops.matched_mean(qkv, mask, self.heads)


class Branch(nn.Module, ABC):
    """What a block adds to its stream [T, B, L, d], mask [B, L]: spikes of `outlet`'s neuron, driven by `drive`, or the
    drive's norm where there is no neuron."""

    out: SpikingLinear

    @property
    def outlet(self) -> SpikingLinear:
        return self.out

    @abstractmethod
    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        """[T, B, L, d], [B, L] -> what the outlet's norm reads, [T, B, L, d]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return norm_and_fire(self.outlet.norm, self.outlet.neuron, self.drive(x, mask))


class LinearAttention(Branch):
    """LA: global aggregation. q, k, v are spikes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.mixer.heads
        self.norm = TokenNorm(config.dim)
        self.qkv = SpikingLinear(config, config.dim, 3 * config.dim)
        self.mean = MatchedMean(self.heads)
        self.out = SpikingLinear(config, config.dim, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.out.linear(self.mean(self.qkv(self.norm(x)), mask))


class QKMix(Branch):
    """QK: content gating. A token's q decides, head by head, whether its k passes: y = a * k, a = [sum(q) >= 0.5].

    No token sees another here. An analog gate of the input scales the result before the output neuron.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.mixer.heads
        self.numbers = numbers_of(config.lif) if config.neuron == "lif" else ops.Neuron(ops.GELU)  # of a token's gate
        self.norm = TokenNorm(config.dim)
        self.qk = SpikingLinear(config, config.dim, 2 * config.dim)
        self.gate = Linear(config.dim, config.dim)
        self.out = SpikingLinear(config, config.dim, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(x)
        qk, scale = self.qk(x), torch.sigmoid(self.gate(x))  # [T, B, L, 2 d], [T, B, L, d]
        return self.out.linear(ops.pass_keys(qk, self.heads, self.numbers)) * scale


class LargeKernel(Branch):
    """LK: midrange continuity. A long depthwise kernel fires on the neighbourhood; a gate weighs that against the
    token's own value: y = g * LIF(Norm(DW(u))) + (1 - g) * v. Without LIF where `neurons` is "alone"."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config.mixer
        wide = round(c.lk_expansion * config.dim)
        self.norm = TokenNorm(config.dim)
        self.inp = Linear(config.dim, 3 * wide)
        self.dw = TokenConv(wide, c.lk_kernel, bias=False)
        self.dw_norm = TokenNorm(wide)
        self.dw_neuron = make_neuron(config, self.dw_norm, c.burst, c.start_bias, fires=c.neurons != "alone")
        self.out = SpikingLinear(config, wide, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        u, v, g = self.inp(self.norm(x)).chunk(3, dim=-1)  # each [T, B, L, e*d]
        fired = norm_and_fire(self.dw_norm, self.dw_neuron, self.dw(u, mask))  # [T, B, L, e*d]
        return self.out.linear(v + torch.sigmoid(g) * (fired - v))


class SpikingMLP(Branch):
    """FC1 widens, FC2 narrows; FC2 reads pure spikes."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        wide = round(config.mixer.mlp_ratio * config.dim)
        self.norm = TokenNorm(config.dim)
        self.fc1 = SpikingLinear(config, config.dim, wide)
        self.fc2 = SpikingLinear(config, wide, config.dim, last=True)

    @property
    def outlet(self) -> SpikingLinear:
        return self.fc2

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.fc2.linear(self.fc1(self.norm(x)))


class MixerBlock(nn.Module):
    def __init__(self, config: ModelConfig, operator: str, drop_path: float) -> None:
        super().__init__()
        self.kind = operator
        module, name = TOKEN_OPERATORS[operator]
        self.operator: Branch = getattr(import_module(module), name)(config)
        self.mlp = SpikingMLP(config)
        self.dropout = SharedDropout(config.mixer.dropout)
        self.drop_path = SharedDropout(drop_path, per="line")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self._add(self._add(x, self.operator, mask), self.mlp, mask)

    def _add(self, x: Tensor, branch: Branch, mask: Tensor) -> Tensor:
        norm, neuron, drive = branch.outlet.norm, branch.outlet.neuron, branch.drive(x, mask)
        rates = self.dropout.active_rate, self.drop_path.active_rate
        return ops.add_branch(x, drive, norm.weight, norm.bias, norm.numbers, neuron.numbers, *rates)


class Mixer(nn.Module):
    """tokens [T, B, L, d], mask [B, L] -> [T, B, L, d]"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        operators = config.mixer.operators
        rates = ramp(config.mixer.drop_path, len(operators))
        self.blocks = nn.ModuleList(MixerBlock(config, kind, rate) for kind, rate in zip(operators, rates, strict=True))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return x
