"""Is a file the model it was made from? Both read the same lines: texts, error rates, speed.

The model is read by `model/` itself, the reference, not by a faster reader; and a spiking one once more in double
precision, which says how many texts hang on a last digit (`spikehtr.evaluation.agreement`).
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spikehtr.data.batching import Lines, to_batch
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.evaluation.intervals import paired_bootstrap
from spikehtr.evaluation.predict import predict
from spikehtr.evaluation.rate_tables import interval_note, percent
from spikehtr.evaluation.rates import character_edits, finite, total
from spikehtr.evaluation.summary import clusters_of, resampling
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.network import Network
from spikehtr.model.watching import watch
from spikehtr.readers import Reader
from spikehtr.readers.torch import DoubleReader, TorchReader
from spikehtr.recognizer import Recognizer

_ALONE = 12  # lines that are timed one by one
_SHOWN = 5  # differing lines that a terminal gets; JSON has them all


def compare(
    model: Recognizer,
    file: Recognizer,
    lines: Lines,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
    double: bool = False,
) -> dict[str, Any]:
    """Everything about the two on these lines, ready for JSON. Texts are compared as error rates compare them.

    `double`: the file computes in double precision, so the model does too, and no text may differ.
    """
    ours_reads = DoubleReader(model.net) if double else TorchReader(model.net)
    readers: list[Reader] = [ours_reads, TorchReader(file.net)]
    if fires(model.net) and not double:
        readers.append(DoubleReader(model.net))
    seconds, read = [], []
    for number, reader in enumerate(readers):
        before = number * len(lines)
        ahead = (lambda done, before=before: progress(before + done)) if progress else None
        start = time.perf_counter()
        read.append(predict(file.net if number == 1 else model.net, lines, batch_size, progress=ahead, reader=reader))
        seconds.append(time.perf_counter() - start)
    ours, theirs, *again = read
    edits = [[character_edits(p.reference, p.text) for p in predictions] for predictions in read]
    result = paired_bootstrap(edits[0], edits[1], clusters_of(ours), names=("model", "file"))
    different = [
        {"id": a.id, "reference": a.reference, "model": a.text, "file": b.text}
        for a, b in zip(ours, theirs, strict=True)
        if a.text != b.text
    ]
    rounding = sum(a.text != b.text for a, b in zip(ours, again[0], strict=True)) if again else None
    return {
        "lines": len(lines),
        "identical": len(lines) - len(different),
        "identical_in_double": None if rounding is None else len(lines) - rounding,
        "too_different": too_different(len(different), rounding),
        "different": different,
        "confidence_difference": max(abs(a.confidence - b.confidence) for a, b in zip(ours, theirs, strict=True)),
        "cer": {"model": finite(total(edits[0]).rate), "file": finite(total(edits[1]).rate)},
        "cer_difference": finite(result.difference),
        "verdict": result.verdict,
        **resampling(ours),
        "batch_size": batch_size,
        "threads": torch.get_num_threads(),
        "lines_per_second": {"model": len(lines) / seconds[0], "file": len(lines) / seconds[1]},
        "milliseconds_alone": {
            name: _alone(reader, lines) for name, reader in zip(("model", "file"), readers[:2], strict=True)
        },
    }


def fires(net: Network) -> bool:
    """Whether a network has neurons, so that a last digit can change its text."""
    return any(isinstance(module, MultiStepLIF) for module in net.modules())


def too_different(file: int, rounding: int | None) -> bool:
    """Whether a file's texts differ in more lines than it can help: in any; or, for a network that fires, in more than
    rounding changes, by two standard deviations of the difference of two such counts."""
    return file > 0 if rounding is None else file > rounding + 2 * math.sqrt(file + rounding)


@torch.no_grad()
def compare_spikes(
    model: Recognizer, path: Path, lines: Lines, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Every spike of the network against its simulation from a NIR file, in float64; lines cut to whole tokens."""
    from spikehtr.export.simulate import Simulation

    simulation, net = Simulation(path), copy.deepcopy(model.net).double()
    fired: dict[str, Tensor] = {}

    def hear(name: str, _: nn.Module, __: Tensor, spikes: Tensor) -> None:
        fired[name] = spikes[:, 0]

    counts, differing = Counter[str](), Counter[str]()
    for index in range(len(lines)):
        pixels = lines[index].pixels
        image = torch.from_numpy(pixels[:, : len(pixels[0]) // net.stride * net.stride].copy())[None].double() / 255
        logits, spikes = simulation(image)
        with watch(net, hear, MultiStepLIF):
            out = net(image[None])
        for name, theirs in spikes.items():
            same = theirs.shape == fired[name].shape
            wrong = int((theirs != fired[name]).sum()) if same else fired[name].numel()
            differing[name] += wrong
            counts.update(values=fired[name].numel(), spikes=int(fired[name].sum()), different=wrong)
        texts = [
            decode_greedy(x, torch.tensor([x.shape[1]]), model.charset)[0].text for x in (out.logits, logits[None])
        ]
        counts["same_text"] += texts[0] == texts[1]
        if progress:
            progress(index + 1)
    assert spikes.keys() == fired.keys()
    wrong_ones = {name: count for name, count in differing.items() if count}
    return {"lines": len(lines), "neurons": len(fired), **counts, "different_in": wrong_ones}


@torch.no_grad()
def _alone(reader: Reader, lines: Lines) -> float:
    """Milliseconds for one line by itself, from pixels to logits: the median over a few, each read once before."""
    times = []
    for index in range(min(_ALONE, len(lines))):
        images, widths = to_batch([lines[index].pixels])
        reader(images, widths)
        start = time.perf_counter()
        reader(images, widths)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def comparison_lines(result: dict[str, Any]) -> Iterator[str]:
    """What a terminal shows of `compare`."""
    speed, alone = result["lines_per_second"], result["milliseconds_alone"]
    yield (
        f"same text in {result['identical']} of {result['lines']} lines; confidences differ by "
        f"{result['confidence_difference']:.1e} at most"
    )
    if result["identical_in_double"] is not None:
        stays = result["identical_in_double"]
        yield f"in double precision the model's own text stays the same in {stays} of {result['lines']} lines"
    for line in result["different"][:_SHOWN]:
        yield f"  {line['id']}: model {line['model']!r}, file {line['file']!r}"
    if len(result["different"]) > _SHOWN:
        yield f"  and {len(result['different']) - _SHOWN} more (--json lists them)"
    yield f"CER {percent(result['cer']['model'])} model, {percent(result['cer']['file'])} file. {result['verdict']}"
    yield interval_note(result)
    yield (
        f"{speed['model']:.1f} lines/s model, {speed['file']:.1f} file, in batches of {result['batch_size']}; "
        f"a line alone {alone['model']:.0f} ms model, {alone['file']:.0f} ms file; threads: {result['threads']}"
    )
