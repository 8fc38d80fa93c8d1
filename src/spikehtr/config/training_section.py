"""How a network is trained (`training`). Defaults are the paper's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spikehtr.config.section import Count, Fraction, NonNegative, Positive, Section


class TrainingConfig(Section):
    """The recipe (Table 10)."""

    batch_size: Count = 4
    """Lines a step, over all devices."""
    epochs: Count = 210
    """Epochs of training."""
    warmup_epochs: NonNegative = 5
    """Epochs in which the learning rate rises to its height."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon for matrices and kernels and AdamW for the rest."""
    learning_rate: Positive = 3e-4
    """Highest learning rate."""
    muon_rate: Positive = 2.0
    """Rate of what Muon trains, as a multiple of the learning rate."""
    min_learning_rate: NonNegative = 1e-6
    """Learning rate at the end."""
    hold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of what follows the warm-up in which the learning rate stays at its height."""
    weight_decay: NonNegative = 0.05
    """Weight decay, on matrices and kernels only."""
    clip_norm: Positive = 1.0
    """Largest norm of a gradient."""
    ema_decay: Fraction = 0.9998
    """Decay of the averaged weights, which are what is kept; lower at the start."""
    aux_weight: NonNegative = 0.2
    """Weight of the auxiliary CTC loss on the preview (lambda_aux)."""
    kl_weight: NonNegative = 0.05
    """Weight of the divergence between preview and final posteriors (lambda_kl)."""
    kl_temperature: Positive = 1.0
    """Temperature of that divergence."""
    bypass_penalty: NonNegative = 0.0
    """Weight of the sum of the shortcuts' alpha squared."""
    firing_penalty: NonNegative = 0.0
    """Weight of the firing rate that the norms' scales and shifts lead one to expect."""
    firing_target: Fraction = 0.0
    """Firing rate that has no price; only what is above it is penalised."""
    freeze: Literal["auto", "nothing", "encoder"] = "auto"
    """What of a model that is gone on from stays as it is (auto: the encoder, for few lines on a CPU)."""
    validate_every: Count = 1
    """Epochs between two validations; the last epoch is always validated."""
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"
    """Precision of convolutions and linear maps; auto: bf16 on a GPU that has it, fp32 elsewhere."""
    cuda_graphs: bool = True
    """Record and replay steps on one GPU."""
    seed: int = 0
    """Seed of everything random in a run."""
