"""What became of a bulk run: counts, errors by kind, seconds by stage, and the pages to look at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

_WORST = 20
_COLUMNS = ["id", "lines", "characters", "expected_error", "error_kind", "error"]
_STAGES = ("seconds_open", "seconds_read", "seconds_write")


@dataclass
class BulkReport:
    pages: int = 0  # that were read
    lines: int = 0
    characters: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by kind: location, fetch, page, crash, read, write
    examples: dict[str, list[str]] = field(default_factory=dict)  # of each kind, a few pages and why
    stage_seconds: dict[str, float] = field(default_factory=dict)  # of one core or reader, over all pages
    expected_error: float | None = None  # of the characters of pages of which it can be told; None: of no page
    worst: list[tuple[str, float]] = field(default_factory=list)  # pages, and what can be told of them
    missing: int = 0  # pages of the list without a row
    twice: int = 0  # rows beyond the first of a page
    seconds: float = 0.0  # of this call

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        failed = sum(self.errors.values())
        parts = [f"{self.pages} pages, {self.lines} lines read; {failed} pages could not be done"]
        parts += [f"  {kind}: {count}, such as {self.examples[kind][0]}" for kind, count in self.errors.items()]
        if self.expected_error is not None:
            parts.append(f"expected character error: {self.expected_error:.1%}")
        each = max(1, self.pages + failed)
        times = ", ".join(f"{name} {seconds / each:.2f} s" for name, seconds in self.stage_seconds.items())
        parts.append(f"seconds a page: {times}")
        if self.missing:
            parts.append(f"{self.missing} pages are still to be done: the same command goes on")
        return "\n".join(parts)


def result_files(folder: Path) -> list[Path]:
    """The files of results; those that were never finished have other names."""
    return sorted(file for file in folder.glob("*.parquet") if ".pending." not in file.name)


def result_rows(folder: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    """All rows, each page once."""
    seen: set[str] = set()
    for file in result_files(folder):
        for batch in pq.ParquetFile(file).iter_batches(columns=[*dict.fromkeys(["id", *columns])]):
            for row in batch.to_pylist():
                if row["id"] not in seen:
                    seen.add(row["id"])
                    yield row


def summarise(folder: Path, pages: Path, seconds: float = 0.0) -> BulkReport:
    report = BulkReport(seconds=seconds)
    report.stage_seconds = {name.removeprefix("seconds_"): 0.0 for name in _STAGES}
    kinds: Counter[str] = Counter()
    wrong, judged = 0.0, 0  # characters expected to be wrong, of those of pages of which that can be told
    worst: list[tuple[float, str]] = []
    for row in result_rows(folder, [*_COLUMNS, *_STAGES]):
        for name in _STAGES:
            report.stage_seconds[name.removeprefix("seconds_")] += row[name]
        if row["error_kind"]:
            kinds[row["error_kind"]] += 1
            examples = report.examples.setdefault(row["error_kind"], [])
            if len(examples) < 5:
                examples.append(f"{row['id']}: {row['error']}")
            continue
        report.pages += 1
        report.lines += row["lines"]
        report.characters += row["characters"]
        if (expected := row["expected_error"]) is not None:
            wrong, judged = wrong + expected * row["characters"], judged + row["characters"]
            worst = sorted([*worst, (-expected, row["id"])])[:_WORST]
    report.errors = dict(kinds.most_common())
    report.worst = [(name, round(-error, 4)) for error, name in worst]
    report.expected_error = wrong / judged if judged else None
    rows = sum(pq.read_metadata(file).num_rows for file in result_files(folder))
    done = report.pages + sum(kinds.values())
    report.twice = rows - done
    report.missing = int(np.maximum(0, pq.read_metadata(pages).num_rows - done))
    return report
