"""What the baselines share: features -> (preview and reduction) -> sequence part -> CTC head, with padding kept out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.config import ModelConfig
from spikehtr.model.masking import column_mask, valid_mask
from spikehtr.model.network import Network, Output, Transcripts
from spikehtr.model.reducer import CTCLengthReducer


class Columns:
    """Sets the padding of a map to 0, at whatever scale the map is: what lies right of a line is then nothing.

    So a convolution finds there what it finds beyond the canvas, and padding cannot matter.
    """

    def __init__(self, widths: Tensor, canvas: int, full: bool = False) -> None:
        """`full`: it is known without asking the device that every line fills the canvas."""
        self.widths, self.canvas, self.full = widths, canvas, full
        self._masks: dict[str, Tensor] = {}
        self._widths: dict[str, Tensor] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, H, canvas / f] -> same; a line of w pixels has ceil(w / f) columns there."""
        if self.full:
            return x
        size = x.shape[-1]
        key = str(self.canvas // size)  # sizes are symbols where a graph is traced, which are no keys
        if key not in self._masks:
            self._masks[key] = column_mask(self.widths_at(size), size)
        return x * self._masks[key]

    def widths_at(self, size: int) -> Tensor:
        """[B], the lines' own columns in a map that is `size` wide."""
        factor = self.canvas // size
        key = str(factor)
        if key not in self._widths:
            self._widths[key] = -(-self.widths // factor)
        return self._widths[key]


class Baseline(Network, ABC):
    """A network in two parts: `features` makes tokens of a line, `read` makes logits of tokens.

    Between them the reducer can be switched on (`model.reducer`). Its preview comes from `shortcut`, a CTC head on the
    tokens that the auxiliary loss trains, on the tokens that are left, as in Spike-HTR. A network whose paper has such
    a head keeps it without reducer too.
    """

    per_label: ClassVar[tuple[str, ...]] = ("head.weight", "head.bias", "shortcut.conv.weight", "shortcut.conv.bias")
    full_precision: ClassVar[bool] = False  # whether bf16 would change what it says: then autocast is switched off
    shortcut: Shortcut | None
    head: nn.Linear

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.reducer = CTCLengthReducer(config.reducer)

    @abstractmethod
    def features(self, ink: Tensor, own: Columns) -> Tensor:
        """[B, C, H, n stride] with ink at 1 and paper and padding at 0 -> [B, n, d], 0 where padded."""

    @abstractmethod
    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """[B, L, d], [B] -> logits [B, L, V]"""

    @property
    def reduces(self) -> bool:
        return self.config.reducer.mode != "none"

    def forward(
        self,
        images: Tensor,
        widths: Tensor | Sequence[int] | None = None,
        min_lengths: Tensor | None = None,
        transcripts: Transcripts | None = None,
    ) -> Output:
        """`min_lengths` [B]: frames each transcript needs (`ctc_min_length`); give it in training, and `transcripts`
        to a network that reads them."""
        full = widths is None and images.shape[-1] % self.stride == 0
        images, widths = self.prepare(images, widths)
        whole = -(-widths // self.stride)  # [B], tokens of each line
        own = Columns(widths, images.shape[-1], full)
        with self.precision(images.device):
            return self.pass_over(own(1 - images), own, whole, min_lengths, transcripts)

    def pass_over(
        self, ink: Tensor, own: Columns, whole: Tensor, min_lengths: Tensor | None, transcripts: Transcripts | None
    ) -> Output:
        """`forward` from ink [B, C, H, n stride] and the number of each line's tokens [B]."""
        tokens = self.features(ink, own)  # [B, L0, d]
        if self.reduces:
            tokens, lengths, spans = self.reduce(tokens, whole, min_lengths)
        else:
            lengths, spans = whole, one_each(whole, tokens.shape[1])
        logits, costs = self.read_and_judge(tokens, lengths, transcripts)
        aux_logits = self.shortcut(tokens) if self.shortcut is not None else None
        return Output(logits, lengths, aux_logits, spans, lengths / whole, costs)

    def read_and_judge(
        self, tokens: Tensor, lengths: Tensor, transcripts: Transcripts | None
    ) -> tuple[Tensor, Tensor | None]:
        """`read`, and `text_costs` of a network that reads transcripts."""
        return self.read(tokens, lengths), None

    def precision(self, device: torch.device) -> AbstractContextManager[object]:
        return torch.autocast(device.type, enabled=False) if self.full_precision else nullcontext()

    def reduce(self, tokens: Tensor, whole: Tensor, min_lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Preview, keep and merge: [B, L0, d], [B] -> tokens [B, L, d], lengths [B], spans [B, L, 2]."""
        assert self.shortcut is not None
        with nullcontext() if self.config.reducer.preview_gradient else torch.no_grad():
            preview = self.shortcut.preview(tokens)  # [B, L0, V]
        done = self.reducer(tokens, whole, preview, min_lengths)
        return done.tokens, done.lengths, done.spans

    def preview_head(self, dim: int) -> Shortcut | None:
        """A linear `shortcut` for tokens of width `dim`, where the reducer needs one."""
        return Shortcut(dim, self.vocab_size) if self.reduces else None

    def scaled_width(self, width: int, multiple: int = 1) -> int:
        """A published width at the configured scale."""
        return multiple * max(1, round(width * self.config.baseline.scale / multiple))

    def drop(self, rate: float) -> float:
        """A published dropout rate at the configured strength."""
        return rate * self.config.baseline.dropout


def one_each(lengths: Tensor, size: int) -> Tensor:
    """The spans of tokens that were not reduced: [B] -> [B, size, 2], (0, 0) past a line's end."""
    place = torch.arange(size, device=lengths.device)
    return torch.stack([place, place + 1], dim=-1) * valid_mask(lengths, size)[..., None]


class Shortcut(nn.Module):
    """A CTC head right on the tokens: a convolution over `kernel` neighbours. [B, L, d] -> [B, L, V]"""

    def __init__(self, dim: int, vocab_size: int, kernel: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.conv = nn.Conv1d(dim, vocab_size, kernel, padding=kernel // 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.preview(self.dropout(tokens))

    def preview(self, tokens: Tensor) -> Tensor:
        """Without dropout: what decides about tokens should not be drawn by lot."""
        logits: Tensor = self.conv(tokens.transpose(1, 2)).transpose(1, 2)
        return logits


class BLSTM(nn.Module):
    """Bidirectional LSTM layers over each line's own tokens: [B, L, d], lengths [B] -> [B, L, 2 hidden].

    Rows are padded, not packed: the backward direction reads each line reversed by its own length, so padding always
    comes last and reaches nothing. Lengths stay on the device, so a pass can be recorded and traced. Rows past a line's
    length mean nothing.
    """

    def __init__(self, dim: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        dims = [dim] + [2 * hidden] * (layers - 1)
        self.ahead = nn.ModuleList(nn.LSTM(d, hidden, batch_first=True) for d in dims)
        self.behind = nn.ModuleList(nn.LSTM(d, hidden, batch_first=True) for d in dims)
        self.dropout = nn.Dropout(dropout)
        self.register_load_state_dict_pre_hook(_split_directions)  # type: ignore[no-untyped-call]

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        order = reversed_rows(lengths, tokens.shape[1])  # [B, L]
        z = tokens
        for layer, (ahead, behind) in enumerate(zip(self.ahead, self.behind, strict=True)):
            z = self.dropout(z) if layer else z
            z = torch.cat([ahead(z)[0], _reorder(behind(_reorder(z, order))[0], order)], dim=-1)
        return z


def reversed_rows(lengths: Tensor, size: int) -> Tensor:
    """The order that reverses each line by its own length and leaves its padding: [B] -> [B, size]"""
    place = torch.arange(size, device=lengths.device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def _reorder(rows: Tensor, order: Tensor) -> Tensor:
    """[B, L, d], [B, L] -> [B, L, d]"""
    return rows.gather(1, order[..., None].expand_as(rows))


def _split_directions(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Model files of before have one nn.LSTM of all layers and both directions: `lstm.weight_ih_l1_reverse`."""
    for name in [name for name in state if name.startswith(f"{prefix}lstm.")]:
        kind, layer = name.removeprefix(f"{prefix}lstm.").removesuffix("_reverse").rsplit("_l", 1)
        direction = "behind" if name.endswith("_reverse") else "ahead"
        state[f"{prefix}{direction}.{layer}.{kind}_l0"] = state.pop(name)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation beside a shortcut (He et al. 2016): [B, C, H, W] -> [B, D, h, w]"""

    def __init__(self, channels: int, out: int, stride: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.skip: nn.Module = nn.Identity()
        if channels != out or stride != (1, 1):
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        if x.is_cuda:  # as its convolutions want them; batch normalisation over rows of channels is faster, too
            x = x.contiguous(memory_format=torch.channels_last)
        y = F.relu(own(self.norm1(self.conv1(x))))
        return F.relu(own(self.norm2(self.conv2(y)) + self.skip(x)))
