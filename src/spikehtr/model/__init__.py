"""The paper's network, section by section, in plain PyTorch: the reference that every fast path is tested against."""

from spikehtr.model.inkcoder import InkCoder
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.reducer import CTCLengthReducer, ctc_min_length
from spikehtr.model.spike_htr import SpikeHTR

__all__ = ["CTCLengthReducer", "InkCoder", "MultiStepLIF", "SpikeHTR", "ctc_min_length"]
