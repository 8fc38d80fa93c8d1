"""HTR-VT: Y. Li et al., 'HTR-VT: Handwritten Text Recognition with Vision Transformer', Pattern Recognition 158, 2025.

A ResNet-18 cut after three stages makes a token of each four columns; four transformer layers read them. In training
spans of tokens are replaced by a learned one. 53.4 M parameters (the paper: 53.5).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns, ResidualBlock
from spikehtr.config import ModelConfig
from spikehtr.ops.masks import at_least_fp32, column_mask, valid_mask

_DIM, _HEADS, _LAYERS, _MLP_RATIO = 768, 6, 4, 4
_STAGES = ((4, (2, 1)), (2, (2, 2)), (1, (2, 2)))  # part of the full width, and stride of the first of two blocks
_EPS = 1e-6


class HTRVT(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        dim = self.scaled_width(_DIM, multiple=2 * _HEADS)  # so that heads and quarters are whole
        self.shortcut = self.preview_head(dim)
        channels = dim // 4
        self.stem = nn.Conv2d(config.in_channels, channels, 3, (2, 1), padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.blocks = nn.ModuleList()
        for part, stride in _STAGES:
            self.blocks.append(ResidualBlock(channels, dim // part, stride))
            self.blocks.append(ResidualBlock(dim // part, dim // part))
            channels = dim // part
        self.mask_token = nn.Parameter(torch.randn(dim) * 0.02)
        self.layers = nn.ModuleList(TransformerLayer(dim) for _ in range(_LAYERS))
        self.norm = nn.LayerNorm(dim, eps=_EPS)
        self.head = nn.Linear(dim, vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = line_norm(ink, column_mask(own.widths, own.canvas))  # [B, C, H, W]
        x = F.relu(own(self.stem_norm(self.stem(x))))  # [B, d/4, H/2, W]
        x = own(halve_rows(x))
        for block in self.blocks:
            x = block(x, own)  # at last [B, d, H/32, W/4]
        tokens = own(halve_rows(x)).amax(2).transpose(1, 2)  # one row is left at a height of 64: [B, L0, d]
        lengths = -(-own.widths // self.stride)
        if self.training:
            c = self.config.baseline
            tokens = hide_spans(tokens, lengths, self.mask_token, c.mask_ratio, c.mask_span)
        tokens = tokens + positions(tokens.shape[1], tokens.shape[2], tokens.device).to(tokens.dtype)
        return tokens * valid_mask(lengths, tokens.shape[1])[..., None]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        inside = valid_mask(lengths, tokens.shape[1])  # [B, L]
        z = tokens
        for layer in self.layers:
            z = layer(z, inside)  # [B, L, d]
        return line_norm(self.head(self.norm(z)), inside[..., None])


class TransformerLayer(nn.Module):
    """A pre-norm transformer layer: [B, L, d], inside [B, L] -> [B, L, d]"""

    def __init__(self, dim: int, heads: int = _HEADS) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_EPS)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=_EPS)
        self.mlp = nn.Sequential(nn.Linear(dim, _MLP_RATIO * dim), nn.GELU(), nn.Linear(_MLP_RATIO * dim, dim))

    def forward(self, z: Tensor, inside: Tensor) -> Tensor:
        z = z + self.attention(self.norm1(z), inside)
        z = z + self.mlp(self.norm2(z))
        return z


class Attention(nn.Module):
    """Self-attention over a line's own tokens: [B, L, d], inside [B, L] -> [B, L, d]"""

    def __init__(self, dim: int, heads: int = _HEADS, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, z: Tensor, inside: Tensor) -> Tensor:
        q, k, v = self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each [B, heads, L, d/heads]
        bias = self.bias(inside)
        bias = bias if bias.dtype == torch.bool else bias.to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, bias, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def bias(self, inside: Tensor) -> Tensor:
        """Which tokens are seen, as True or as what is added: [B, 1 or heads, 1 or L, L]"""
        return inside[:, None, None, :]


def halve_rows(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, (2, 1), padding=1)


def line_norm(x: Tensor, inside: Tensor, eps: float = 1e-5) -> Tensor:
    """All values of a line normalised together, in fp32: x [B, ...], inside [B, ...] -> as x, 0 outside."""
    x = at_least_fp32(x)
    dims = tuple(range(1, x.dim()))
    count = inside.expand_as(x).sum(dims, keepdim=True)
    centred = (x - (x * inside).sum(dims, keepdim=True) / count) * inside
    return centred * torch.rsqrt(centred.square().sum(dims, keepdim=True) / count + eps)


def positions(length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Sines and cosines of falling frequency, fixed: [length, dim]"""
    rate = torch.exp(torch.arange(dim // 2, device=device) * (-math.log(10000.0) / (dim // 2)))
    angle = torch.arange(length, device=device)[:, None] * rate  # [length, dim/2]
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def span_mask(lengths: Tensor, size: int, ratio: float, span: int) -> Tensor:
    """Which tokens training hides, [B] -> [B, size]: floor(ratio L / span) spans a line, which may overlap."""
    most = max(1, int(size * ratio) // span)
    spans = (lengths * ratio).long() // span  # [B], of each line
    room = (lengths - span).clamp(min=0) + 1  # [B], places a span can begin at
    starts = (torch.rand(len(lengths), most, device=lengths.device) * room[:, None]).long()  # [B, most]
    starts = torch.where(valid_mask(spans, most), starts, size)  # no more than the line's own number
    place = torch.arange(size, device=lengths.device)[:, None]  # [size, 1]
    hidden = (place >= starts[:, None]) & (place < starts[:, None] + span)  # [B, size, most]
    return hidden.any(-1) & valid_mask(lengths, size)


def hide_spans(tokens: Tensor, lengths: Tensor, token: Tensor, ratio: float, span: int) -> Tensor:
    """Spans of tokens [..., B, L, d], the same at every step, replaced by a learned one [d]."""
    hidden = span_mask(lengths, tokens.shape[-2], ratio, span)[..., None]
    return torch.where(hidden, token.to(tokens.dtype), tokens)
