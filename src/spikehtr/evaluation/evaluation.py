"""An evaluation from a network and lines to all its numbers; `writing.write_evaluation` puts it into a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.data.batching import Lines
from spikehtr.data.store import LineStore
from spikehtr.decoding.confidence import Sureness, sureness
from spikehtr.decoding.decoders import BeamDecoder
from spikehtr.decoding.greedy import Decoded
from spikehtr.evaluation.calibration import GRID, calibration_summary, fit_temperature, judge_characters
from spikehtr.evaluation.predict import Prediction, predict
from spikehtr.evaluation.rates import character_edits, finite
from spikehtr.evaluation.summary import summarise
from spikehtr.model.network import Network
from spikehtr.readers import Reader


@dataclass(frozen=True)
class Evaluation:
    """Lines as they were read, and what follows from them."""

    predictions: list[Prediction]
    stores: list[LineStore]  # of each prediction
    about: dict[str, Any]  # model, data, split, device, speed: whatever belongs to the numbers, ready for JSON

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`about` and `summarise`: every number, ready for JSON, without the single lines."""
        return self.about | summarise(self.predictions) | self._calibration()

    def _calibration(self) -> dict[str, Any]:
        read = with_sureness(self.predictions)
        return {"calibration": calibration_summary(read, self.about["temperature"])} if read else {}

    def picture(self, index: int) -> NDArray[np.uint8]:
        """A line's pixels [height, width], as its store has them."""
        return self.stores[index].line(self.predictions[index].row)

    def keep(self, indices: Sequence[int]) -> Evaluation:
        """The same for some of the lines, in this order."""
        return replace(
            self, predictions=[self.predictions[i] for i in indices], stores=[self.stores[i] for i in indices]
        )


def evaluate_lines(
    net: Network,
    parts: Sequence[Lines],
    names: Sequence[str] | None = None,
    *,
    batch_size: int = 16,
    workers: int = 0,
    temperature: float = 1.0,
    fit: bool = False,
    about: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    reader: Reader | None = None,
    decoder: BeamDecoder | None = None,
) -> Evaluation:
    """Read all lines of `parts`, on the network's device, by `reader` if it is not to be as `predict` has it.

    A line's set is the source its store was compiled from; `names`, one a part, name the sets of parts that have one
    source. Names are shortened to the last part of their paths. The speed counts reading lines from the store, the
    network and decoding, not how sure it is. `about` is what the caller knows: model, data, split.

    Confidences are those at `temperature`, as the model's file notes it; `fit` finds the best one for these lines and
    takes that, if there are errors enough to tell (`about["fitted"]` says so). With a `decoder` they are its own.
    """
    predictions: list[Prediction] = []
    stores: list[LineStore] = []
    unknown: list[list[str]] = []  # of each line that holds any
    temperatures = GRID if fit else (1.0, temperature)
    judging = 0.0  # seconds, not of reading

    def judge(logits: Tensor, lengths: Tensor, decoded: Sequence[Decoded]) -> Sequence[Sureness]:
        nonlocal judging
        began = time.perf_counter()
        sure = decoder.sureness(decoded) if decoder else sureness(logits, lengths, decoded, temperatures)
        judging += time.perf_counter() - began
        return sure

    start = time.perf_counter()
    for number, lines in enumerate(parts):
        before = len(predictions)
        ahead = (lambda done, before=before: progress(before + done)) if progress else None
        found = predict(net, lines, batch_size, workers, ahead, judge, reader, decoder)
        predictions += found if names is None else named(found, lines.store, names[number])
        unknown += [missing for p in found if (missing := lines.charset.unknown(p.reference))]
        stores += [lines.store] * len(found)
    seconds = time.perf_counter() - start - judging
    fitted: dict[str, Any] = {}
    if fit:
        result = fit_temperature(judge_characters(with_sureness(predictions)))
        temperature, fitted = result.temperature, {"fitted": asdict(result)}
    columns = [0, 1] if decoder else [temperatures.index(1.0), temperatures.index(temperature)]
    predictions = with_short_sets([_at(p, columns) for p in predictions])
    measured = {
        "device": str(next(net.parameters()).device),
        "seconds": seconds,
        "lines_per_second": len(predictions) / seconds if predictions else 0.0,
        "temperature": temperature,
        **fitted,
        "unknown_characters": {"characters": sorted(set().union(*unknown)), "lines": len(unknown)},
    }
    return Evaluation(predictions, stores, (about or {}) | measured)


def named(predictions: Sequence[Prediction], store: LineStore, name: str) -> list[Prediction]:
    """A store's lines under the name that it goes by; one of several sources keeps theirs."""
    return [p._replace(set=name) if len(store.sources) == 1 else p for p in predictions]


def short_names(names: Sequence[str]) -> dict[str, str]:
    """A short name for each: the last part of its path, or the whole where two would be called the same."""
    last = {name: Path(name).name or name for name in dict.fromkeys(names)}
    seen = list(last.values())
    return {name: short if seen.count(short) == 1 else name for name, short in last.items()}


def with_short_sets(predictions: Sequence[Prediction]) -> list[Prediction]:
    short = short_names([p.set for p in predictions])
    return [p._replace(set=short[p.set]) for p in predictions]


def with_sureness(predictions: Sequence[Prediction]) -> list[tuple[str, Sureness]]:
    """References with what the model was how sure of, of the lines that know it."""
    return [(p.reference, p.sure) for p in predictions if p.sure is not None]


def _at(prediction: Prediction, columns: Sequence[int]) -> Prediction:
    """With two temperatures of all that were read at: 1 and the one that counts."""
    assert prediction.sure is not None
    text, characters, line = prediction.sure
    sure = Sureness(text, characters[:, columns], line[columns])
    return prediction._replace(sure=sure, confidence=float(sure.line[1]))


def line_facts(prediction: Prediction) -> dict[str, Any]:
    """One line for JSON and tables."""
    edits = character_edits(prediction.reference, prediction.text)
    facts = prediction._asdict()
    del facts["row"], facts["sure"]
    facts |= {name: finite(facts[name]) for name in ("confidence", "keep_ratio")}
    return facts | {"errors": edits.errors, "length": edits.length, "rate": finite(edits.rate)}


def worst_first(predictions: Sequence[Prediction]) -> list[int]:
    """The places of the lines with an error, highest CER first; of equals the one with more errors, then the one
    the model was surer of."""
    edits = [character_edits(p.reference, p.text) for p in predictions]
    wrong = [i for i, e in enumerate(edits) if e.errors]
    return sorted(wrong, key=lambda i: (-edits[i].rate, -edits[i].errors, -(finite(predictions[i].confidence) or 0.0)))
