"""HTR-ConvText: P. Truc et al., 'HTR-ConvText: Leveraging Convolution and Textual Information for Handwritten Text
Recognition', arXiv 2512.05021. 65.9 M parameters, without the head that only training has.

A ResNet-18 with a small transformer over patches after each stage makes a token of each four columns; eight layers of
attention and convolution read them, the middle four at half the length. In training each character has to be told from
the five before it, and from the five after it, by what they find in the tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns, ResidualBlock
from spikehtr.baselines.htr_vt import Attention, TransformerLayer, halve_rows, hide_spans
from spikehtr.baselines.norms import ColumnNorm
from spikehtr.config import ModelConfig
from spikehtr.model.network import Transcripts
from spikehtr.ops.masks import at_least_fp32, valid_mask

_DIM, _HEADS, _LAYERS = 512, 8, 8
_DOWN, _UP = 3, 7  # after these layers the sequence is halved, and made whole again
_STAGES = ((4, (2, 1)), (2, (2, 2)), (1, (2, 2)))  # part of the full width, and stride of the first of two blocks
_HEAD_DIM = 64  # of the attention between patches
_FEED_FORWARD, _KERNEL, _NEAR = 4, 7, 128  # positions farther apart than this share one bias
_DROPOUT, _DROP_PATH, _LAYER_SCALE, _EPS = 0.1, 0.1, 1e-5, 1e-6
_CONTEXT, _TEXT_DIM = 5, 256  # characters on either side


class PatchTransformer(nn.Module):
    """MobileViT with conditional positions: the four pixels of 2x2 patches, each attending to its like in all patches
    of the line. [B, C, H, W] -> same"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.local = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.local_norm = nn.BatchNorm2d(channels)
        self.project = nn.Conv2d(channels, channels, 1, bias=False)
        self.layer = TransformerLayer(channels, max(1, channels // _HEAD_DIM))
        self.positions = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)  # from the neighbours
        self.norm = nn.LayerNorm(channels)
        self.out = nn.Conv2d(channels, channels, 1, bias=False)
        self.out_norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        x = own(self.project(F.relu(own(self.local_norm(self.local(x))))))
        lines, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2  # of patches; what is missing of the last ones is paper
        x = F.pad(x, (0, 2 * columns - width, 0, 2 * rows - height))
        x = x.reshape(lines, channels, rows, 2, columns, 2).permute(0, 3, 5, 2, 4, 1)  # [B, 2, 2, rows, columns, C]
        inside = valid_mask(own.widths_at(width), 2 * columns).reshape(lines, 1, columns, 2).permute(0, 3, 1, 2)
        inside = inside[:, None].expand(-1, 2, -1, rows, -1).reshape(4 * lines, rows * columns)
        z = x.reshape(4 * lines, rows * columns, channels)
        # Of a single column one half of a patch has nothing to attend to; what it says is set to 0 below.
        z = self.layer(z, inside | ~inside.any(1, keepdim=True)) * inside[..., None]
        grid = z.transpose(1, 2).reshape(4 * lines, channels, rows, columns)
        z = self.norm((grid + self.positions(grid)).flatten(2).transpose(1, 2))
        x = z.reshape(lines, 2, 2, rows, columns, channels).permute(0, 5, 3, 1, 4, 2)  # [B, C, rows, 2, columns, 2]
        x = x.reshape(lines, channels, 2 * rows, 2 * columns)[:, :, :height, :width]
        return F.relu(own(self.out_norm(self.out(x))))


class RelativeAttention(Attention):
    """Self-attention with a learned bias for each head and distance: [B, L, d], inside [B, L] -> [B, L, d]"""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__(dim, _HEADS, dropout)
        self.distances = nn.Parameter(torch.zeros(2 * _NEAR - 1, _HEADS))

    def bias(self, inside: Tensor) -> Tensor:
        place = torch.arange(inside.shape[1], device=inside.device)
        apart = (place[:, None] - place).clamp(1 - _NEAR, _NEAR - 1) + _NEAR - 1  # [L, L]
        bias = self.distances[apart].permute(2, 0, 1)  # [heads, L, L]
        return bias.masked_fill(~inside[:, None, None, :], float("-inf"))


class Convolution(nn.Module):
    """A depthwise convolution along the line between two pointwise maps: [B, L, d] -> [B, L, d]"""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.depthwise = nn.Conv1d(dim, dim, _KERNEL, padding=_KERNEL // 2, groups=dim)
        self.norm, self.dropout = ColumnNorm(dim, 1, affine=True), nn.Dropout(dropout)

    def forward(self, z: Tensor, own: Columns) -> Tensor:
        x = own(F.silu(self.first(z)).transpose(1, 2)[:, :, None])  # [B, d, 1, L]
        x = self.norm(self.depthwise(x.squeeze(2))[:, :, None], own)
        y: Tensor = self.dropout(self.last(F.silu(x).squeeze(2).transpose(1, 2)))
        return y


class Branch(nn.Module):
    """What is added to the stream: scaled, at times left out for a line, and normalised with it."""

    def __init__(self, dim: int, drop_path: float) -> None:
        super().__init__()
        self.scale, self.norm = nn.Parameter(torch.full((dim,), _LAYER_SCALE)), nn.LayerNorm(dim, eps=_EPS)
        self.drop_path = drop_path

    def forward(self, z: Tensor, added: Tensor) -> Tensor:
        if self.training and self.drop_path:
            kept = torch.rand(len(z), 1, 1, device=z.device) >= self.drop_path
            added = added * kept / (1 - self.drop_path)
        y: Tensor = self.norm(z + self.scale * added)
        return y


class ConvTextLayer(nn.Module):
    """Attention, half a feed-forward part, convolution, the other half: [B, L, d] -> [B, L, d]"""

    def __init__(self, dim: int, dropout: float, drop_path: float) -> None:
        super().__init__()
        self.attention, self.convolution = RelativeAttention(dim, dropout), Convolution(dim, dropout)
        self.feeds = nn.ModuleList(
            nn.Sequential(
                nn.Linear(dim, _FEED_FORWARD * dim),
                nn.SiLU(),
                nn.Linear(_FEED_FORWARD * dim, dim),
                nn.Dropout(dropout),
            )
            for _ in range(2)
        )
        self.branches = nn.ModuleList(Branch(dim, drop_path) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor, inside: Tensor, own: Columns) -> Tensor:
        z = self.branches[0](z, self.dropout(self.attention(z, inside)))
        z = self.branches[1](z, 0.5 * self.feeds[0](z))
        z = self.branches[2](z, self.convolution(z, own))
        z = self.branches[3](z, 0.5 * self.feeds[1](z))
        return z


class TextualContext(nn.Module):
    """For training alone: what the characters around one find in the tokens has to say which one it is."""

    def __init__(self, dim: int, vocab_size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, _TEXT_DIM, padding_idx=0)  # 0, the blank: beyond the text
        self.sides = nn.Parameter(torch.randn(2, 1, 1, _TEXT_DIM))
        self.conv = nn.Conv1d(_TEXT_DIM, _TEXT_DIM, 3, padding=1)
        self.project = nn.Linear(_TEXT_DIM, dim)
        self.query_norm, self.token_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout, self.classifier = nn.Dropout(dropout), nn.Linear(dim, vocab_size)

    def forward(self, z: Tensor, lengths: Tensor, text: Transcripts) -> Tensor:
        """Tokens [B, L, d] and their lengths -> [B], mean loss a character, 0 where there is none."""
        lines, size = text.labels.shape
        written = valid_mask(text.lengths, size)
        labels = text.labels * written
        windows = F.pad(labels, (_CONTEXT, _CONTEXT)).unfold(1, _CONTEXT, 1)  # [B, U + 6, 5]
        around = torch.stack([windows[:, :size], windows[:, _CONTEXT + 1 :]])  # before and after: [2, B, U, 5]
        rows = self.embedding(around).flatten(0, 2).transpose(1, 2)  # [2 B U, 256, 5]
        query = self.conv(rows).mean(2).reshape(2, lines, size, _TEXT_DIM) + self.sides
        query = self.query_norm(self.project(query)).transpose(0, 1).flatten(1, 2)  # [B, 2 U, d]
        keys = self.token_norm(z)
        inside = valid_mask(lengths, z.shape[1])[:, None]
        found = F.scaled_dot_product_attention(query, keys, keys, attn_mask=inside)
        logits = at_least_fp32(self.classifier(self.dropout(found)))  # [B, 2 U, V]
        costs = F.cross_entropy(logits.flatten(0, 1), labels.repeat(1, 2).flatten(), reduction="none")
        costs = (costs.reshape(lines, 2, size).mean(1) * written).sum(1)
        return costs / text.lengths.clamp(min=1)


class HTRConvText(Baseline):
    per_label = (
        *Baseline.per_label,
        "context.embedding.weight",
        "context.classifier.weight",
        "context.classifier.bias",
    )
    reads_transcripts = True

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        dim, rate = self.scaled_width(_DIM, multiple=4 * _HEADS), self.drop(_DROPOUT)
        self.shortcut = self.preview_head(dim)
        channels = dim // 4
        self.stem = nn.Conv2d(config.in_channels, channels, 3, (2, 1), padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.blocks, self.patches = nn.ModuleList(), nn.ModuleList()
        for part, stride in _STAGES:
            self.blocks.append(ResidualBlock(channels, dim // part, stride))
            self.blocks.append(ResidualBlock(dim // part, dim // part))
            self.patches.append(PatchTransformer(dim // part))
            channels = dim // part
        self.mask_token = nn.Parameter(torch.randn(dim) * 0.02)
        drop_path = self.drop(_DROP_PATH) / (_LAYERS - 1)
        self.layers = nn.ModuleList(ConvTextLayer(dim, rate, number * drop_path) for number in range(_LAYERS))
        self.down = nn.Conv1d(dim, dim, 3, 2, padding=1, groups=dim, bias=False)
        self.down_mix, self.up_mix = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=_EPS)
        self.head = nn.Linear(dim, vocab_size)
        self.context = TextualContext(dim, vocab_size, _DROPOUT)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.constant_(self.down.weight, 1 / 3)  # at first it takes means

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = F.relu(own(self.stem_norm(self.stem(ink))))  # [B, d/4, H/2, W]
        x = own(halve_rows(x))
        for number, patches in enumerate(self.patches):
            x = self.blocks[2 * number + 1](self.blocks[2 * number](x, own), own)
            x = patches(x, own)  # at last [B, d, H/32, W/4]
        tokens = own(halve_rows(x)).amax(2).transpose(1, 2)  # one row is left at a height of 64: [B, L0, d]
        if self.training:
            c, lengths = self.config.baseline, own.widths_at(tokens.shape[1])
            tokens = hide_spans(tokens, lengths, self.mask_token, c.mask_ratio, c.mask_span)
        return tokens

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.mix(tokens, lengths))
        return logits

    def read_and_judge(
        self, tokens: Tensor, lengths: Tensor, transcripts: Transcripts | None
    ) -> tuple[Tensor, Tensor | None]:
        z = self.mix(tokens, lengths)
        costs = None
        if transcripts is not None:
            costs = self.config.baseline.context_weight * self.context(z, lengths, transcripts)
        return self.head(z), costs

    def mix(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """[B, L, d], [B] -> [B, L, d]"""
        size = tokens.shape[1]
        whole, half = (lengths, size), ((lengths + 1) // 2, (size + 1) // 2)
        z = skipped = tokens
        for number, layer in enumerate(self.layers, 1):
            n, here = half if _DOWN < number <= _UP else whole
            z = layer(z, valid_mask(n, here), Columns(n, here))
            if number == _DOWN:
                skipped = z
                own = (z * valid_mask(lengths, size)[..., None]).transpose(1, 2)  # [B, d, L]
                z = self.down_mix(self.down(own).transpose(1, 2))  # [B, ceil(L / 2), d]
            if number == _UP:
                z = self.up_mix(z.repeat_interleave(2, dim=1)[:, :size]) + skipped
        normed: Tensor = self.norm(z)
        return normed
