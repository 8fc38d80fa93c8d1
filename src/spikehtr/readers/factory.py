"""The fastest reader for a network on its device."""

from __future__ import annotations

import torch

from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.readers.base import Precision, Reader
from spikehtr.readers.cpu.engine import Engine, unsupported_reason
from spikehtr.readers.cuda_graphs import CudaGraphReader, can_record
from spikehtr.readers.torch import DoubleReader, TorchReader


def make_reader(net: Network, precision: Precision = "auto", recorded: bool = True) -> Reader:
    """The fastest reader there is for a network, on the device where it lies. `recorded`: on a GPU, where possible."""
    if precision == "fp64":
        return DoubleReader(net)
    device = next(net.parameters()).device
    half = uses_bf16(precision, device)
    if device.type == "cpu":
        half = half or (precision == "auto" and unsupported_reason(net, half=True) is None)
        if unsupported_reason(net, half) is None:
            return Engine(net, "bf16" if half else "fp32")
    if recorded and isinstance(net, SpikeHTR) and can_record(net):
        return CudaGraphReader(net, half)
    return TorchReader(net, half)


def uses_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether PyTorch computes in bf16; by itself only on a GPU that has it (the engine knows what CPUs have)."""
    if precision not in ("auto", "fp32", "bf16"):
        raise SpikeHTRError(f"precision must be auto, fp32, bf16 or fp64, not {precision!r}")
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return precision == "bf16"
