"""How a network is trained (`training`). Defaults are the paper's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spikehtr.config.model_section import Count, Fraction, NonNegative, Positive, Section


class TrainingConfig(Section):
    """Table 10."""

    batch_size: Count = 4
    epochs: Count = 210
    warmup_epochs: NonNegative = 5
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: for matrices, AdamW for the rest (training.muon)
    learning_rate: Positive = 3e-4
    muon_rate: Positive = 2.0  # rate of what Muon trains, in learning rates
    min_learning_rate: NonNegative = 1e-6
    hold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # share of what follows the warm-up before the rate falls
    weight_decay: NonNegative = 0.05
    clip_norm: Positive = 1.0
    ema_decay: Fraction = 0.9998
    aux_weight: NonNegative = 0.2  # lambda_aux
    kl_weight: NonNegative = 0.05  # lambda_kl
    kl_temperature: Positive = 1.0
    bypass_penalty: NonNegative = 0.0  # weight of the sum of alpha^2
    firing_penalty: NonNegative = 0.0  # weight of the rate at which norms make neurons fire (model.lif.expected_firing)
    firing_target: Fraction = 0.0  # what of it is free
    teacher_weight: NonNegative = 1.0  # of the divergence from a teacher's posteriors, where there is a teacher
    validate_every: Count = 1  # epochs between two validations; the last epoch is always validated
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"  # auto: bf16 on a GPU that has it, fp32 elsewhere
    cuda_graphs: bool = True  # record and replay on one GPU: passes by the fast kernels, any network's optimiser
    seed: int = 0
