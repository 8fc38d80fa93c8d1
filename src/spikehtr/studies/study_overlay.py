"""What a study is: a small YAML overlay that lists variants, and the paper's published row beside each."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spikehtr.config import PRESETS, Config
from spikehtr.config.parsing import did_you_mean, load_yaml
from spikehtr.errors import SpikeHTRError

OVERLAYS = Path(__file__).parent / "overlays"
Metric = Literal["cer", "wer"]
Fact = Literal["r", "parameters", "macs", "firing", "minutes", "epochs", "speed"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(Part):
    """The published table: its label in the paper, and which of its columns are error rates of which split.

    A study of one's own has none; its rows are compared on validation lines.
    """

    table: str = ""
    caption: str = ""
    columns: tuple[str, ...] = ()
    rates: tuple[str, ...] = ()
    split: Literal["validation", "test"] = "validation"


class Variant(Part):
    """One row: a preset and overrides. With `why` it is the paper's alone; with `asked` it runs only when asked for.

    It is trained from scratch, or from a model that the user names, or it is that model as it is.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    label: str
    preset: str | None = None
    set: dict[str, Any] = {}
    paper: tuple[str, ...] = ()  # as printed, one for each of the table's columns
    why: str = ""
    asked: bool = False
    begin: Literal["scratch", "model", "as-is"] = "scratch"
    at: float | None = None  # its place along the study's axis
    series: str = ""  # which curve it belongs to there


class Pair(Part):
    """Rows to compare line by line: each of the first with each of the second."""

    each: tuple[str, ...]
    others: tuple[str, ...] = Field(alias="with")


class Protocol(Part):
    """How every run of a study is made, where the command line does not say so: anyone can then make a row again."""

    epochs: int = Field(ge=1)
    seeds: int = Field(default=1, ge=1)
    chooses: Literal["validation CER"] = "validation CER"  # of which epoch the weights are kept; test lines never do
    set: dict[str, Any] = {}  # for every variant, after the study's own
    variants: dict[str, dict[str, Any]] = {}  # by name: rate, batch, canvas; they have the last word


class Study(Part):
    name: str
    title: str
    preset: str | None = None  # of variants that name none, unless the user names another
    set: dict[str, Any] = {}  # for every variant
    paper: Paper = Paper()
    metrics: tuple[Metric, ...] = ("cer",)
    show: tuple[Fact, ...] = ()
    reference: str | None = None  # the row that every other is compared with
    compare: tuple[tuple[str, str], ...] = ()
    pair: Pair | None = None
    protocol: Protocol | None = None
    axis: str = ""  # what grows from variant to variant: error rates are drawn as curves over it
    variants: tuple[Variant, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [v.name for v in self.variants]
        if not names:
            raise ValueError("variants: there are none; list one at least, as {name: a, label: A, set: {}}")
        if len(set(names)) != len(names):
            raise ValueError("two variants have one name")
        named = {name for pair in self.compare for name in pair} | {self.reference or names[0]}
        named |= set(self.pair.each + self.pair.others) if self.pair else set()
        named |= set(self.protocol.variants) if self.protocol else set()
        if unknown := named - set(names):
            raise ValueError(f"no variant is called {', '.join(sorted(unknown))}")
        for v in self.variants:
            if v.paper and len(v.paper) != len(self.paper.columns):
                raise ValueError(f"{v.name}: {len(v.paper)} published values for {len(self.paper.columns)} columns")
            if self.axis and v.at is None:
                raise ValueError(f"{v.name}: no place (at) on the axis")
        return self

    @property
    def takes_model(self) -> bool:
        """Whether the user has to name one: its settings are then every variant's, too."""
        return any(v.begin != "scratch" for v in self.variants)

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Pairs of names, the first being what the second is compared with."""
        if self.reference is None:
            return self.compare
        return tuple((self.reference, v.name) for v in self.variants if v.name != self.reference) + self.compare

    def variant(self, name: str) -> Variant:
        for v in self.variants:
            if v.name == name:
                return v
        near = did_you_mean(name, [v.name for v in self.variants])
        there = ", ".join(v.name for v in self.variants)
        raise SpikeHTRError(f"{self.name} has no variant {name!r}{near} (there are: {there})")

    def left_out(self, variant: Variant, only: tuple[str, ...] = (), preset: str | None = None) -> str:
        """Why a variant does not run; empty where it does. `preset`: the user's."""
        if variant.why:
            return f"not reproduced: {variant.why}"
        named = variant.preset or (None if preset else self.preset)  # the user's is not passed over: it is an error
        if named and named not in PRESETS and not self.takes_model:
            return f"not run: there is no preset called {named}"
        if only and variant.name not in only:
            return "not run: not asked for"
        if variant.asked and variant.name not in only:
            return f"not run: ask for it with --only {variant.name}"
        return ""

    def config(
        self,
        variant: Variant,
        preset: str | None = None,
        overrides: tuple[str, ...] = (),
        epochs: int | None = None,
        seed: int = 0,
        model: Config | None = None,
    ) -> Config:
        """Preset (or the settings of the user's model), then what the study, its protocol, the user and the variant
        set, in this order, and what the protocol says of the variant: that has the last word."""
        if preset and all(v.preset or v.why for v in self.variants):
            raise SpikeHTRError(f"the variants of {self.name} have presets of their own: leave --preset out")
        named = variant.preset or preset or self.preset
        if not (named or self.takes_model):
            raise SpikeHTRError(
                f"{self.name}: variant {variant.name} has no preset: give one by --preset, or as `preset:` in the file"
            )
        config = model or Config.preset(named or "base")
        protocol = self.protocol or Protocol(epochs=config.training.epochs)
        config = config.with_overrides(self.set | protocol.set).with_overrides(overrides)
        config = config.with_overrides(variant.set | protocol.variants.get(variant.name, {}))
        changes: dict[str, Any] = {"training.seed": config.training.seed + seed}
        if epochs is not None:
            changes["training.epochs"] = epochs
        return config.with_overrides(changes)


def study_names() -> list[str]:
    return sorted(path.stem for path in OVERLAYS.glob("*.yaml"))


def with_protocol(study: Study, path: Path) -> Study:
    """The study with the protocol of a file in its own's place."""
    try:
        protocol = Protocol.model_validate(load_yaml(path))
        return Study.model_validate(study.model_dump(by_alias=True) | {"protocol": protocol.model_dump()})
    except ValidationError as error:
        raise SpikeHTRError(f"{path}: {_first_fault(error)}") from None


def load_study(name: str) -> Study:
    """One of the studies here by name, or an overlay of your own by the path of its file."""
    path = OVERLAYS / f"{name}.yaml"
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
    elif name not in study_names():
        near = did_you_mean(name, study_names())
        raise SpikeHTRError(f"no study called {name!r}{near} (there are: {', '.join(study_names())})")
    try:
        return Study.model_validate({"name": path.stem, **load_yaml(path)})
    except ValidationError as error:
        raise SpikeHTRError(f"{path}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return f"{where + ': ' if where else ''}{said}"
