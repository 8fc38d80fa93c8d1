"""The whole network (Figure 1): encoder -> positions -> preview and reduction -> mixer -> fusion -> CTC head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.encoder import Encoder
from spikehtr.model.masking import TokenNorm, valid_mask
from spikehtr.model.mixer import Mixer, TokenConv
from spikehtr.model.network import Network
from spikehtr.model.network import Output as Output
from spikehtr.model.reducer import CTCLengthReducer, Reduction


class TemporalFusion(nn.Module):
    """A learned convex sum over timesteps (Eqs. 12, 20): [T, ...] -> [...], in fp32; the identity at T = 1."""

    def __init__(self, max_timesteps: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(max_timesteps))

    def forward(self, z: Tensor) -> Tensor:
        share = self.logits[: z.shape[0]].softmax(0)
        return (share.view(-1, *([1] * (z.dim() - 1))) * ops.at_least_fp32(z)).sum(0)


class Positions(nn.Module):
    """Z + P_abs + CPE(Z) (Eq. 11): a learned table and a depthwise convolution over neighbours (k = 7).

    A line longer than the table reads it stretched to its own length (not the batch's), interpolated linearly.
    """

    def __init__(self, size: int, dim: int, kernel: int = 7) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(size, dim))
        nn.init.trunc_normal_(self.table, std=0.02)
        self.cpe = TokenConv(dim, kernel)

    def forward(self, z: Tensor, lengths: Tensor) -> Tensor:
        """[T, B, L0, d], [B] -> [T, B, L0, d]"""
        last = self.table.shape[0] - 1
        place = torch.arange(z.shape[2], device=z.device)
        steps = (lengths - 1).clamp(min=1).to(self.table.dtype)  # [B]
        shrink = (last / steps).clamp(max=1.0)  # 1 unless the line is longer than the table
        place = (place * shrink[:, None]).clamp(max=last)  # [B, L0]
        absolute = ops.interpolate(self.table, place)  # [B, L0, d]
        return z + absolute + self.cpe(z, valid_mask(lengths, z.shape[2]))


class CTCHead(nn.Module):
    """LayerNorm and one linear map to the labels; main output, auxiliary output and preview share it."""

    def __init__(self, dim: int, vocab_size: int) -> None:
        super().__init__()
        self.norm = TokenNorm(dim)
        self.linear = nn.Linear(dim, vocab_size)

    def forward(self, z: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, V]"""
        return self.linear(self.norm(z))


class SpikeHTR(Network):
    """`net(images, widths)`: images [B, C, 64, W] in [0, 1] with ink dark, widths [B] valid pixels -> Output."""

    per_label = ("head.linear.weight", "head.linear.bias")

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        if config.arch != "spike-htr":
            raise SpikeHTRError(f"model.arch is {config.arch}: spikehtr.registry.build(config, vocab_size) makes that")
        self.encoder = Encoder(config)
        self.positions = Positions(config.positions, config.dim)
        self.fuse_pre = TemporalFusion(config.max_timesteps)
        self.reducer = CTCLengthReducer(config.reducer)
        self.mixer = Mixer(config)
        self.fuse_post = TemporalFusion(config.max_timesteps)
        self.head = CTCHead(config.dim, vocab_size)

    def forward(
        self,
        images: Tensor,
        widths: Tensor | Sequence[int] | None = None,
        min_lengths: Tensor | None = None,
        full: bool = False,
    ) -> Output:
        """`min_lengths` [B]: frames each transcript needs (`ctc_min_length`); give it in training.

        `full` keeps L = L0, so that the host need not wait for the longest reduced length.
        """
        z, lengths = self.encoder(*self.prepare(images, widths))
        return self.follow(z, lengths, min_lengths, full)

    def follow(self, z: Tensor, lengths: Tensor, min_lengths: Tensor | None = None, full: bool = False) -> Output:
        """What follows the encoder: its tokens [T, B, L0, d] and their lengths [B] -> Output."""
        reduction = self.reduce(self.positions(z, lengths), lengths, min_lengths, full)
        logits, aux_logits = self.decode(reduction.tokens, reduction.lengths)
        return Output(logits, reduction.lengths, aux_logits, reduction.spans, reduction.lengths / lengths)

    def encode(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """A batch as `forward` takes it -> tokens with their positions [T, B, L0, d], and their lengths [B]."""
        z, lengths = self.encoder(*self.prepare(images, widths))
        return self.positions(z, lengths), lengths

    def reduce(self, z: Tensor, lengths: Tensor, min_lengths: Tensor | None = None, full: bool = False) -> Reduction:
        """Preview by the shared head, then keep and merge: [T, B, L0, d] -> Reduction [T, B, L, d] (L0, if `full`)."""
        if self.config.reducer.preview_gradient:
            preview = self.head(self.fuse_pre(z))  # [B, L0, V]
        else:
            with torch.no_grad():
                preview = self.head(self.fuse_pre(z))
        return self.reducer(z, lengths, preview, min_lengths, full)

    def decode(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Reduced tokens [T, B, L, d], lengths [B] -> main and auxiliary logits [B, L, V]."""
        aux_logits = self.head(self.fuse_pre(tokens))
        deep = self.mixer(tokens, valid_mask(lengths, tokens.shape[2]))  # [T, B, L, d]
        return self.head(self.fuse_post(deep)), aux_logits
