"""Distillation: a trained network whose posteriors a new one shall come close to, frame by frame.

The teacher reads the same augmented lines, whole (without reduction), in evaluation mode and without gradients. A
frame of the student that merges several positions is compared with the mean of the teacher's posteriors there; where
nothing is merged, with the teacher's posterior of that very position. The loss is KL(teacher | student), the mean over
the student's frames (`training.losses.distillation`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.model.reducer import CTCLengthReducer
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.text import Charset
from spikehtr.weights import load_model


class Teacher:
    """Posteriors of a network for the frames of another."""

    def __init__(self, net: Network) -> None:
        self.net = net.eval().requires_grad_(False)
        whole = net.config.reducer.model_copy(update={"mode": "none"})
        net.config = net.config.model_copy(update={"reducer": whole})
        net.reducer = CTCLengthReducer(whole)
        self.digest = weights_digest(net)

    @property
    def recordable(self) -> bool:
        """Whether it can be part of a recorded step: baselines make the host wait."""
        return isinstance(self.net, SpikeHTR)

    def to(self, like: Tensor) -> None:
        """Go where the student is, in its number format."""
        self.net.to(like.device, like.dtype)

    @torch.no_grad()
    def __call__(self, images: Tensor, widths: Tensor, spans: Tensor, longest: int) -> Tensor:
        """images [B, 1, H, W], widths [B], the student's spans [B, L, 2] of `longest` positions at most -> [B, L, V]"""
        out = self.net(images, widths, None, True) if self.recordable else self.net(images, widths)
        return mean_over(out.logits.float().softmax(-1), spans, longest)


def mean_over(rows: Tensor, spans: Tensor, longest: int) -> Tensor:
    """The mean of the rows [B, L0, V] that each span covers: spans [B, L, 2] -> [B, L, V]; 0 for an empty one."""
    first, end = spans.unbind(-1)  # [B, L]
    total = torch.zeros((), device=rows.device)
    for step in range(longest):
        place = (first + step).clamp(max=rows.shape[1] - 1)[..., None].expand(-1, -1, rows.shape[-1])
        total = total + rows.gather(1, place) * (first + step < end)[..., None]
    return total / (end - first).clamp(min=1)[..., None]


def load_teacher(path: Path, config: Config, charset: Charset) -> Teacher:
    """The model of a file as teacher of a network of `config` and `charset`; or why it cannot be."""
    loaded = load_model(path)
    if loaded.charset != charset:
        unlike = set(loaded.charset.characters) ^ set(charset.characters)
        what = f"{len(unlike)} are known to one only" if unlike else "they stand in another order"
        raise SpikeHTRError(
            f"{path}: a teacher must know the characters of the run, no more and no less ({what}); "
            "train it on the same data, or start from it: --from MODEL --charset keep"
        )
    theirs, ours = loaded.config.model, config.model
    for name in ("height", "stride"):
        if getattr(theirs, name) != getattr(ours, name):
            raise SpikeHTRError(
                f"{path}: its {name} is {getattr(theirs, name)}, the run's {getattr(ours, name)}; "
                "a teacher must see the same pixels and make as many frames"
            )
    return Teacher(loaded.net)


def weights_digest(net: Network) -> str:
    """Tells one network's weights from another's."""
    found = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
