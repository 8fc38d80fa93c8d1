"""What every recogniser here has in common, Spike-HTR and the baselines: what it takes and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.inkcoder import to_gray
from spikehtr.model.masking import column_mask


class Output(NamedTuple):
    """What the network says of a batch. L is the longest reduced length; rows past a line's own length mean nothing."""

    logits: Tensor  # [B, L, V], main head
    lengths: Tensor  # [B], valid frames of each line
    aux_logits: Tensor | None  # [B, L, V], a head on the tokens before the sequence part; None where there is none
    spans: Tensor  # [B, L, 2], first and one-past-last token position (of ceil(width / stride)) that a frame covers
    keep_ratio: Tensor  # [B], l_b / L0
    text_costs: Tensor | None = None  # [B], of a part that was shown the transcripts: its mean loss a character


class Transcripts(NamedTuple):
    """What training shows a network that learns from more than CTC's sum over alignments."""

    labels: Tensor  # [B, U]
    lengths: Tensor  # [B]


class Network(nn.Module):
    """`net(images, widths)`: images [B, C, H, W] in [0, 1] with ink dark, widths [B] valid pixels -> Output.

    A line's result is its own: it does not depend on the batch around it, on padding, or on earlier calls (in training
    a baseline's batch normalisation is the one exception).
    """

    per_label: ClassVar[tuple[str, ...]]  # names of the parameters that have a row for each label
    reads_transcripts: ClassVar[bool] = False  # in training it takes Transcripts too, and gives text_costs
    autoregressive: ClassVar[bool] = False  # it spells a text, which text_costs judge; otherwise CTC judges its frames

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise SpikeHTRError(
                f"{type(self).__name__} takes the model part of a configuration: cfg.model, not {type(config).__name__}"
            )
        if vocab_size < 2:
            raise SpikeHTRError("vocab_size counts the blank and at least one character, so it is 2 or more")
        self.config, self.vocab_size = config, vocab_size

    @property
    def stride(self) -> int:
        """Pixels a token: a line of w pixels has ceil(w / stride) tokens before reduction."""
        return self.config.stride

    def check(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> Tensor:
        """The lines' widths [B], where images and widths are what the network takes; or what is wrong."""
        c = self.config
        if images.dim() != 4 or images.shape[0] == 0 or images.shape[1] not in (1, 3) or images.shape[2] != c.height:
            raise SpikeHTRError(f"images must be [B, 1 or 3, {c.height}, W], not {list(images.shape)}")
        if not images.is_floating_point():
            raise SpikeHTRError(f"images must be floats in [0, 1], not {images.dtype}: divide by 255 first")
        batch, _, _, width = images.shape
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
        return widths

    def prepare(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """What the network takes, images [B, C, H, n stride], 0 where padded, and widths [B]; or what is wrong."""
        widths = self.check(images, widths).to(images.device, torch.long)
        channels, width, wanted = images.shape[1], images.shape[3], self.config.in_channels
        if channels < wanted:
            images = images.expand(-1, wanted, -1, -1)
        elif channels > wanted:
            images = to_gray(images)
        images = images.to(next(self.parameters()).dtype).masked_fill(~column_mask(widths, width), 0.0)
        # Padding cannot matter, so pad to whole tokens: every later size is then exact.
        return F.pad(images, (0, -width % self.stride)), widths
