"""Which part of a recogniser makes the difference: parts of Spike-HTR and of the Retsinas CRNN exchanged, equal epochs.

    python benchmarks/parts.py DATA -o parts --epochs 40 --jobs 8            # all variants, side by side
    python benchmarks/parts.py DATA -o parts --epochs 40 --only fine,crnn    # some of them
    python benchmarks/parts.py DATA -o parts --table                         # what there is so far

Every variant is trained by the code behind `spikehtr train`, with the same epochs, lines, augmentation, optimiser and
schedule (the preset `fine`'s). A run that was stopped goes on where it was. The table has training loss beside
validation CER: a high loss means that a network cannot fit its lines, a low loss beside a high CER that it learned them
by heart.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from spikehtr import registry
from spikehtr.baselines.common import BLSTM
from spikehtr.baselines.retsinas import Retsinas
from spikehtr.config import Config, ModelConfig
from spikehtr.model.masking import valid_mask
from spikehtr.model.mixer import Mixer
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.training.checkpoint import has_checkpoint
from spikehtr.training.devices import make_fabric
from spikehtr.training.job import Job, run_job

UNITS, LAYERS, DROPOUT = 256, 3, 0.2  # of the CRNN's BLSTM


class RecurrentMixer(nn.Module):
    """The CRNN's BLSTM where Spike-HTR has its mixer: [T, B, L, d], mask [B, L] -> [T, B, L, d]"""

    def __init__(self, dim: int, before: nn.Module | None = None) -> None:
        super().__init__()
        self.before = before
        self.blstm = BLSTM(dim, UNITS, LAYERS if before is None else 1, DROPOUT)
        self.out = nn.Linear(2 * UNITS, dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x if self.before is None else self.before(x, mask)
        lengths = mask.sum(1).repeat(x.shape[0])
        rows: Tensor = self.out(self.blstm(x.flatten(0, 1), lengths)).view(x.shape)
        return rows if self.before is None else x + rows


class ColumnMax(nn.Module):
    """The strongest row of each column, as the CRNN has it: [T, B, d, H', W'] -> [T, B, W', d]"""

    def forward(self, f: Tensor) -> Tensor:
        return f.amax(-2).transpose(-1, -2)


def blstm_mixer(net: SpikeHTR) -> None:
    net.mixer = RecurrentMixer(net.config.dim)  # type: ignore[assignment]


def blstm_after(net: SpikeHTR) -> None:
    net.mixer = RecurrentMixer(net.config.dim, net.mixer)  # type: ignore[assignment]


def column_max(net: SpikeHTR) -> None:
    net.encoder.pool = ColumnMax()  # type: ignore[assignment]


def our_mixer(net: Retsinas) -> None:
    """Spike-HTR's mixer on the CRNN's convolutions."""
    config = Config.preset("swift").with_overrides({"model.mixer.layout": "all-LK"}).model  # 256 wide, as those
    net.blstm, net.spiking = nn.Identity(), Mixer(config)  # type: ignore[assignment]
    net.head = nn.Linear(config.dim, net.vocab_size)

    def read(tokens: Tensor, lengths: Tensor) -> Tensor:
        mixed = net.spiking(tokens[None], valid_mask(lengths, tokens.shape[1]))[0]  # type: ignore[operator]
        logits: Tensor = net.head(net.dropout(mixed))
        return logits

    net.read = read  # type: ignore[method-assign]


WHOLE = {"model.reducer.mode": "none"}
GELU = {"model.neuron": "gelu"}
# Every row of ours but for what it changes: four blocks of large kernels.
FOUR = {"model.mixer.blocks": ("LK",) * 4, "model.mixer.mlp_ratio": 2.5, "training.firing_target": 0.022}
HALF = {"model.mixer.blocks": ("LK", "SR") * 2}
Change = Callable[[Any], None]
VARIANTS: dict[str, tuple[str, dict[str, Any], Change | None]] = {
    "fine": ("fine", {}, None),
    "fine-gelu": ("fine", GELU, None),
    "fine-whole": ("fine", WHOLE, None),
    "fine-128px": ("fine", {"model.height": 128, "data.max_width": 1024, "model.encoder.stem_stride": (4, 2)}, None),
    "fine-wide": ("fine", {"model.dim": 512, "model.mixer.heads": 8}, None),
    "fine-deep-mixer": ("fine", {"model.mixer.blocks": ("LK",) * 8}, None),
    "fine-hybrid": ("fine", {"model.mixer.blocks": ("LA", "QK", "LK", "LA")}, None),
    "fine-no-dropout": ("fine", {"model.mixer.dropout": 0.0, "model.mixer.drop_path": 0.0}, None),
    "fine-column-max": ("fine", {}, column_max),
    "fine-blstm": ("fine", {}, blstm_mixer),
    "fine-blstm-whole": ("fine", WHOLE, blstm_mixer),
    "fine-blstm-after": ("fine", {}, blstm_after),
    "fine-recurrence": ("fine", {"model.mixer.blocks": ("SR",) * 4}, None),
    "fine-half-recurrence": ("fine", HALF, None),
    "fine-half-recurrence-gelu": ("fine", HALF | GELU, None),
    "fine-half-recurrence-whole": ("fine", HALF | WHOLE, None),
    "fine-half-recurrence-deep": ("fine", {"model.mixer.blocks": ("LK", "SR") * 3}, None),
    "crnn": ("retsinas", {}, None),
    "crnn-our-mixer": ("retsinas", {}, our_mixer),
    "crnn-64px": ("retsinas", {"model.height": 64}, None),
}


def config_of(name: str, epochs: int, seed: int, settings: list[str]) -> Config:
    preset, changes, _ = VARIANTS[name]
    config = Config.preset(preset)
    if preset == "fine":
        config = config.with_overrides(FOUR)
    else:  # everything but the network is fine's
        ours = Config.preset("fine")
        shared = {key: value for key, value in ours.flat().items() if key.startswith(("training.", "data."))}
        for key in ("training.aux_weight", "training.kl_weight", "training.firing_penalty", "training.firing_target"):
            shared[key] = config.flat()[key]
        config = config.with_overrides(shared)
    changes = changes | {"training.epochs": epochs, "training.seed": seed, "data.workers": 1}
    return config.with_overrides(changes).with_overrides(settings)


def train(name: str, options: argparse.Namespace) -> None:
    preset, _, change = VARIANTS[name]
    base = SpikeHTR if preset == "fine" else Retsinas
    build = registry.build

    def with_change(config: ModelConfig, vocab_size: int) -> Any:
        net = build(config, vocab_size)
        if change is not None and isinstance(net, base):
            change(net)
        return net

    registry.build = with_change
    for module in list(sys.modules.values()):  # whoever has imported it by name
        if module is not None and getattr(module, "build", None) is build:
            module.build = with_change  # type: ignore[attr-defined]
    folder = options.output / f"{name}-{options.seed}"
    config = config_of(name, options.epochs, options.seed, options.set)
    job = Job(config, options.data, folder, resume=has_checkpoint(folder), allow_unknown=True, worst=0)
    job.claim_folder()
    fabric = make_fabric(options.device, 1, config.training.precision)
    fabric.launch()
    began = time.monotonic()
    run_job(job, fabric, lambda text: print(text, flush=True))
    net = build(config.model, 100)
    if change is not None:
        change(net)
    facts = {"parameters": sum(p.numel() for p in net.parameters()), "seconds": time.monotonic() - began}
    (folder / "facts.json").write_text(json.dumps(facts))


def table(folder: Path) -> str:
    """A row a run: where it stands, loss on training lines, CER on validation lines (the best, and the last)."""
    rows = [
        "| variant, seed | parameters, M | epochs | training loss | validation CER, % (last) |",
        "|---|---|---|---|---|",
    ]
    found = []
    for log in sorted(folder.glob("*/log.csv")):
        with log.open() as file:
            steps = list(csv.DictReader(file))
        epochs = [row for row in steps if row["validation_cer"]]
        if epochs:
            best, last = min(float(row["validation_cer"]) for row in epochs), epochs[-1]
            notes = log.parent / "facts.json"
            size = json.loads(notes.read_text())["parameters"] / 1e6 if notes.exists() else float("nan")
            loss = mean(float(row["ctc"]) for row in steps if row["epoch"] == last["epoch"])
            told = f"{log.parent.name} | {size:.2f} | {last['epoch']} | {loss:.3f}"
            found.append((best, f"| {told} | {100 * best:.2f} ({100 * float(last['validation_cer']):.2f}) |"))
    return "\n".join(rows + [row for _, row in sorted(found)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="line sets, as `spikehtr train -d` takes them")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--table", action="store_true", help="only show what there is")
    options = parser.parse_args()
    if unknown := set(options.only) - set(VARIANTS):
        parser.error(f"no variant {', '.join(sorted(unknown))}: there are {', '.join(VARIANTS)}")
    if options.table:
        print(table(options.output))
        return
    if not options.data:
        parser.error("name a line set to train on")
    if len(options.only) == 1:
        train(options.only[0], options)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    waiting, running = list(options.only), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            again = [*options.data, "-o", str(options.output), "--epochs", str(options.epochs), "--only", name]
            again += ["--seed", str(options.seed), "--device", options.device]
            again += [part for setting in options.set for part in ("-s", setting)]
            log = (options.output / f"{name}-{options.seed}.txt").open("a")
            command = [sys.executable, __file__, *again]
            running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        time.sleep(0.2)
        for name, process in [entry for entry in running if entry[1].poll() is not None]:
            running.remove((name, process))
            if process.returncode:
                print(f"{name} failed: see {options.output / f'{name}-{options.seed}.txt'}", flush=True)
    print(table(options.output))


if __name__ == "__main__":
    main()
