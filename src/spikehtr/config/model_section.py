"""The `model` part of the settings: everything that shapes a network. Defaults are the paper's base tier.

Where the paper gives no value, the field's comment says so.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
OpenFraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
Block = Literal["LA", "QK", "LK"]
Burst = Annotated[int, Field(ge=1, le=8)]
Neurons = Literal["all", "read"]
Stride = Annotated[tuple[Literal[1, 2, 4], Literal[1, 2, 4]], Field(strict=False)]  # height, width


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class LIFConfig(Section):
    """Eq. 1. The paper names the terms; decay, threshold and surrogate are our reading."""

    decay: Fraction = 0.5  # tau: what is left of the membrane after one step
    threshold: Positive = 1.0  # V_th
    surrogate: Literal["atan", "sigmoid"] = "atan"
    surrogate_alpha: Positive = 2.0  # larger is narrower
    start_bias: float = 0.0  # of the norm that drives a neuron, before training; below 0 fewer neurons fire
    # Of the membrane above threshold, for each further spike of a burst (encoder.pw1_burst, mixer.burst). Multiples of
    # 1/64, and theirs, are exact in every precision.
    burst_step: Annotated[float, Field(gt=0, multiple_of=1 / 64)] = 0.5


class InkCoderConfig(Section):
    """Appendix A. The paper gives the operators, not the constants: these were set by eye on real lines."""

    evidence: Literal["both", "intensity", "edge"] = "both"
    theta: Literal["scheduled", "fixed"] = "scheduled"  # fixed: the middle of theta_min and theta_max at every step
    blur: Count = 3  # side of the box that smooths the line, pixels, odd
    density: Count = 5  # side of the box whose mean is the local density, odd
    edge_scale: Count = 2  # s of the second, coarser edge map
    q_low: Fraction = 0.02
    q_high: Fraction = 0.75
    q_edge: Fraction = 0.97
    kappa_int: Positive = 12.0
    tau_int: Fraction = 0.25
    kappa_edge: Positive = 16.0
    tau_edge: Fraction = 0.12
    kappa_density: Positive = 20.0
    tau_density: Fraction = 0.12
    gamma_density: Positive = 1.0
    theta_min: Fraction = 0.20
    theta_max: Fraction = 0.50
    gamma_theta: Positive = 1.0
    a0: Positive = 12.0  # gate sharpness at the first step, before the two learned scalars
    eta_a: Fraction = 0.2  # share of the sharpness that is gone at the last step
    s_w: Positive = 4.0
    b_w: float = -0.5

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("blur", "density"):
            if getattr(self, name) % 2 == 0:
                raise ValueError(f"{name} must be odd, so that the box has a centre")
        for low, high in (("q_low", "q_high"), ("theta_min", "theta_max")):
            if getattr(self, low) >= getattr(self, high):
                raise ValueError(f"{low} must be below {high}")
        return self


class EncoderConfig(Section):
    """The spiking 2D encoder (Section 3.3)."""

    depths: Annotated[tuple[Count, Count, Count], Field(strict=False)] = (1, 1, 5)  # ConvMix2d blocks in each stage
    channels: Annotated[tuple[Count, Count] | None, Field(strict=False)] = None  # of stages 1, 2; None: dim/4, dim/2
    stem_stride: Stride = (1, 1)  # above 1: a coarser grid from the start, with InkCoder's gates pooled to it
    strides: Annotated[tuple[Stride, Stride, Stride], Field(strict=False)] = ((1, 1), (2, 2), (2, 2))  # of the stages
    expansion: Positive = 4.0  # PW1 widens by this
    kernel: Count = 5  # of the depthwise convolution, odd
    norm_groups: Count = 8  # of every GroupNorm; lowered to a divisor where the width asks for it
    # all (the paper), or read: those whose spikes a product reads, which are PW1's, or with spikes_first all.
    neurons: Neurons = "all"
    spikes_first: bool = False  # neuron before each convolution, sums after its norm: every convolution reads spikes
    bypass: bool = True  # membrane shortcut, Eq. 8; none with spikes_first, or without all neurons
    bypass_init: float = 0.05  # alpha at the start ("near 0")
    pw1_start_bias: float | None = None  # lif.start_bias for PW1, whose neurons have no shortcut; None: as all others
    pw1_burst: Burst = 1  # most spikes of one of PW1's neurons in a step; the paper: 1
    dual_resolution: bool = True  # Eq. 9
    downsample: Literal["mix", "avg", "max"] = "mix"
    dropout: BelowOne = 0.0  # share of PW1's channels that are silent for a line in training; none in the paper
    drop_path: BelowOne = 0.0  # stochastic depth over the ConvMix2d blocks; the paper ramps it over the mixer's

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError("kernel must be odd")
        if math.prod(stride[1] for stride in (self.stem_stride, *self.strides)) != 4:
            raise ValueError("the widths of stem_stride and strides must multiply to 4: there are W/4 tokens")
        return self

    @property
    def shortcuts(self) -> bool:
        """Whether there are membrane shortcuts."""
        return self.bypass and self.neurons == "all" and not self.spikes_first


class ReducerConfig(Section):
    """Keep-and-merge (Section 3.4)."""

    mode: Literal["keep-and-merge", "none", "prune-only", "merge-only"] = "keep-and-merge"
    tau: Fraction = 0.88  # a position is kept when its blank posterior is below this
    eta: NonNegative = 1.0  # and when its entropy (nats) is above this; no value in the paper
    gamma: Fraction = 0.70  # at least this share of a line's positions is kept
    k: Count = 3  # longest span that is merged into one token
    preview_gradient: bool = False  # let gradients flow back through the preview (an ablation)

    @property
    def longest(self) -> int:
        """Positions a token covers at most."""
        return 1 if self.mode in ("none", "prune-only") else self.k


class MixerConfig(Section):
    """The 1D sequence mixer (Section 3.5)."""

    blocks: Annotated[tuple[Block, ...], Field(strict=False)] = ("LA", "QK", "QK", "LK", "LK", "LA")
    layout: Literal["auto", "all-LA", "all-QK", "all-LK"] = "auto"  # auto: `blocks` as they stand
    heads: Count = 12
    mlp_ratio: Positive = 4.0
    lk_kernel: Count = 31
    lk_expansion: Positive = 1.75
    dropout: BelowOne = 0.10
    drop_path: BelowOne = 0.20  # at the last block; ramped linearly from 0
    # all (the paper); read: none at a branch's end, whose spikes are added to the stream and read by no product; alone:
    # none in LK either, whose spikes are blended with values before a product reads them.
    neurons: Literal["all", "read", "alone"] = "all"
    start_bias: float | None = None  # lif.start_bias for the mixer, without membrane shortcuts; None: as all others
    burst: Burst = 1  # most spikes of one of its neurons in a step; the paper: 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.blocks:
            raise ValueError("blocks must name at least one of LA, QK, LK")
        if self.lk_kernel % 2 == 0:
            raise ValueError("lk_kernel must be odd")
        return self

    @property
    def operators(self) -> tuple[Block, ...]:
        """The token operator of each block, after `layout` has had its say."""
        if self.layout == "auto":
            return self.blocks
        only: dict[str, Block] = {"all-LA": "LA", "all-QK": "QK", "all-LK": "LK"}
        return (only[self.layout],) * len(self.blocks)


class BaselineConfig(Section):
    """What can be set of the recognisers to compare with (docs/baselines.md)."""

    scale: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # of every width; 1: as published, less: for quick trials
    dropout: Fraction = 1.0  # share of the published dropout rates; 0 switches dropout off
    mask_ratio: BelowOne = 0.4  # HTR-VT, training: share of the tokens that is masked
    mask_span: Count = 8  # and how many neighbours are masked together


class ModelConfig(Section):
    """Everything that shapes the network. Enough, with the charset, to rebuild it.

    A baseline (`arch`) reads in_channels, height, max_width, reducer and baseline; the rest is Spike-HTR's own.
    """

    arch: Literal["spike-htr", "cnn-blstm", "retsinas", "htr-vt", "kraken"] = "spike-htr"
    dim: Count = 768  # d; the 2D stages are d/4, d/2 and d wide
    timesteps: Count = 2  # T
    max_timesteps: Count = 4  # T_max, size of the fusion weights
    in_channels: Literal[1, 3] = 3
    height: Count = 64
    positions: Count = 128  # entries of the absolute position table; longer lines interpolate it
    max_width: Count = 8192  # widest image the network takes, pixels
    entry: Literal["inkcoder", "repeat", "poisson", "ttfs"] = "inkcoder"
    beta: OpenFraction = 0.35  # baseline of the gated injection at the start, Eq. 7
    neuron: Literal["lif", "gelu"] = "lif"
    lif: LIFConfig = LIFConfig()
    inkcoder: InkCoderConfig = InkCoderConfig()
    encoder: EncoderConfig = EncoderConfig()
    reducer: ReducerConfig = ReducerConfig()
    mixer: MixerConfig = MixerConfig()
    baseline: BaselineConfig = BaselineConfig()

    @property
    def stride(self) -> int:
        """Pixels a token, before reduction: a line of w pixels has ceil(w / stride) tokens."""
        return 4 if self.arch in ("spike-htr", "htr-vt") else 8

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dim % 4:
            raise ValueError("dim must be a multiple of 4 (the first stage is dim/4 wide)")
        if self.dim % self.mixer.heads:
            raise ValueError(f"dim {self.dim} must be a multiple of mixer.heads {self.mixer.heads}")
        if self.timesteps > self.max_timesteps:
            raise ValueError(f"timesteps {self.timesteps} is above max_timesteps {self.max_timesteps}")
        for name, ratio, width in (
            ("encoder.expansion", self.encoder.expansion, self.dim // 4),
            ("mixer.mlp_ratio", self.mixer.mlp_ratio, self.dim),
            ("mixer.lk_expansion", self.mixer.lk_expansion, self.dim),
        ):
            if round(ratio * width) < 1:
                raise ValueError(f"{name} {ratio} leaves no channel of {width}")
        rows = math.prod(stride[0] for stride in (self.encoder.stem_stride, *self.encoder.strides))
        rows = {"cnn-blstm": 8, "retsinas": 16, "htr-vt": 1, "kraken": 8}.get(self.arch, rows)
        if self.height % rows:
            raise ValueError(f"height must be a multiple of {rows}, the product of the encoder's strides")
        return self
