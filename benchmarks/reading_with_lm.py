"""How much of the greedy rate is left when a language model takes part: the same lines both ways, in turns.

python benchmarks/reading_with_lm.py --data LINES                    # on a GPU where there is one
python benchmarks/reading_with_lm.py --data LINES --device cpu --lines 64 --batch-size 16 --threads 2

LINES is handwriting data of any format (a Parquet file, say), of which the test lines are taken, again and again until
there are `--lines` of them. Prints lines a second, the median of the rounds: of the network alone, to logits; to texts
with spans, confidences and alternatives; and of whole calls, from fitted images to results. Then where the host's time
goes. Below `--least` (0.6 of the greedy rate; 0.8 on a CPU) the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor

from spikehtr.cli.options import pick_device
from spikehtr.data.batching import Lines, pad_right
from spikehtr.data.compiling import open_lines
from spikehtr.data.geometry import FittedLine
from spikehtr.decoding.beam import Candidates
from spikehtr.decoding.beam_native import search_native
from spikehtr.decoding.decoders import BeamDecoder, Decoder, GreedyDecoder, decoder_for
from spikehtr.evaluation.agreement import fitted_lines
from spikehtr.profiling.roofline import synchronize
from spikehtr.readers import LineReader, Reader, make_reader, read_batches
from spikehtr.weights import Loaded, load_model

Batches = list[tuple[int, Tensor, Tensor]]


def fitted(loaded: Loaded, data: str, count: int) -> list[FittedLine]:
    """The first test lines, repeated until there are `count`."""
    c = loaded.config
    store = open_lines([data], c.model.height, c.data.max_width, straighten=c.data.straighten)
    lines = Lines(store, store.rows("test")[:count], loaded.charset, c.data.max_width, labelled=False)
    found, _ = fitted_lines(lines)
    return (found * -(-count // len(found)))[:count]


def to_texts(reader: Reader, batches: Batches, decoder: Decoder) -> None:
    for _ in read_batches(reader, iter(batches), decoder):
        pass


def host_times(reader: Reader, batches: Batches, decoder: BeamDecoder, device: torch.device) -> dict[str, float]:
    """Microseconds a line of each step of decoding, one after the other."""
    spent = dict.fromkeys(("candidates, on the device", "search in C, all threads", "texts and confidences"), 0.0)
    for _, images, widths in batches:
        out = reader(images, widths)
        synchronize(device)
        times = [time.perf_counter()]
        found = Candidates.of(out.logits / decoder.temperature, out.lengths, decoder.options)
        synchronize(device)
        times.append(time.perf_counter())
        host = Candidates(*(part.cpu() for part in found))
        searched = search_native(host, decoder.scorer, decoder.options, decoder.calibration)
        times.append(time.perf_counter())
        decoder.decoded_native(searched)
        times.append(time.perf_counter())
        for name, begin, end in zip(spent, times, times[1:], strict=False):
            spent[name] += end - begin
    count = sum(len(widths) for _, _, widths in batches)
    return {name: seconds / count * 1e6 for name, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--lm", default="bundled")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lines", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="of the host; by default all")
    parser.add_argument("--least", type=float)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(pick_device(options.device))
    loaded = load_model(options.model)
    net = loaded.net.to(device).eval()
    reader = make_reader(net)
    decoders: dict[str, Decoder] = {
        "greedy": GreedyDecoder(loaded.charset, loaded.temperature),
        "beam": decoder_for(loaded.charset, loaded.temperature, options.lm),
    }
    lines = sorted(fitted(loaded, options.data, options.lines), key=lambda line: line.pixels.shape[1])
    sizes = range(0, len(lines), options.batch_size)
    batches: Batches = [(n, *pad_right([line.pixels for line in lines[n : n + options.batch_size]])) for n in sizes]
    ways: dict[tuple[str, str], Callable[[], object]] = {
        ("logits", "network"): lambda: [reader(images, widths) for _, images, widths in batches]
    }
    for name, decoder in decoders.items():
        whole = LineReader(net, loaded.config, loaded.charset, loaded.temperature, reader=reader, decoder=decoder)
        ways["texts", name] = partial(to_texts, reader, batches, decoder)
        ways["whole calls", name] = partial(whole.read_lines, lines, options.batch_size)
    rates: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    for turn in range(options.rounds + 2):  # the first two compile and record
        for way, call in ways.items():
            synchronize(device)
            start = time.perf_counter()
            call()
            synchronize(device)
            if turn > 1:
                rates[way].append(len(lines) / (time.perf_counter() - start))
    rate = {way: median(found) for way, found in rates.items()}
    print(
        f"{device}, {torch.get_num_threads()} threads, {len(lines)} lines of {options.data} in batches of "
        f"{options.batch_size}, {reader.precision}, median of {options.rounds} rounds, lines/s"
    )
    print(f"  to logits: {rate['logits', 'network']:.0f}")
    ratios = {kind: rate[kind, "beam"] / rate[kind, "greedy"] for kind in ("texts", "whole calls")}
    for kind, ratio in ratios.items():
        print(f"  {kind}: greedy {rate[kind, 'greedy']:.0f}, beam {rate[kind, 'beam']:.0f}, ratio {ratio:.2f}")
    beam = decoders["beam"]
    assert isinstance(beam, BeamDecoder)
    for name, spent in host_times(reader, batches, beam, device).items():
        print(f"  {name}: {spent:.0f} us a line")
    least = options.least or (0.8 if device.type == "cpu" else 0.6)
    if min(ratios.values()) < least:
        sys.exit(f"below {least} of the greedy rate")


if __name__ == "__main__":
    main()
