"""Reading the lines of a store with a network: one code path for validation, test and every report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.data.batching import Lines, load_batches, plan_epoch
from spikehtr.decoding.confidence import Sureness
from spikehtr.decoding.decoders import Decoder, GreedyDecoder
from spikehtr.decoding.greedy import Decoded
from spikehtr.model.network import Network
from spikehtr.readers import Reader, make_reader, read_batches
from spikehtr.text import normalise


class Prediction(NamedTuple):
    row: int  # of the store
    reference: str  # normalised
    text: str  # as the reference: `normalise` takes doubled and outer spaces away
    confidence: float  # nan where it is not known: another program's reading
    keep_ratio: float  # l_b / L0, the reduction ratio r of this line; nan likewise
    id: str = ""  # unique within its set
    set: str = ""  # the source it came from
    document: str | None = None
    sure: Sureness | None = None  # at the temperatures that were asked for


# Logits, lengths and what was decoded from them -> how sure each line is.
Judge = Callable[[Tensor, Tensor, Sequence[Decoded]], Sequence[Sureness]]


@torch.no_grad()
def predict(
    net: Network,
    lines: Lines,
    batch_size: int = 16,
    workers: int = 0,
    progress: Callable[[int], None] | None = None,
    judge: Judge | None = None,
    reader: Reader | None = None,
    decoder: Decoder | None = None,
) -> list[Prediction]:
    """What the network reads in each line, on its own device, in the order of `lines` (which need no labels).

    In the network's own precision, whatever the program around has set for speed: a figure must not hang on that.
    `progress` is called with the number of lines read so far. Confidences are the network's own; `judge` may add
    how sure each line is at other temperatures. `reader` runs the network in another way than by default,
    `decoder` makes text of its frames in another way than greedily.
    """
    was_training = net.training
    net.eval()
    reader = reader or make_reader(net, "fp32", recorded=False)
    found: dict[int, Prediction] = {}
    plan = plan_epoch(lines.widths, batch_size, seed=0, epoch=0, shuffle=False)
    loaded = ((batch.rows.tolist(), batch.images, batch.widths) for batch in load_batches(lines, plan, workers))
    for rows, out, _, decoded in read_batches(reader, loaded, decoder or GreedyDecoder(lines.charset)):
        sure = judge(out.logits, out.lengths, decoded) if judge else [None] * len(decoded)
        for row, line, ratio, by in zip(rows, decoded, out.keep_ratio.tolist(), sure, strict=True):
            record = lines.store.record(row)
            where = record["id"], record["source"], record["document"]
            texts = normalise(record["text"]), normalise(line.text)
            found[row] = Prediction(row, *texts, line.confidence, ratio, *where, by)
        if progress:
            progress(len(found))
    net.train(was_training)
    return [found[int(row)] for row in lines.rows]
