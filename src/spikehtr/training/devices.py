"""Devices and number formats, by Lightning Fabric: one process or several, bf16 where a GPU has it, else TF32."""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal, NamedTuple

import torch

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.training.fabric import Fabric, SLURMEnvironment

Precision = Literal["auto", "fp32", "bf16", "fp64"]
_FABRIC: dict[str, Any] = {"fp32": "32-true", "bf16": "bf16-mixed", "fp64": "64-true"}
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")  # what Lightning's own launcher goes by
# What torch says where another process of the run is gone.
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Read timeout", "NCCL", "gloo")


class Layout(NamedTuple):
    """How many processes a training has: one a device."""

    devices: int  # on each node
    nodes: int


def layout(devices: int, nodes: int) -> Layout:
    """As torchrun or Slurm has it, where one of these started us; else as asked for."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return Layout(int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"]))
    if SLURMEnvironment.detect():
        tasks, hosts = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1"))
        if devices > 1 and tasks != devices * hosts:
            raise SpikeHTRError(
                f"--devices {devices}, but Slurm started {tasks} tasks on {hosts} nodes: "
                f"give --ntasks-per-node={devices} to sbatch, and start the command by srun"
            )
        return Layout(tasks // hosts, hosts)
    if nodes > 1 and (missing := [name for name in _RENDEZVOUS if name not in os.environ]):
        raise SpikeHTRError(
            f"--nodes {nodes} needs {', '.join(missing)} in the environment: the first node's address, a free port "
            "there, and this node's number from 0"
        )
    return Layout(devices, nodes)


def make_fabric(device: str = "cpu", devices: int = 1, precision: Precision = "auto", nodes: int = 1) -> Fabric:
    """`device` is cpu, cuda or cuda:N; with `devices` above 1 `launch()` starts the other processes of this node.

    Of several `nodes` each runs the same command. Under torchrun and Slurm their own number of processes counts.
    """
    devices, nodes = layout(devices, nodes)
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


def lost_process(error: BaseException) -> str | None:
    """Why the connection to the other processes is lost, if that is what an error says."""
    said = str(error)
    is_lost = isinstance(error, torch.distributed.DistError) or (
        isinstance(error, RuntimeError) and any(word in said for word in _LOST)
    )
    return reason_of(error) if is_lost else None


def close_process_group() -> None:
    """End the connection of several processes. Left to the interpreter's own end, gloo's threads may abort it there."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
