"""Checkpoints: where a run stands, in one safetensors file with a JSON header. No pickle.

The newest is `last.safetensors`, the one before it `previous.safetensors`. Both are written whole or not at all, so a
kill at any moment leaves one to go on from; a damaged newest one is passed over, saying so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file
from spikehtr.training.optim import WeightAverage, kept_buffers

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


def has_checkpoint(folder: Path) -> bool:
    return any((folder / name).exists() for name in (LAST, PREVIOUS))


class Checkpoint(NamedTuple):
    tensors: dict[str, Tensor]
    state: dict[str, Any]  # where the run stands: step, seconds, best score and what else the loop keeps
    warning: str | None  # said where the newest checkpoint could not be used


def save_checkpoint(
    folder: Path, net: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage, state: dict[str, Any]
) -> None:
    tensors = {f"net.{name}": p.detach() for name, p in net.named_parameters()}
    tensors |= {f"net.{name}": value for name, value in kept_buffers(net).items()}
    tensors |= {f"average.{name}": value for name, value in (average.values | average.buffers).items()}
    for name, p in net.named_parameters():
        for key, value in optimizer.state.get(p, {}).items():
            tensors[f"{key}.{name}"] = value
    header = {"state": json.dumps(state)}
    with whole_file(folder / LAST) as temporary:
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, temporary, header)
        if _readable(folder / LAST):  # a damaged one must not take the place of the last good one
            (folder / LAST).replace(folder / PREVIOUS)


def _readable(path: Path) -> bool:
    """Whether there is such a file, as long as its header says."""
    try:
        with safe_open(str(path), "pt"):
            return True
    except (SafetensorError, OSError):
        return False


def load_checkpoint(folder: Path) -> Checkpoint:
    """The newest checkpoint that can be read."""
    faults: list[str] = []
    for name in (LAST, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            with safe_open(str(path), "pt") as file:
                state = json.loads(file.metadata()["state"])
                warning = f"{faults[0]}; going on from the one before it" if faults else None
                return Checkpoint({key: file.get_tensor(key) for key in file.keys()}, state, warning)  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
            faults.append(f"{path} is damaged or cannot be read ({reason_of(error)})")
    if faults:
        raise SpikeHTRError(f"{'; '.join(faults)}: mend that, or start the run anew")
    raise SpikeHTRError(f"{folder}: no checkpoint to resume from; leave --resume out to start a run")


@torch.no_grad()
def restore(checkpoint: Checkpoint, net: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage) -> None:
    """Put network, optimiser and average where the checkpoint's run was; the checkpoint stays as it is."""
    moments = defaultdict[str, dict[str, Tensor]](dict)  # by parameter: whatever the optimiser kept of it
    for place, value in checkpoint.tensors.items():
        kind, _, name = place.partition(".")
        if kind not in ("net", "average"):
            moments[name][kind] = value
    here = () if optimizer.defaults.get("fused") else ("step",)  # AdamW's counter is on the CPU, but for the fused one
    for name, p in net.named_parameters():
        p.copy_(checkpoint.tensors[f"net.{name}"])
        average.values[name].copy_(checkpoint.tensors[f"average.{name}"])
        if name in moments:
            optimizer.state[p] = {
                kind: value.to("cpu" if kind in here else p.device, copy=True) for kind, value in moments[name].items()
            }
    for name, value in kept_buffers(net).items():
        value.copy_(checkpoint.tensors[f"net.{name}"])
        average.buffers[name].copy_(checkpoint.tensors[f"average.{name}"])
    average.updates = checkpoint.state["step"]  # one a step
