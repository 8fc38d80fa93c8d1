"""Every network by its name (`model.arch`): Spike-HTR and the recognisers it is compared with."""

from __future__ import annotations

from importlib import import_module

from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network

NETWORKS = {  # module and class; imported when they are asked for
    "spike-htr": ("spikehtr.model.spike_htr", "SpikeHTR"),
    "cnn-blstm": ("spikehtr.baselines.cnn_blstm", "CNNBLSTM"),
    "crnn": ("spikehtr.baselines.crnn", "CRNN"),
    "gated-crnn": ("spikehtr.baselines.gated_crnn", "GatedCRNN"),
    "retsinas": ("spikehtr.baselines.retsinas", "Retsinas"),
    "gfcn": ("spikehtr.baselines.gfcn", "GFCN"),
    "van": ("spikehtr.baselines.van", "VAN"),
    "span": ("spikehtr.baselines.van", "SPAN"),
    "origaminet": ("spikehtr.baselines.origaminet", "OrigamiNet"),
    "htr-vt": ("spikehtr.baselines.htr_vt", "HTRVT"),
    "htr-convtext": ("spikehtr.baselines.htr_convtext", "HTRConvText"),
    "kraken": ("spikehtr.baselines.kraken", "Kraken"),
    "par": ("spikehtr.baselines.par", "PAR"),
    "dan": ("spikehtr.baselines.dan", "DAN"),
}


def build(config: ModelConfig, vocab_size: int) -> Network:
    """The network that `config.arch` names, freshly initialised."""
    if not isinstance(config, ModelConfig):
        raise SpikeHTRError(f"build takes the model part of a configuration: cfg.model, not {type(config).__name__}")
    module, name = NETWORKS[config.arch]
    net: Network = getattr(import_module(module), name)(config, vocab_size)
    return net
