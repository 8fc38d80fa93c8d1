"""The whole network (Figure 1): encoder -> positions -> preview and reduction -> mixer -> fusion -> CTC head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.encoder import Encoder
from spikehtr.model.inkcoder import to_gray
from spikehtr.model.masking import TokenNorm, column_mask, valid_mask, wide
from spikehtr.model.mixer import Mixer
from spikehtr.model.reducer import CTCLengthReducer, Reduction


class Output(NamedTuple):
    """What the network says of a batch. L is the longest reduced length; rows past a line's own length mean nothing."""

    logits: Tensor  # [B, L, V], main head
    lengths: Tensor  # [B], valid frames of each line
    aux_logits: Tensor  # [B, L, V], the same head on the tokens before the mixer
    spans: Tensor  # [B, L, 2], first and one-past-last token position (of ceil(width / 4)) that a frame covers
    keep_ratio: Tensor  # [B], l_b / L0


class TemporalFusion(nn.Module):
    """A learned convex sum over timesteps (Eqs. 12, 20): [T, ...] -> [...], in fp32; the identity at T = 1."""

    def __init__(self, max_timesteps: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(max_timesteps))

    def forward(self, z: Tensor) -> Tensor:
        share = self.logits[: z.shape[0]].softmax(0)
        return (share.view(-1, *([1] * (z.dim() - 1))) * wide(z)).sum(0)


class Positions(nn.Module):
    """Z + P_abs + CPE(Z) (Eq. 11): a learned table and a depthwise convolution over neighbours (k = 7).

    A line longer than the table reads it stretched to its own length (not the batch's), interpolated linearly.
    """

    def __init__(self, size: int, dim: int, kernel: int = 7) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(size, dim))
        nn.init.trunc_normal_(self.table, std=0.02)
        self.cpe = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)

    def forward(self, z: Tensor, lengths: Tensor) -> Tensor:
        """[T, B, L0, d], [B] -> [T, B, L0, d]"""
        last = self.table.shape[0] - 1
        place = torch.arange(z.shape[2], device=z.device)
        shrink = (last / (lengths - 1).clamp(min=1)).clamp(max=1.0)  # [B], 1 unless the line is longer than the table
        place = (place * shrink[:, None]).clamp(max=last)  # [B, L0]
        low = place.floor().long()
        part = (place - low)[..., None]
        absolute = self.table[low] * (1 - part) + self.table[(low + 1).clamp(max=last)] * part  # [B, L0, d]
        inside = valid_mask(lengths, z.shape[2])[..., None]
        near = self.cpe((z * inside).flatten(0, 1).transpose(1, 2)).transpose(1, 2)  # [T*B, L0, d]
        return z + absolute + near.unflatten(0, z.shape[:2])


class CTCHead(nn.Module):
    """LayerNorm and one linear map to the labels; main output, auxiliary output and preview share it."""

    def __init__(self, dim: int, vocab_size: int) -> None:
        super().__init__()
        self.norm = TokenNorm(dim)
        self.linear = nn.Linear(dim, vocab_size)

    def forward(self, z: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, V]"""
        return self.linear(self.norm(z))


class SpikeHTR(nn.Module):
    """`net(images, widths)`: images [B, C, 64, W] in [0, 1] with ink dark, widths [B] valid pixels -> Output.

    A line's result is its own: it does not depend on the batch around it, on padding, or on earlier calls.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise SpikeHTRError(
                f"SpikeHTR takes the model part of a configuration: cfg.model, not {type(config).__name__}"
            )
        if vocab_size < 2:
            raise SpikeHTRError("vocab_size counts the blank and at least one character, so it is 2 or more")
        self.config, self.vocab_size = config, vocab_size
        self.encoder = Encoder(config)
        self.positions = Positions(config.positions, config.dim)
        self.fuse_pre = TemporalFusion(config.max_timesteps)
        self.reducer = CTCLengthReducer(config.reducer)
        self.mixer = Mixer(config)
        self.fuse_post = TemporalFusion(config.max_timesteps)
        self.head = CTCHead(config.dim, vocab_size)

    def forward(
        self, images: Tensor, widths: Tensor | Sequence[int] | None = None, min_lengths: Tensor | None = None
    ) -> Output:
        """`min_lengths` [B]: frames each transcript needs (`ctc_min_length`); give it in training."""
        images, widths = self.prepare(images, widths)
        z, lengths = self.encoder(images, widths)  # [T, B, L0, d], [B]
        z = self.positions(z, lengths)
        reduction = self.reduce(z, lengths, min_lengths)
        logits, aux_logits = self.decode(reduction.tokens, reduction.lengths)
        keep_ratio = reduction.lengths / lengths
        return Output(logits, reduction.lengths, aux_logits, reduction.spans, keep_ratio)

    def reduce(self, z: Tensor, lengths: Tensor, min_lengths: Tensor | None = None) -> Reduction:
        """Preview by the shared head, then keep and merge: [T, B, L0, d] -> Reduction [T, B, L, d]."""
        if self.config.reducer.preview_gradient:
            preview = self.head(self.fuse_pre(z))  # [B, L0, V]
        else:
            with torch.no_grad():
                preview = self.head(self.fuse_pre(z))
        return self.reducer(z, lengths, preview, min_lengths)

    def decode(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Reduced tokens [T, B, L, d], lengths [B] -> main and auxiliary logits [B, L, V]."""
        aux_logits = self.head(self.fuse_pre(tokens))
        deep = self.mixer(tokens, valid_mask(lengths, tokens.shape[2]))  # [T, B, L, d]
        return self.head(self.fuse_post(deep)), aux_logits

    def prepare(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """What the encoder takes, images [B, C, H, 4n] with zeros for padding and widths [B]; or what is wrong."""
        c = self.config
        if images.dim() != 4 or images.shape[0] == 0 or images.shape[1] not in (1, 3) or images.shape[2] != c.height:
            raise SpikeHTRError(f"images must be [B, 1 or 3, {c.height}, W], not {list(images.shape)}")
        if not images.is_floating_point():
            raise SpikeHTRError(f"images must be floats in [0, 1], not {images.dtype}: divide by 255 first")
        batch, channels, _, width = images.shape
        if width > c.max_width:
            raise SpikeHTRError(
                f"a line of {width} px is over model.max_width = {c.max_width}: raise that key, or scale the line down"
            )
        widths = torch.as_tensor([width] * batch if widths is None else widths)
        if widths.shape != (batch,) or widths.is_floating_point() or widths.dtype == torch.bool:
            raise SpikeHTRError(f"widths must be [{batch}] whole numbers, not {list(widths.shape)} {widths.dtype}")
        # On a GPU this check would make the host wait, and a traced graph cannot hold it.
        checkable = widths.device.type == "cpu" and not torch.compiler.is_compiling()
        if checkable and (widths.min() < 1 or widths.max() > width):
            raise SpikeHTRError(f"widths must lie in 1..{width}, found {int(widths.min())}..{int(widths.max())}")
        widths = widths.to(images.device, torch.long)
        if channels < c.in_channels:
            images = images.expand(-1, c.in_channels, -1, -1)
        elif channels > c.in_channels:
            images = to_gray(images)
        images = images.to(self.head.linear.weight.dtype).masked_fill(~column_mask(widths, width), 0.0)
        # Padding cannot matter, so pad to whole tokens: every later size is then an exact half or quarter.
        return F.pad(images, (0, -width % 4)), widths
