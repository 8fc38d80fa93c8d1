"""Steps in which the encoder stays as it is: what it makes of a line is kept, and only what follows is trained.

The encoder takes most of a step. It reads a few augmented versions of each line, one an epoch, and its tokens of them
are kept in memory; from then on the versions take turns. A version is drawn by the run's seed, the line and the
version's number, and a line's tokens hang on no other line: a run that was stopped makes them anew, the very same.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.batching import Batch, Indices
from spikehtr.model.network import Network
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.readers.cpu.engine import Engine, unsupported_reason
from spikehtr.training.fabric import Fabric
from spikehtr.training.monitoring import TrainingError
from spikehtr.training.step import Prepared, TrainStep, prepare

_MOST_VERSIONS, _LEAST_VERSIONS = 20, 4  # of each line
_MOST_KEPT = 1200  # lines in all their versions: 0.3 GB at 1,024 px and 256 channels
FEW_LINES = 200  # up to so many the encoder is frozen by itself
_LINE_STRIDE, _VERSION_STRIDE, _LARGEST = 7_368_787, 15_485_863, 2**63


def versions(lines: int) -> int:
    """How many versions of each of so many lines are kept."""
    return min(_MOST_VERSIONS, max(_LEAST_VERSIONS, _MOST_KEPT // lines))


class Version(NamedTuple):
    """A line as the encoder has read it."""

    tokens: Tensor  # [T, L0, d]
    labels: Tensor  # [U]
    min_length: Tensor  # []


class FrozenStep(TrainStep):
    """A `TrainStep` of what follows the encoder."""

    def __init__(self, config: Config, net: Network, fabric: Fabric, lines: int = 1) -> None:
        """`lines`: how many there are to train on."""
        if not isinstance(net, SpikeHTR):
            raise TrainingError(f"training.freeze=encoder is for Spike-HTR, not {net.config.arch}: leave it out")
        if fabric.world_size > 1:
            raise TrainingError("training.freeze=encoder trains on one device: leave --devices and --nodes out")
        net.encoder.requires_grad_(False)
        super().__init__(config, net, fabric)
        self.versions = versions(lines)
        self.network, self.kept = net, dict[tuple[int, int], Version]()
        self.engine: Engine | None = None  # the compiled encoder, where there is one: it takes a fifth of the time

    def gradients(self, batch: Batch, indices: Indices | None = None) -> Tensor:
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            lines = [self._version(batch, place) for place in range(len(batch.rows))]
        sizes, counts = ([one.tokens.shape[1] for one in lines], [len(one.labels) for one in lines])
        steps, _, dim = lines[0].tokens.shape
        tokens = lines[0].tokens.new_zeros(steps, len(lines), max(sizes), dim)
        targets = lines[0].labels.new_zeros(len(lines), max(counts))
        for place, one in enumerate(lines):
            tokens[:, place, : sizes[place]] = one.tokens
            targets[place, : counts[place]] = one.labels
        lengths, target_lengths = (torch.tensor(values, device=self.device) for values in (sizes, counts))
        out = self.network.follow(tokens, lengths, torch.stack([one.min_length for one in lines]))
        total, numbers = self.measure(out, targets, target_lengths)
        self.fabric.backward(total)
        return numbers

    def _version(self, batch: Batch, place: int) -> Version:
        """This epoch's version of a line, read now if it never was."""
        row, version = int(batch.rows[place]), self.epoch % self.versions
        if (row, version) not in self.kept:
            seed = self.config.training.seed + row * _LINE_STRIDE + version * _VERSION_STRIDE
            torch.manual_seed(seed % _LARGEST)
            width = int(batch.widths[place])
            alone = Batch(*(value[place : place + 1] for value in batch))
            given = prepare(alone._replace(images=alone.images[..., :width]), self.config)
            labels = given.targets[0, : int(given.target_lengths)]
            self.kept[row, version] = Version(self._tokens(given), labels, given.min_lengths[0])
        return self.kept[row, version]

    def _tokens(self, given: Prepared) -> Tensor:
        """The encoder's tokens of a line by itself: [T, L0, d]"""
        if self.engine is None and self.device.type == "cpu" and unsupported_reason(self.network) is None:
            self.engine = Engine(self.network)
        if self.engine is not None and self.network.config.in_channels == 1:
            return self.engine.encoder_tokens(given.images[0, 0, :, : int(given.widths)].numpy())
        self.network.encoder.eval()  # no gradient is wanted of any of its parameters
        tokens, lengths = self.network.encoder(*self.network.prepare(given.images, given.widths))
        own: Tensor = tokens[:, 0, : int(lengths)]
        return own


def suited_freeze(net: Network, lines: int) -> Literal["nothing", "encoder"]:
    """What of a network to freeze on a CPU that goes on with so many lines."""
    return "encoder" if isinstance(net, SpikeHTR) and lines <= FEW_LINES else "nothing"


def freeze_remark(config: Config, lines: int) -> str | None:
    if config.training.freeze != "encoder":
        return None
    return (
        f"the encoder stays as it is: what it makes of {versions(lines)} versions of each of the {lines} lines is "
        "kept, and only what follows it is trained, much faster; -s training.freeze=nothing trains all of the network"
    )
