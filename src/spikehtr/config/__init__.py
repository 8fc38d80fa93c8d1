"""Everything that can be set: one strict tree of model, data and training, as Python, YAML and command-line text."""

from spikehtr.config.baseline_section import BaselineConfig
from spikehtr.config.data_section import AugmentConfig, DataConfig
from spikehtr.config.model_section import (
    EncoderConfig,
    InkCoderConfig,
    LIFConfig,
    MixerConfig,
    ModelConfig,
    ReducerConfig,
)
from spikehtr.config.parsing import ConfigError
from spikehtr.config.presets import PRESETS
from spikehtr.config.training_section import TrainingConfig
from spikehtr.config.tree import Config, known_keys

__all__ = [
    "PRESETS",
    "AugmentConfig",
    "BaselineConfig",
    "Config",
    "ConfigError",
    "DataConfig",
    "EncoderConfig",
    "InkCoderConfig",
    "LIFConfig",
    "MixerConfig",
    "ModelConfig",
    "ReducerConfig",
    "TrainingConfig",
    "known_keys",
]
