"""Devices and number formats, by Lightning Fabric: one process or several, bf16 where a GPU has it, else TF32."""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal

import torch

from spikehtr.errors import SpikeHTRError
from spikehtr.training.fabric import Fabric

Precision = Literal["auto", "fp32", "bf16", "fp64"]
_FABRIC: dict[str, Any] = {"fp32": "32-true", "bf16": "bf16-mixed", "fp64": "64-true"}


def make_fabric(device: str = "cpu", devices: int = 1, precision: Precision = "auto") -> Fabric:
    """`device` is cpu, cuda or cuda:N; with `devices` above 1 `launch()` starts the other processes.

    Under torchrun its own number of processes counts.
    """
    nodes = 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
    wanted = torch.device(device)
    if devices > 1 and wanted.index is not None:
        raise SpikeHTRError(f"--device {device} names one device, --devices {devices} asks for several: give one")
    if wanted.type == "cuda" and devices > torch.cuda.device_count():
        raise SpikeHTRError(f"--devices {devices}: there are {torch.cuda.device_count()} GPUs here")
    if precision == "auto":
        has_bf16 = wanted.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
    if wanted.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for what stays in fp32
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        return Fabric(
            accelerator=wanted.type,
            devices=devices if wanted.index is None else [wanted.index],
            num_nodes=nodes,
            strategy="ddp" if devices * nodes > 1 else "auto",
            precision=_FABRIC[precision],
        )


def close_process_group() -> None:
    """End the connection of several processes. Left to the interpreter's own end, gloo's threads may abort it there."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
