"""The parts of the settings that do not shape the network: `data`, `training`. Defaults are the paper's."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spikehtr.config_model import BelowOne, Count, Fraction, NonNegative, Positive, Section


class AugmentConfig(Section):
    """Training augmentation (Table 10). A strength of 0 switches an operation off; the paper gives no strengths."""

    probability: Fraction = 0.5  # that a line meets an operation; drawn for each line and operation
    rotate: NonNegative = 1.0  # degrees, either way
    shear: NonNegative = 0.3  # tangent of the slant, either way
    scale: BelowOne = 0.1  # share of the height, either way
    shift: Fraction = 0.04  # share of the height, up or down
    stretch: BelowOne = 0.15  # share of the width, either way
    elastic: NonNegative = 1.5  # largest displacement, pixels
    noise: NonNegative = 0.03  # standard deviation, of the range 0 to 1
    sharpen: NonNegative = 0.7  # how much of the detail is added
    stroke: Fraction = 0.5  # how far erosion or dilation is blended in
    invert: Fraction = 0.0  # probability of black and white changing places; off in the paper
    blank: BelowOne = (
        0.0  # share of the lines that are shown without their ink and text: empty paper is to read as nothing
    )


class DataConfig(Section):
    max_width: Count = 512  # a wider line is scaled down with its aspect kept
    straighten: bool = False  # lines are made level, and empty rows above and below cut off, before they are scaled
    train_lines: Annotated[int, Field(ge=0)] = 0  # train on so many lines, drawn by training.seed; 0: on all
    workers: Annotated[int, Field(ge=0)] = 4
    cache_mb: Annotated[int, Field(ge=0)] = 2048  # memory for decoded lines, shared out over the workers
    augment: AugmentConfig = AugmentConfig()


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
