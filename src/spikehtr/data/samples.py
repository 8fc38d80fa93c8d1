"""What every reader yields, and where it says what it could not use."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from spikehtr.text import normalise

Split = Literal["train", "validation", "test"]
Point = tuple[float, float]
Severity = Literal["error", "warning"]
NO_TEXT = "no text"  # the kind of problem that a line without a transcript is
NOTHING_FOUND = "nothing found"  # of a source in a named format
MACHINE = "machine-read"  # a line as a model read it, which no person changed or confirmed
CORRECTED_ELSEWHERE = "corrected elsewhere"  # such a line, whose words or region a person changed, but not its text

_HOW_PEOPLE_NAME_SPLITS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training", "trainset"),
    "validation": ("validation", "val", "valid", "validationset", "validationset1", "validationset2", "dev", "eval"),
    "test": ("test", "testset", "testing"),
}
SPLIT_NAMES = {name: split for split, names in _HOW_PEOPLE_NAME_SPLITS.items() for name in names}


def split_named(name: str) -> Split | None:
    """The split that a file or folder name stands for, if any: `train.ln`, `Validation`, `testset.txt`."""
    return SPLIT_NAMES.get(name.lower().split(".")[0].split("-")[0])


def printable(name: object) -> str:
    """A name that can be written anywhere: what is not UTF-8 in a file's name is spelt out."""
    text = str(name)
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of handwriting and its transcript, not yet decoded, cropped or normalised."""

    id: str  # unique within its source
    text: str  # as the source has it
    image: Path | bytes  # an image file, or an encoded image
    origin: str  # where it stands, for messages: "page_3.xml, line r1l4"
    split: Split | None = None
    document: str | None = None
    page: str | None = None
    polygon: tuple[Point, ...] | None = None  # what to cut out of the image, in its pixels
    box: tuple[float, float, float, float] | None = None  # left, top, right, bottom; used where there is no polygon
    baseline: tuple[Point, ...] | None = None
    frame: int | None = None  # which page of the image file, from 1; None where that has but one
    source: str | None = None  # which of a store's sources it is of, where that has several
    straightened: bool = False  # whether it was made level before
    machine: bool = False  # whether the text is a model's, and no person changed or confirmed it

    def named_printably(self) -> Sample:
        if self.id.isascii() and self.origin.isascii():  # document and page are parts of them, or printable anyway
            return self
        document, page = (None if name is None else printable(name) for name in (self.document, self.page))
        return replace(self, id=printable(self.id), origin=printable(self.origin), document=document, page=page)


def machine_lines_remark(left_out: int, used: int, option: str = "--machine-lines") -> str:
    """What is said where lines that a model read are left out, and which `option` takes them."""
    if used == 0:
        which = (
            f"all {left_out} lines are as the model read them" if left_out > 1 else "the line is as the model read it"
        )
        return (
            f"{which}, so that none is left: correct some, or confirm those that are right "
            "(docs/how-to/correct-and-fine-tune.md says how), or take them as they are with "
            f"{option} (`train`, `data compile`)"
        )
    are = "are as the model read them" if left_out > 1 else "is as the model read it"
    return f"{left_out} of {left_out + used} lines {are}: left out; {option} takes them"


def corrected_elsewhere_remark(number: int, sources: Sequence[str]) -> str:
    """What is said of lines of which only the words, or the text of their region, were corrected."""
    which = "1 line was corrected in its" if number == 1 else f"{number} lines were corrected in their"
    return (
        f"{which} words or region, but not in the line's own text, which is what counts: correct that, too; "
        f"`spikehtr data check --all {shlex.join(sources)}` lists them"
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was left out, or used otherwise than asked."""

    kind: str  # a short class, to count by: "no text", "image missing"
    where: str  # file, and line id where there is one
    message: str  # what is wrong
    remedy: str  # what to do
    severity: Severity = "error"


@dataclass
class ImportReport:
    """What a reader or a check found. Counts all, remembers the first `keep` of each kind."""

    keep: int = 1000
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # (severity, kind) -> how many
    used: int = 0  # samples that were yielded

    def add(self, kind: str, where: object, message: str, remedy: str, severity: Severity = "error") -> None:
        self.counts[severity, kind] += 1
        if self.counts[severity, kind] <= self.keep:
            self.problems.append(Problem(kind, printable(where), printable(message), remedy, severity))

    def count(self, severity: Severity) -> int:
        return sum(number for (level, _), number in self.counts.items() if level == severity)

    @property
    def left_out(self) -> int:
        """Lines or files that are not used: all errors, and lines without a transcript, which is no error in itself."""
        return self.count("error") + self.counts["warning", NO_TEXT]

    @property
    def machine_read(self) -> int:
        """Lines that are not used because their text is a model's."""
        return self.counts["warning", MACHINE]

    def watch(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Pass samples on, counting them."""
        for sample in samples:
            self.used += 1
            yield sample

    def to_dict(self) -> dict[str, Any]:
        counts = [{"severity": s, "kind": k, "count": n} for (s, k), n in sorted(self.counts.items())]
        return {"used": self.used, "counts": counts, "problems": [asdict(p) for p in self.problems]}


def has_text(text: str, where: object, report: ImportReport) -> bool:
    """Whether anything is left of a transcript once it is normalised; if not, that is reported."""
    if normalise(text):
        return True
    message = "the line has no transcript" if not text.strip() else f"nothing is left of {text[:40]!r} when normalised"
    report.add(NO_TEXT, where, message, "transcribe the line, or take it out of the data", "warning")
    return False
