"""The steps whose speed we publish, in one run: what `spikehtr bench` times, at the sizes of the tables.

python benchmarks/gpu.py                       # tiny T=1 and T=2, trained at 64 lines and read at 256; base T=2 trained
python benchmarks/gpu.py --presets tiny,base,htr-vt,retsinas,kraken --timesteps 1,2 --rounds 3 --json all.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from spikehtr.evaluation.write_report import write_json
from spikehtr.profiling.bench_cases import listed, named_configs, numbers
from spikehtr.profiling.benchmark_steps import Case
from spikehtr.profiling.step_timing import TimingReport, benchmark, show


def cases(options: argparse.Namespace) -> list[Case]:
    """Every preset trained and read; with none named, tiny at both T, trained and read, and base at T = 2, trained."""
    steps = numbers([options.timesteps])
    named = [(name, config, (True, False)) for name, config in named_configs(listed([options.presets]), steps, [])]
    if not named:
        named = [(name, config, (True, False)) for name, config in named_configs(["tiny"], steps, [])]
        named += [(name, config, (True,)) for name, config in named_configs(["base"], [2], [])]
    sizes = {True: options.train_lines, False: options.read_lines}
    return [
        Case(name, config, train, sizes[train], config.data.max_width)
        for name, config, kinds in named
        for train in kinds
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--presets", default="", help="tiers and baselines, with commas between")
    parser.add_argument("--timesteps", default="1,2")
    parser.add_argument("--train-lines", type=int, default=64, help="lines in a training step")
    parser.add_argument("--read-lines", type=int, default=256, help="lines in a forward pass")
    parser.add_argument("--no-reference", action="store_true", help="time the fast path alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="list the ten most expensive kernels of each step")
    parser.add_argument("--json", type=Path, help="also write every figure to this file, after each step")
    options = parser.parse_args()

    def tell(report: TimingReport) -> None:
        if options.json:
            write_json(options.json, report.to_dict())

    report = benchmark(
        cases(options),
        torch.device(options.device),
        options.rounds,
        options.profile,
        tell,
        reference=not options.no_reference,
    )
    show(report)


if __name__ == "__main__":
    main()
