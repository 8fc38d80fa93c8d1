"""Recognisers to compare with, in the same harness: same data, augmentation, loop, decoding and report."""

from __future__ import annotations

from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network


def build(config: ModelConfig, vocab_size: int) -> Network:
    """The network that `config.arch` names, freshly initialised."""
    if not isinstance(config, ModelConfig):
        raise SpikeHTRError(f"build takes the model part of a configuration: cfg.model, not {type(config).__name__}")
    if config.arch == "cnn-blstm":
        from spikehtr.baselines.cnn_blstm import CNNBLSTM

        return CNNBLSTM(config, vocab_size)
    if config.arch == "retsinas":
        from spikehtr.baselines.retsinas import Retsinas

        return Retsinas(config, vocab_size)
    if config.arch == "htr-vt":
        from spikehtr.baselines.htr_vt import HTRVT

        return HTRVT(config, vocab_size)
    if config.arch == "kraken":
        from spikehtr.baselines.kraken import Kraken

        return Kraken(config, vocab_size)
    from spikehtr.model.recognizer import SpikeHTR

    return SpikeHTR(config, vocab_size)
