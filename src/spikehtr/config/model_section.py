"""The `model` part of the settings: everything that shapes a network. Defaults are the paper's base tier.

The sentence below each setting is what docs/reference/settings.md says of it (`python tools/write_reference.py`).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from spikehtr.architectures import Arch
from spikehtr.config.baseline_section import AUTOREGRESSIVE, GRIDS, BaselineConfig
from spikehtr.config.section import BelowOne, Count, Fraction, NonNegative, OpenFraction, Positive, Section

Burst = Annotated[int, Field(ge=1, le=8)]
Neurons = Literal["all", "read"]
Stride = Annotated[tuple[Literal[1, 2, 4], Literal[1, 2, 4]], Field(strict=False)]  # height, width

TOKEN_OPERATORS = {  # of the mixer, by their letters: module and class, imported where a network is built
    "LA": ("spikehtr.model.mixer", "LinearAttention"),
    "QK": ("spikehtr.model.mixer", "QKMix"),
    "LK": ("spikehtr.model.mixer", "LargeKernel"),
    "SR": ("spikehtr.model.recurrence", "SpikingRecurrence"),
}
_LAYOUTS = ("auto", *(f"all-{letters}" for letters in TOKEN_OPERATORS))


def _one_of(value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return value


Block = Annotated[
    str,
    AfterValidator(lambda value: _one_of(value, tuple(TOKEN_OPERATORS))),
    WithJsonSchema({"enum": [*TOKEN_OPERATORS]}),
]
Layout = Annotated[str, AfterValidator(lambda value: _one_of(value, _LAYOUTS)), WithJsonSchema({"enum": [*_LAYOUTS]})]


class LIFConfig(Section):
    """Eq. 1. The paper names the terms; decay, threshold and surrogate are our reading."""

    decay: Fraction = 0.5
    """Share of the membrane that is left after one step (tau)."""
    threshold: Positive = 1.0
    """Membrane at which a neuron fires (V_th)."""
    surrogate: Literal["atan", "sigmoid"] = "atan"
    """Function whose derivative stands in for the step's in the backward pass."""
    surrogate_alpha: Positive = 2.0
    """Sharpness of the surrogate; larger is narrower."""
    start_bias: float = 0.0
    """Bias of the norms that drive neurons, before training; below 0 fewer neurons fire."""
    burst_step: Annotated[float, Field(gt=0, multiple_of=1 / 64)] = 0.5
    """Membrane above threshold for each further spike of a burst; multiples of 1/64 are exact in every precision."""


class InkCoderConfig(Section):
    """Appendix A. The paper gives the operators, not the constants: these were set by eye on real lines."""

    evidence: Literal["both", "intensity", "edge"] = "both"
    """What counts as ink: darkness and edges, or one of them alone."""
    theta: Literal["scheduled", "fixed"] = "scheduled"
    """Whether the gates' threshold moves from theta_min to theta_max over the steps, or stays in their middle."""
    blur: Count = 3
    """Side of the box that smooths the line, pixels, odd."""
    density: Count = 5
    """Side of the box whose mean is the local density, pixels, odd."""
    edge_scale: Count = 2
    """Factor by which the line is made smaller for the second, coarser edge map (s)."""
    q_low: Fraction = 0.02
    """Quantile of a line's grey levels that counts as ink."""
    q_high: Fraction = 0.75
    """Quantile of a line's grey levels that counts as paper."""
    q_edge: Fraction = 0.97
    """Quantile of a line's edge magnitudes that counts as a full edge."""
    kappa_int: Positive = 12.0
    """Sharpness of the gate that keeps edges only where there is ink."""
    tau_int: Fraction = 0.25
    """Intensity at which that gate is half open."""
    kappa_edge: Positive = 16.0
    """Sharpness of the gate that keeps edges only beside other edges."""
    tau_edge: Fraction = 0.12
    """Local density of edges at which that gate is half open."""
    kappa_density: Positive = 20.0
    """Sharpness of the gate that removes speckle from the evidence."""
    tau_density: Fraction = 0.12
    """Local density of evidence at which that gate is half open."""
    gamma_density: Positive = 1.0
    """Exponent of that gate."""
    theta_min: Fraction = 0.20
    """Threshold of the gates at the first step."""
    theta_max: Fraction = 0.50
    """Threshold of the gates at the last step."""
    gamma_theta: Positive = 1.0
    """Exponent of the way from the first threshold to the last."""
    a0: Positive = 12.0
    """Sharpness of the gates at the first step, before the two learned scalars."""
    eta_a: Fraction = 0.2
    """Share of that sharpness that is gone at the last step."""
    s_w: Positive = 4.0
    """Slope of the change from intensity to edges over the steps."""
    b_w: float = -0.5
    """Offset of that change."""

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

    depths: Annotated[tuple[Count, Count, Count], Field(strict=False)] = (1, 1, 5)
    """ConvMix2d blocks in each of the three stages."""
    channels: Annotated[tuple[Count, Count] | None, Field(strict=False)] = None
    """Channels of stages 1 and 2; unset: dim/4 and dim/2."""
    stem_stride: Stride = (1, 1)
    """Height and width stride of the stem; above 1 the grid is coarser from the start, InkCoder's gates are pooled."""
    strides: Annotated[tuple[Stride, Stride, Stride], Field(strict=False)] = ((1, 1), (2, 2), (2, 2))
    """Height and width strides of the three stages; with the stem's, the widths must multiply to 4."""
    expansion: Positive = 4.0
    """Factor by which PW1 widens a block."""
    kernel: Count = 5
    """Side of the depthwise convolutions, odd."""
    norm_groups: Count = 8
    """Groups of every GroupNorm; lowered to a divisor where the width asks for it."""
    neurons: Neurons = "all"
    """All neurons of the paper, or only those whose spikes a product reads (PW1's; with spikes_first all)."""
    spikes_first: bool = False
    """Neuron before each convolution and sums after its norm, so that every convolution reads spikes."""
    bypass: bool = True
    """Membrane shortcut (Eq. 8); there is none with spikes_first or neurons=read."""
    bypass_init: float = 0.05
    """Weight alpha of the shortcut before training (the paper: near 0)."""
    pw1_start_bias: float | None = None
    """As lif.start_bias, for PW1 alone, whose neurons have no shortcut; unset: as all others."""
    pw1_burst: Burst = 1
    """Most spikes of one of PW1's neurons in a step (the paper: 1)."""
    dual_resolution: bool = True
    """Dual-resolution fusion (Eq. 9)."""
    downsample: Literal["mix", "avg", "max"] = "mix"
    """Pooling of the fusion: averages and maxima mixed, or one of them alone."""
    dropout: BelowOne = 0.0
    """Share of PW1's channels that are silent for a line in training."""
    drop_path: BelowOne = 0.0
    """Stochastic depth over the ConvMix2d blocks, ramped up to this at the last."""

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
    """How lines are shortened: kept and merged as in the paper, not at all, or one of its two ablations."""
    tau: Fraction = 0.88
    """A position is kept when its blank posterior is below this."""
    eta: NonNegative = 1.0
    """A position is kept when its entropy, in nats, is above this; the paper gives no value."""
    gamma: Fraction = 0.70
    """At least this share of a line's positions is kept."""
    k: Count = 3
    """Longest span of positions that is merged into one token."""
    preview_gradient: bool = False
    """Let gradients flow back through the preview (an ablation)."""

    @property
    def longest(self) -> int:
        """Positions a token covers at most."""
        return 1 if self.mode in ("none", "prune-only") else self.k


class MixerConfig(Section):
    """The 1D sequence mixer (Section 3.5)."""

    blocks: Annotated[tuple[Block, ...], Field(strict=False)] = ("LA", "QK", "QK", "LK", "LK", "LA")
    """Token operator of each block, in order."""
    layout: Layout = "auto"
    """`blocks` as they stand, or one operator in all of them."""
    heads: Count = 12
    """Heads of the token operators."""
    mlp_ratio: Positive = 4.0
    """Factor by which FC1 widens a block."""
    lk_kernel: Count = 31
    """Length of the large kernel, tokens, odd."""
    lk_expansion: Positive = 1.75
    """Factor by which a large-kernel block widens."""
    dropout: BelowOne = 0.10
    """Share of units that are dropped in training."""
    drop_path: BelowOne = 0.20
    """Stochastic depth at the last block, ramped from 0 at the first."""
    # all (the paper); read: none at a branch's end, whose spikes are added to the stream and read by no product; alone:
    # none in LK either, whose spikes are blended with values before a product reads them.
    neurons: Literal["all", "read", "alone"] = "all"
    """All neurons of the paper; none at a branch's end (read); none in LK either (alone)."""
    start_bias: float | None = None
    """As lif.start_bias, for the mixer; unset: as all others."""
    burst: Burst = 1
    """Most spikes of one of the mixer's neurons in a step (the paper: 1)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.blocks:
            raise ValueError(f"blocks must name at least one of {', '.join(TOKEN_OPERATORS)}")
        if self.lk_kernel % 2 == 0:
            raise ValueError("lk_kernel must be odd")
        return self

    @property
    def operators(self) -> tuple[str, ...]:
        """The letters of each block's token operator, after `layout` has had its say."""
        if self.layout == "auto":
            return self.blocks
        return (self.layout.removeprefix("all-"),) * len(self.blocks)


class ModelConfig(Section):
    """Everything that shapes the network. Enough, with the charset, to rebuild it.

    A baseline (`arch`) reads in_channels, height, max_width, reducer and baseline; the rest is Spike-HTR's own.
    """

    arch: Arch = "spike-htr"
    """The network: Spike-HTR or a baseline."""
    dim: Count = 768
    """Width d of the mixer; the 2D stages are d/4, d/2 and d wide unless encoder.channels says otherwise."""
    timesteps: Count = 2
    """Timesteps T."""
    max_timesteps: Count = 4
    """Size of the learned fusion weights, and the largest T (T_max)."""
    in_channels: Literal[1, 3] = 3
    """1 for grey, 3 for colour images."""
    height: Count = 64
    """Height of a line image, pixels."""
    positions: Count = 128
    """Entries of the table of absolute positions; longer lines interpolate it."""
    max_width: Count = 8192
    """Widest image the network takes, pixels."""
    entry: Literal["inkcoder", "repeat", "poisson", "ttfs"] = "inkcoder"
    """How a static image becomes T steps."""
    beta: OpenFraction = 0.35
    """Baseline of the gated injection before training (Eq. 7)."""
    neuron: Literal["lif", "gelu"] = "lif"
    """Spiking neurons, or GELU in their place (the control without spikes)."""
    lif: LIFConfig = LIFConfig()
    inkcoder: InkCoderConfig = InkCoderConfig()
    encoder: EncoderConfig = EncoderConfig()
    reducer: ReducerConfig = ReducerConfig()
    mixer: MixerConfig = MixerConfig()
    baseline: BaselineConfig = BaselineConfig()

    @property
    def stride(self) -> int:
        """Pixels a token, before reduction: a line of w pixels has ceil(w / stride) tokens."""
        return 4 if self.arch == "spike-htr" else GRIDS[self.arch][0]

    @property
    def character_width(self) -> int:
        """Pixels that a character takes at least: CTC needs a token for each, other networks have no use for less."""
        return 4 if self.arch in AUTOREGRESSIVE else self.stride

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
        rows = rows if self.arch == "spike-htr" else GRIDS[self.arch][1]
        if self.height % rows:
            raise ValueError(f"height must be a multiple of {rows}, the product of the encoder's strides")
        if self.arch in AUTOREGRESSIVE and self.reducer.mode != "none":
            raise ValueError(f"reducer.mode must be none: {self.arch} has no CTC head, whose blanks could be merged")
        return self
