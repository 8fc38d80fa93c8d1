"""The 1D sequence mixer (Section 3.5): blocks of one token operator and a spiking MLP, pre-norm and residual.

Tokens are [T, B, L, d]; `mask` [B, L] is True at valid ones. Norms are per token and linear maps too, so padding can
only leak through sums over tokens (linear attention) and depthwise kernels (LK): those two mask it. Every operator
holds two neurons, one on its features and one on its output, so a block adds whole spikes to the residual stream. With
`neurons = "read"` the second is left out, and a block adds what would have driven it; with "alone" so is LK's first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from spikehtr import kernels
from spikehtr.config import ModelConfig
from spikehtr.model.lif import make_neuron, spike
from spikehtr.model.masking import SharedDropout, TokenNorm, ramp, wide


def norm_and_fire(norm: TokenNorm, neuron: nn.Module, x: Tensor) -> Tensor:
    """[T, B, L, d] -> same shape; the drive between the two is never rounded."""
    if kernels.fast(x) and kernels.unwatched(norm, neuron):
        from spikehtr.kernels.network import token_norm

        return token_norm(norm, x, neuron)
    return neuron(norm(x))


def along_tokens(conv: nn.Conv1d, x: Tensor, mask: Tensor) -> Tensor:
    """A convolution over a line's own tokens: x [T, B, L, d], mask [B, L] -> [T, B, L, d']."""
    if kernels.fast(x) and kernels.unwatched(conv):
        from spikehtr.kernels.network import along_tokens as fast

        return fast(conv, x, mask.sum(1))
    near = conv((x * mask[:, :, None]).flatten(0, 1).transpose(1, 2))  # [T*B, d', L]
    return near.transpose(1, 2).unflatten(0, x.shape[:2])


def project(linear: nn.Linear, x: Tensor) -> Tensor:
    """A linear map with a bias: [..., din] -> [..., dout]."""
    if kernels.fast(x) and kernels.unwatched(linear):
        from spikehtr.kernels.network import linear as fast

        return fast(x, linear.weight, linear.bias)
    y: Tensor = linear(x)
    return y


class SpikingLinear(nn.Module):
    """Linear map, norm, neuron: [T, B, L, din] -> [T, B, L, dout]. `last`: of a branch."""

    def __init__(self, config: ModelConfig, din: int, dout: int, last: bool = False) -> None:
        super().__init__()
        c = config.mixer
        self.linear = nn.Linear(din, dout, bias=False)
        self.norm = TokenNorm(dout)
        fires = not last or c.neurons == "all"
        self.neuron = make_neuron(config, self.norm, c.burst, c.start_bias) if fires else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return norm_and_fire(self.norm, self.neuron, self.linear(x))


class MatchedMean(nn.Module):
    """y_i = q_i (sum_j k_j v_j^T) / (1 + |q_i . sum_j k_j|), head by head; q, k, v [T, B, L, h, d/h] -> same shape.

    The denominator counts the spikes that q_i shares with all keys, so y is close to a mean of the matched values.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            context = torch.einsum("tblhi,tblhj->tbhij", k, v)  # [T, B, h, d/h, d/h]
            matched = torch.einsum("tblhi,tbhij->tblhj", q, context)  # [T, B, L, h, d/h]
            total = torch.einsum("tblhi,tbhi->tblh", q, k.sum(2))  # [T, B, L, h]
        return matched / (1 + total.abs())[..., None]


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
        self.mean = MatchedMean()
        self.out = SpikingLinear(config, config.dim, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x))  # [T, B, L, 3 d]
        if kernels.fast(qkv) and kernels.unwatched(self.mean):
            from spikehtr.kernels.network import attend

            return self.out.linear(attend(qkv, mask, self.heads))
        q, k, v = wide(qkv).unflatten(-1, (3, self.heads, -1)).unbind(3)  # [T, B, L, h, d/h]
        y = self.mean(q, k * mask[:, :, None, None], v)
        return self.out.linear(y.flatten(3))


class QKMix(Branch):
    """QK: content gating. A token's q decides, head by head, whether its k passes: y = a * k, a = [sum(q) >= 0.5].

    No token sees another here. An analog gate of the input scales the result before the output neuron.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.spiking, self.lif = config.mixer.heads, config.neuron == "lif", config.lif
        self.norm = TokenNorm(config.dim)
        self.qk = SpikingLinear(config, config.dim, 2 * config.dim)
        self.gate = nn.Linear(config.dim, config.dim)
        self.out = SpikingLinear(config, config.dim, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(x)
        qk, scale = self.qk(x), torch.sigmoid(project(self.gate, x))  # [T, B, L, 2 d], [T, B, L, d]
        if kernels.fast(qk):
            from spikehtr.kernels.network import pass_keys

            return self.out.linear(pass_keys(qk, self.heads, self.lif if self.spiking else None)) * scale
        q, k = wide(qk).unflatten(-1, (2, self.heads, -1)).unbind(3)  # [T, B, L, h, d/h]
        excess = q.sum(-1, keepdim=True) - 0.5  # [T, B, L, h, 1]
        a = spike(excess, self.lif.surrogate, self.lif.surrogate_alpha) if self.spiking else torch.sigmoid(excess)
        return self.out.linear((a * k).flatten(3)) * scale  # [T, B, L, d]


class LargeKernel(Branch):
    """LK: midrange continuity. A long depthwise kernel fires on the neighbourhood; a gate weighs that against the
    token's own value: y = g * LIF(Norm(DW(u))) + (1 - g) * v. Without LIF where `neurons` is "alone"."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config.mixer
        wide = round(c.lk_expansion * config.dim)
        self.norm = TokenNorm(config.dim)
        self.inp = nn.Linear(config.dim, 3 * wide)
        self.dw = nn.Conv1d(wide, wide, c.lk_kernel, padding=c.lk_kernel // 2, groups=wide, bias=False)
        self.dw_norm = TokenNorm(wide)
        fires = c.neurons != "alone"
        self.dw_neuron = make_neuron(config, self.dw_norm, c.burst, c.start_bias) if fires else nn.Identity()
        self.out = SpikingLinear(config, wide, config.dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        u, v, g = project(self.inp, self.norm(x)).chunk(3, dim=-1)  # each [T, B, L, e*d]
        near = along_tokens(self.dw, u, mask)  # [T, B, L, e*d]
        fired = norm_and_fire(self.dw_norm, self.dw_neuron, near)
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


_OPERATORS: dict[str, Callable[[ModelConfig], Branch]] = {"LA": LinearAttention, "QK": QKMix, "LK": LargeKernel}


class MixerBlock(nn.Module):
    def __init__(self, config: ModelConfig, operator: str, drop_path: float) -> None:
        super().__init__()
        self.kind = operator
        self.operator = _OPERATORS[operator](config)
        self.mlp = SpikingMLP(config)
        self.dropout = SharedDropout(config.mixer.dropout)
        self.drop_path = SharedDropout(drop_path, per="line")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self._add(self._add(x, self.operator, mask), self.mlp, mask)

    def _add(self, x: Tensor, branch: Branch, mask: Tensor) -> Tensor:
        if kernels.fast(x) and kernels.unwatched(branch, self.dropout, self.drop_path):
            from spikehtr.kernels.network import add_spikes

            return add_spikes(x, branch.outlet, branch.drive(x, mask), self.dropout, self.drop_path)
        return x + self.drop_path(self.dropout(branch(x, mask)))


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
