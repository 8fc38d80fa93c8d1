"""Training a line network on packed pages: parts cut by workers, distorted on the device, weights averaged."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.segment import network_weights as weights
from spikehtr.pages.segment.line_network import LineNetwork, NetworkShape
from spikehtr.pages.segment.map_losses import PartBatch, losses
from spikehtr.pages.segment.packed_pages import PackedPage
from spikehtr.pages.segment.page_parts import Distortion, PagePart, PartSource, cut, source_of
from spikehtr.pages.segment.photometry import distort

LOG, WEIGHTS, LAST = "log.jsonl", "weights.safetensors", "last.safetensors"


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """`minutes` or `steps` say how long; the learning rate follows the share of it that is done."""

    minutes: float | None = None
    steps: int | None = None
    batch: int = 16
    size: int = 640
    learning_rate: float = 3e-3
    weight_decay: float = 0.02
    warmup: float = 0.05  # share of the training
    average: float = 0.998  # of the weights over steps
    workers: int = 3
    seed: int = 1
    log_every: int = 20
    save_every: int = 500


class Parts(IterableDataset[PagePart]):
    """An endless stream of parts; collections with few pages are drawn from more often than their pages are."""

    def __init__(self, pages: Sequence[PackedPage], size: int, seed: int, how: Distortion | None = None):
        self.sources: list[PartSource] = [source_of(page.image, page.labels) for page in pages]
        _, number, counts = np.unique([page.collection for page in pages], return_inverse=True, return_counts=True)
        share = 1 / np.sqrt(counts[number])
        self.share = share / share.sum()
        self.size, self.seed, self.how = size, seed, how or Distortion()

    def __iter__(self) -> Iterator[PagePart]:
        worker = get_worker_info()
        random = np.random.default_rng((self.seed, worker.id if worker else 0))
        while True:
            yield cut(self.sources[int(random.choice(len(self.sources), p=self.share))], self.size, random, self.how)


def collate(parts: Sequence[PagePart]) -> PartBatch:
    """Images stay bytes until they are on the device."""
    return PartBatch(
        torch.from_numpy(np.stack([part.image for part in parts])[:, None]),
        torch.from_numpy(np.stack([part.targets.fine for part in parts])),
        torch.from_numpy(np.stack([part.targets.heights for part in parts])).half(),
        torch.from_numpy(np.stack([part.targets.turn for part in parts])),
        torch.tensor([part.upright for part in parts]),
    )


class Trainer:
    """One training run in one folder: `last.safetensors` to resume from, `weights.safetensors` at the end."""

    def __init__(self, folder: Path, options: TrainOptions, shape: NetworkShape, device: str, about: dict[str, Any]):
        if (options.minutes is None) == (options.steps is None):
            raise SpikeHTRError("give either minutes or steps to train for")
        torch.manual_seed(options.seed)
        self.folder, self.options, self.about = folder, options, about
        self.device = torch.device(device)
        self.network = LineNetwork(shape).to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        decayed = [p for p in self.network.parameters() if p.ndim > 1]
        others = [p for p in self.network.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.99))
        self.averaged = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        self.step, self.seconds = 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def done(self) -> float:
        """The share of the training that is done."""
        if self.options.steps is not None:
            return self.step / max(1, self.options.steps)
        return self.seconds / (60 * (self.options.minutes or 1))

    def train(
        self,
        pages: Sequence[PackedPage],
        how: Distortion | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> None:
        """`progress` hears of the share that is done."""
        options = self.options
        # Before processes are forked: one that inherits OpenCV's threads waits for them for ever.
        cv2.setNumThreads(0)
        parts = Parts(pages, options.size, options.seed + 1000 * self.step, how)
        loader = DataLoader(
            parts,
            options.batch,
            num_workers=options.workers,
            collate_fn=collate,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=4 if options.workers else None,
            persistent_workers=options.workers > 0,
        )
        before, began = self.seconds, time.perf_counter()
        sums: dict[str, Tensor] = {}
        stream = iter(loader)
        while self.done < 1:
            values = self._update(next(stream))
            sums = {name: sums.get(name, 0) + value for name, value in values.items()}
            self.step += 1
            if self.step % options.log_every == 0:
                self._log({name: float(value) / options.log_every for name, value in sums.items()})
                sums = {}
            self.seconds = before + time.perf_counter() - began
            progress(min(1.0, self.done))
            if self.step % options.save_every == 0:
                self.save()
        self.save()
        weights.save(self.folder / WEIGHTS, self.averaged, self.network.shape, self.about | self._state())

    def _update(self, raw: PartBatch) -> dict[str, Tensor]:
        batch = PartBatch(*(one.to(self.device, non_blocking=True) for one in raw))
        with torch.no_grad():
            images = distort(batch.images.float() / 255)
            batch = batch._replace(images=images, heights=batch.heights.float())
        self.network.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            maps = self.network(batch.images.contiguous(memory_format=torch.channels_last))
        result = losses(maps, batch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * self._rate()
        self.optimizer.zero_grad(set_to_none=True)
        result.total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self._average()
        return {name: value.detach() for name, value in result._asdict().items()}

    def _rate(self) -> float:
        done, warmup = self.done, self.options.warmup
        if done < warmup:
            return max(0.02, done / warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - warmup) / (1 - warmup))))

    def _average(self) -> None:
        decay = min(self.options.average, (1 + self.step) / (10 + self.step))
        state = self.network.state_dict()
        floats = [name for name, value in state.items() if value.is_floating_point()]
        torch._foreach_lerp_([self.averaged[name] for name in floats], [state[name] for name in floats], 1 - decay)

    def _state(self) -> dict[str, Any]:
        return {"step": self.step, "seconds": self.seconds, "options": asdict(self.options)}

    def _log(self, values: dict[str, float]) -> None:
        row = {"step": self.step, "done": round(self.done, 4), "seconds": round(self.seconds, 1)} | values
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def save(self) -> None:
        """Everything that is needed to go on."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"averaged.{name}": value for name, value in self.averaged.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        weights.save_tensors(self.folder / LAST, tensors, self._state() | {"shape": self.network.shape.to_dict()})

    def resume(self) -> bool:
        """Goes on from what is in the folder; False where nothing is."""
        file = self.folder / LAST
        if not file.exists():
            return False
        saved = weights.header(file)
        if NetworkShape.from_dict(saved["shape"]) != self.network.shape:
            raise SpikeHTRError(f"{file}: the run was begun with another network; resume it with the options it had")
        tensors = load_file(file)  # on the CPU: the optimiser moves what belongs on the device
        self.network.load_state_dict(_under(tensors, "network."))
        self.averaged = {name: value.to(self.device) for name, value in _under(tensors, "averaged.").items()}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _under(tensors, "optimizer.").items():
            number, key = name.split(".")
            state.setdefault(int(number), {})[key] = value
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.step, self.seconds = int(saved["step"]), float(saved["seconds"])
        return True


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
