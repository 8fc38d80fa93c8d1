"""One strict tree for everything that can be set: model, data, training, decoding.

The same tree is a YAML file, dotted command-line overrides and the header of a weight file. An unknown key is an
error that names the nearest valid one. Defaults are the paper's values (base tier, Tables 8-10); where the paper
gives none, the field's comment says so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spikehtr.config_text import ConfigError, did_you_mean, explain, load_yaml, parse_override, unknown_key
from spikehtr.files import whole_file
from spikehtr.presets import BASELINES, PRESETS, TIERS

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
BelowOne = Annotated[float, Field(ge=0.0, lt=1.0)]
OpenFraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
Block = Literal["LA", "QK", "LK"]
Stride = Annotated[tuple[Literal[1, 2, 4], Literal[1, 2, 4]], Field(strict=False)]  # height, width


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class LIFConfig(Section):
    """Eq. 1. The paper names the terms; decay, threshold and surrogate are our reading."""

    decay: Fraction = 0.5  # tau: what is left of the membrane after one step
    threshold: Positive = 1.0  # V_th
    surrogate: Literal["atan", "sigmoid"] = "atan"
    surrogate_alpha: Positive = 2.0  # larger is narrower


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
    spikes_first: bool = False  # neuron before each convolution, sums after its norm: every convolution reads spikes
    bypass: bool = True  # membrane shortcut, Eq. 8; there is none with spikes_first
    bypass_init: float = 0.05  # alpha at the start ("near 0")
    dual_resolution: bool = True  # Eq. 9
    downsample: Literal["mix", "avg", "max"] = "mix"
    drop_path: BelowOne = 0.0  # stochastic depth over the ConvMix2d blocks; the paper ramps it over the mixer's

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError("kernel must be odd")
        if math.prod(stride[1] for stride in (self.stem_stride, *self.strides)) != 4:
            raise ValueError("the widths of stem_stride and strides must multiply to 4: there are W/4 tokens")
        return self


class ReducerConfig(Section):
    """Keep-and-merge (Section 3.4)."""

    mode: Literal["keep-and-merge", "none", "prune-only", "merge-only"] = "keep-and-merge"
    tau: Fraction = 0.88  # a position is kept when its blank posterior is below this
    eta: NonNegative = 1.0  # and when its entropy (nats) is above this; no value in the paper
    gamma: Fraction = 0.70  # at least this share of a line's positions is kept
    k: Count = 3  # longest span that is merged into one token
    preview_gradient: bool = False  # let gradients flow back through the preview (an ablation)


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


class DataConfig(Section):
    max_width: Count = 512  # a wider line is scaled down with its aspect kept
    workers: Annotated[int, Field(ge=0)] = 4
    cache_mb: Annotated[int, Field(ge=0)] = 2048  # memory for decoded lines, shared out over the workers
    augment: AugmentConfig = AugmentConfig()


class TrainingConfig(Section):
    """Table 10."""

    batch_size: Count = 4
    epochs: Count = 210
    warmup_epochs: NonNegative = 5
    learning_rate: Positive = 3e-4
    min_learning_rate: NonNegative = 1e-6
    weight_decay: NonNegative = 0.05
    clip_norm: Positive = 1.0
    ema_decay: Fraction = 0.9998
    aux_weight: NonNegative = 0.2  # lambda_aux
    kl_weight: NonNegative = 0.05  # lambda_kl
    kl_temperature: Positive = 1.0
    bypass_penalty: NonNegative = 0.0  # weight of the sum of alpha^2
    reducer_warmup: NonNegative = 0.0  # epochs at the start in which lines are not reduced
    validate_every: Count = 1  # epochs between two validations; the last epoch is always validated
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"  # auto: bf16 on a GPU that has it, fp32 elsewhere
    cuda_graphs: bool = True  # record steps and replay them, on one GPU with the fast kernels
    seed: int = 0


class DecodingConfig(Section):
    method: Literal["greedy"] = "greedy"


class Config(Section):
    """The whole tree. Immutable: `with_overrides` gives a changed copy."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        m = self.model
        if m.arch != "spike-htr" and m.reducer.mode != "none" and self.training.aux_weight == 0:
            raise ValueError(
                f"model.reducer.mode={m.reducer.mode} on {m.arch} needs training.aux_weight above 0: "
                "that loss alone trains the head that tells what to merge"
            )
        return self

    @classmethod
    def preset(cls, name: str) -> Self:
        if name not in PRESETS:
            near = did_you_mean(name, PRESETS)
            raise ConfigError(f"no preset called {name!r}{near} (there are: {', '.join(PRESETS)})")
        return cls.from_dict(TIERS[name] if name in TIERS else BASELINES[name])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "") -> Self:
        """Build from nested mappings; `source` (a file name, say) opens the error message."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(explain(error, known_keys(), source)) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a YAML file. A top-level `preset: tiny` starts from that tier instead of from base."""
        values = load_yaml(path)
        preset = values.pop("preset", None)
        start = {} if preset is None else cls.preset(str(preset)).to_dict()
        return cls.from_dict(_merge(start, values), str(path))

    def with_reducer(self) -> Self:
        """A copy with keep-and-merge on; a baseline then needs the auxiliary loss, whose weight is the paper's."""
        changes: dict[str, Any] = {"model.reducer.mode": "keep-and-merge"}
        if self.model.arch != "spike-htr" and self.training.aux_weight == 0:
            changes["training.aux_weight"] = TrainingConfig().aux_weight
        return self.with_overrides(changes)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        with whole_file(path) as temporary:
            temporary.write_text(self.to_yaml(), encoding="utf-8")

    def with_overrides(self, overrides: Mapping[str, Any] | Iterable[str]) -> Self:
        """A copy with dotted keys changed: `{"model.timesteps": 1}` or `["model.timesteps=1"]`.

        What stands behind an equals sign is read as YAML: `true`, `0.5`, `[LA, QK]` and `3e-4` are what they look like.
        """
        pairs = overrides if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
        values = self.to_dict()
        for key, value in pairs.items():
            *parents, last = key.split(".")
            section = values
            for depth, name in enumerate(parents):
                if not isinstance(section.get(name), dict):
                    unknown = None if name in section else ".".join(parents[: depth + 1])
                    raise ConfigError(unknown_key(key, known_keys(), unknown))
                section = section[name]
            if last not in section:
                raise ConfigError(unknown_key(key, known_keys()))
            if isinstance(section[last], dict):
                if not isinstance(value, Mapping):
                    choices = ", ".join(f"{key}.{name}" for name in section[last])
                    raise ConfigError(f"{key} is a section: set one of {choices}")
                value = _merge(section[last], value)
            section[last] = value
        return type(self).from_dict(values)


def _merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in extra.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def known_keys(section: type[BaseModel] = Config, prefix: str = "") -> tuple[str, ...]:
    """Every dotted key of the tree, sections included."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys.extend(known_keys(field.annotation, f"{prefix}{name}."))
    return tuple(keys)


__all__ = ["PRESETS", "Config", "ConfigError", "known_keys"]
