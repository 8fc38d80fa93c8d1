"""Looking a data set over before anything is trained on it: every line that will hurt, with where it is and what to do.

Errors must be mended: the line cannot be used, cannot be learned, or leaks from one split into another. Warnings are
worth a look.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.config import Config
from spikehtr.data.formats import read
from spikehtr.data.geometry import scale_line
from spikehtr.data.images import ImageError, line_image
from spikehtr.data.samples import ImportReport, Sample, printable
from spikehtr.text import normalise, show

_CHUNK = 512
_LEAST_ASPECT, _MOST_ASPECT = 0.5, 60.0  # width over height of a plausible line
_NEAR = 3  # bits of 64 in which the outlines of near-duplicates may differ


@dataclass(frozen=True, slots=True)
class Facts:
    """What is kept of a line once its pixels are gone."""

    origin: str
    split: str
    text: str  # normalised
    width: int  # at the network's height
    aspect: float  # of the image as it came
    digest: bytes  # of the pixels
    outline: int  # 64 bits that like-looking lines share
    place: tuple[int, str | None]  # what it was read from


@dataclass
class SplitSummary:
    lines: int = 0
    characters: int = 0
    charset: Counter[str] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


@dataclass
class DataCheck:
    """The outcome: numbers for each split, and the problems."""

    sources: list[str]
    splits: dict[str, SplitSummary]
    report: ImportReport
    stops: str | None = None  # why `train` would stop at these data, in its words

    @property
    def ok(self) -> bool:
        return self.report.count("error") == 0 and self.stops is None

    def to_dict(self) -> dict[str, Any]:
        splits = {}
        for name, s in self.splits.items():
            splits[name] = {
                "lines": s.lines,
                "characters": s.characters,
                "charset": "".join(sorted(s.charset)),
                "width": _spread(s.widths),
                "length": _spread(s.lengths),
            }
        about = {"sources": self.sources, "ok": self.ok, "stops_training": self.stops}
        return {**about, "splits": splits, **self.report.to_dict()}


def check_data(
    specs: Sequence[str | Path],
    config: Config,
    progress: Callable[[int], None] | None = None,
    deep: bool = True,
    machine_lines: bool = False,
) -> DataCheck:
    """Read every line of `specs` and look for trouble; without `deep`, only count what is there.

    Lines whose text is a model's are left out and counted, unless `machine_lines`.
    """
    result = DataCheck([printable(spec) for spec in specs], {}, ImportReport())
    facts: list[Facts] = []
    done = 0
    for chunk in _examine_all(specs, config, result.report, machine_lines):
        for found in chunk:
            done += 1
            if found is None:
                continue
            _count(result.splits.setdefault(found.split, SplitSummary()), found)
            if deep:
                _check_line(found, config, result.report)
                facts.append(found)
        if progress:
            progress(done)
    if deep:
        _check_leaks(_as_trained(facts), result.report)
    return result


def _examine_all(
    specs: Sequence[str | Path], config: Config, report: ImportReport, machine_lines: bool
) -> Iterator[list[Facts | None]]:
    samples = ((number, sample) for number, spec in enumerate(specs) for sample in read(spec, report, machine_lines))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while chunk := list(islice(samples, _CHUNK)):
            found = pool.map(lambda one: _examine(one[0], one[1], config), chunk)
            yield [_note(sample, facts, report) for (_, sample), facts in zip(chunk, found, strict=True)]


def _examine(number: int, sample: Sample, config: Config) -> Facts | ImageError:
    try:
        image = line_image(sample)
    except ImageError as error:
        return error
    line = scale_line(image, config.model.height, config.data.straighten and not sample.straightened)
    digest = hashlib.blake2b(line.tobytes(), digest_size=12).digest()
    aspect = image.width / image.height
    text, split = normalise(sample.text), sample.split or "none"
    place = (number, sample.source)
    return Facts(sample.origin, split, text, line.shape[1], aspect, digest, _outline(line), place)


def _outline(line: NDArray[np.uint8]) -> int:
    """A difference hash: whether each of 16 x 4 cells is darker than the cell to its right."""
    small = np.asarray(Image.fromarray(line).resize((17, 4), Image.Resampling.BOX)).astype(np.int16)
    return int("".join("1" if bit else "0" for bit in (small[:, 1:] > small[:, :-1]).flatten()), 2)


def _note(sample: Sample, facts: Facts | ImageError, report: ImportReport) -> Facts | None:
    """Report what one sample alone shows; None where it cannot be used."""
    _check_unicode(sample, report)
    if isinstance(facts, ImageError):
        report.add("unreadable image", sample.origin, str(facts), "replace the image, or take the line out")
        return None
    return facts


def _check_unicode(sample: Sample, report: ImportReport) -> None:
    odd = sorted({c for c in sample.text if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn", "Cs") and c != "\t"})
    if odd:
        message = f"control, private or unassigned characters: {show(odd)}"
        report.add("odd characters", sample.origin, message, "delete or replace them", "warning")
    if sample.text != unicodedata.normalize("NFC", sample.text):
        message = "letters and accents are stored apart (not NFC); normalisation joins them"
        report.add("decomposed text", sample.origin, message, "none needed; save as NFC to be consistent", "warning")
    other = {c: normalise(c) for c in sorted(set(sample.text)) if not c.isspace() and normalise(c) != c}
    if other:
        some = ", ".join(f"{show([c])} as {become!r}" for c, become in other.items())
        report.add(
            "respelled", sample.origin, f"learned and scored: {some}", "none needed, if that is wanted", "warning"
        )


def _count(summary: SplitSummary, facts: Facts) -> None:
    summary.lines += 1
    summary.characters += len(facts.text)
    summary.charset.update(facts.text)
    summary.widths.append(facts.width)
    summary.lengths.append(len(facts.text))


def frames_needed(text: str) -> int:
    """CTC frames a text takes at least: one a character, one more between equal neighbours."""
    return len(text) + sum(a == b for a, b in pairwise(text))


def _check_line(facts: Facts, config: Config, report: ImportReport) -> None:
    need = frames_needed(facts.text)
    width = min(facts.width, config.data.max_width)
    stride = config.model.character_width  # pixels a frame
    squeezed = int(width * (1 - config.data.augment.stretch))
    detail = f"{len(facts.text)} characters need {need} frames"
    if -(-width // stride) < need:
        remedy = "check that text and image belong together"
        if facts.width > width:
            remedy += f", or raise data.max_width above {stride * need} (the line is {facts.width} px wide)"
        report.add("too narrow", facts.origin, f"{detail}, a width of {width} px gives {-(-width // stride)}", remedy)
    elif -(-squeezed // stride) < need:
        message = f"{detail}; data.augment.stretch could leave {-(-squeezed // stride)}"
        report.add("narrow when squeezed", facts.origin, message, "none needed: squeezing stops there", "warning")
    if not _LEAST_ASPECT <= facts.aspect <= _MOST_ASPECT:
        message = f"{facts.aspect:.2f} times as wide as high"
        report.add("odd shape", facts.origin, message, "look whether it is one whole line", "warning")


def _as_trained(facts: list[Facts]) -> list[Facts]:
    """Where some lines are marked as training, sets in which nothing is marked are trained on, too."""
    if all(line.split != "train" for line in facts):
        return facts
    marked = {line.place for line in facts if line.split != "none"}
    return [line if line.place in marked else replace(line, split="train") for line in facts]


def _check_leaks(facts: list[Facts], report: ImportReport) -> None:
    by_pixels: dict[bytes, list[Facts]] = defaultdict(list)
    by_text: dict[str, list[Facts]] = defaultdict(list)
    for line in facts:
        by_pixels[line.digest].append(line)
        by_text[line.text].append(line)
    for group in by_pixels.values():
        first = group[0]
        for other in group[1:]:
            if other.split != first.split:
                message = f"the same image as {first.origin} in {first.split}, this one in {other.split}"
                report.add("leak", other.origin, message, "take one of them out")
            else:
                message = f"the same image as {first.origin}"
                report.add("duplicate", other.origin, message, "take one of them out", "warning")
    for group in by_text.values():
        for a, b in _near_pairs(group):
            message = f"same text and much the same image as {a.origin} in {a.split}, this one in {b.split}"
            report.add("near leak", b.origin, message, "look at both; take one out if they are one", "warning")


def _near_pairs(group: list[Facts]) -> Iterator[tuple[Facts, Facts]]:
    """Pairs across splits that look alike; each line is named with one of its likes only."""
    ordered = sorted(group, key=lambda line: line.width)  # likes have like widths, so a look back can stop early
    for place, b in enumerate(ordered):
        for a in reversed(ordered[:place]):
            if a.width < 0.98 * b.width:
                break
            if a.split != b.split and a.digest != b.digest and (a.outline ^ b.outline).bit_count() <= _NEAR:
                yield a, b
                break


def _spread(values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    low, median, high = np.percentile(values, [0, 50, 100])
    return {"min": float(low), "median": float(median), "max": float(high), "mean": float(np.mean(values))}


def histogram_bars(values: list[int], bins: int = 16) -> str:
    """A histogram in one line of text."""
    counts, _ = np.histogram(values, bins=bins)
    return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * int(count) // max(1, int(counts.max())))] for count in counts)
