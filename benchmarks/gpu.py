"""The steps whose speed we publish, in one run: what `spikehtr bench` times, at the sizes of the tables.

python benchmarks/gpu.py                       # tiny T=1 and T=2, trained at 64 lines and read at 256; base T=2
python benchmarks/gpu.py --all --json all.json # all four tiers
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from spikehtr.config import PRESETS, Config
from spikehtr.profiling.steps import Case
from spikehtr.profiling.timing import benchmark
from spikehtr.profiling.timing_table import save, show


def cases(every_tier: bool, train_lines: int, read_lines: int) -> list[Case]:
    """tiny at both T, trained and read; base at T = 2, trained; or all tiers at both."""
    wanted = [("tiny", steps, train) for steps in (1, 2) for train in (True, False)] + [("base", 2, True)]
    if every_tier:
        wanted = [(tier, steps, train) for tier in PRESETS for steps in (1, 2) for train in (True, False)]
    return [
        Case(
            f"{tier} T={steps}",
            Config.preset(tier).with_overrides({"model.timesteps": steps}),
            train,
            train_lines if train else read_lines,
        )
        for tier, steps, train in wanted
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--all", action="store_true", help="all four tiers, T = 1 and 2, trained and read")
    parser.add_argument("--train-lines", type=int, default=64, help="lines in a training step")
    parser.add_argument("--read-lines", type=int, default=256, help="lines in a forward pass")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="list the ten most expensive kernels of each step")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    wanted = cases(options.all, options.train_lines, options.read_lines)
    device = torch.device(options.device)
    show(benchmark(wanted, device, options.rounds, options.profile, lambda report: save(report, options.json)))


if __name__ == "__main__":
    main()
