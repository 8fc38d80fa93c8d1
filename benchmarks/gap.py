"""Where do spikes cost accuracy? Small networks learn to read drawn words, or lines, with GELU in some places.

python benchmarks/gap.py --text CORPUS --words WORDS
python benchmarks/gap.py --text CORPUS --words WORDS --only 0 --set training.spike_anneal.until=0.6   # another recipe
python benchmarks/gap.py --data LINES --set data.max_width=384                                        # lines of yours
python benchmarks/gap.py --data LINES --preset fine --device cuda --minutes 8 --only 2                # a whole network

CORPUS is any plain text; words of it are drawn, two to a line, into the folder WORDS in the two fonts that come with
the package. A network of swift's kind learns to read them, or LINES in any format, 500 steps of 24 lines: a few minutes
a place on one core. With --preset it is that network, trained as it is.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import nn

from spikehtr.assets import FONTS
from spikehtr.config import Config
from spikehtr.config_training import AugmentConfig
from spikehtr.data.compiling import open_lines
from spikehtr.data.synth import synthesise
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.network import Network
from spikehtr.training.devices import make_fabric
from spikehtr.training.loop import Run
from spikehtr.training.sets import training_sets

PLACES = {  # where GELU stands, as a pattern of names of neurons
    "nowhere": "$^",
    "everywhere": "",
    "in the mixer": "^mixer",
    "in the encoder": "^encoder",
    "in the encoder, at PW1": "pw1",
    "in the encoder, but for PW1": r"^encoder\.(?!.*pw1)",
}
SETTINGS = {
    "data": {"max_width": 256, "workers": 0, "straighten": False, "augment": AugmentConfig().model_dump()},
    "model.height": 32,
    "model.dim": 96,
    "model.encoder.channels": [24, 48],
    "model.encoder.depths": [1, 1, 2],
    "model.encoder.neurons": "all",
    "model.encoder.pw1_start_bias": None,  # PW1 starts as the rest does
    "model.encoder.pw1_burst": 1,
    "model.mixer": {"blocks": ["LA", "LK", "LA"], "lk_kernel": 7, "dropout": 0.0, "drop_path": 0.0, "start_bias": None},
    "model.mixer.neurons": "all",
    "model.mixer.burst": 1,
    "training": {
        "batch_size": 24,
        "warmup_epochs": 1,
        "optimizer": "adamw",
        "learning_rate": 2e-3,
        "hold": 0.0,
        "weight_decay": 0.05,
        "ema_decay": 0.99,
        "validate_every": 100,
        "firing_penalty": 0.0,
        "firing_target": 0.0,
    },
}


def draw_words(corpus: Path, folder: Path, lines: int = 3000) -> None:
    words = re.findall(r"\b[a-z]{3,9}\b", corpus.read_text(encoding="utf-8").lower())
    random.Random(0).shuffle(words)
    pairs = [" ".join(words[i : i + 2]) for i in range(0, min(len(words), 2 * lines), 2)]
    synthesise(pairs, FONTS, lines, folder)


def with_gelu(net: nn.Module, pattern: str) -> int:
    """Put GELU into the places whose names match, where a norm then starts without a bias; how many."""
    found = [(name, m) for name, m in net.named_modules() if isinstance(m, MultiStepLIF) and re.search(pattern, name)]
    for name, neuron in found:
        for norm in neuron.driven_by:
            nn.init.zeros_(norm.bias)  # type: ignore[arg-type]
        parent, _, last = name.rpartition(".")
        setattr(net.get_submodule(parent), last, nn.GELU())
    return len(found)


class MixedRun(Run):
    """A training whose averaged network has GELU where the trained one has."""

    pattern = ""

    def _averaged(self) -> Network:
        net = super()._averaged()
        with_gelu(net, self.pattern)
        self.average.copy_to(net)
        return net


def learn(
    config: Config, lines: Path, pattern: str, device: str, steps: int | None, minutes: float | None
) -> tuple[int, float]:
    """How many neurons were replaced, and the lowest validation error rate."""
    sets = training_sets(open_lines([lines], config.model.height), config, allow_unknown=True)
    with tempfile.TemporaryDirectory() as folder:
        run = MixedRun(config, sets.train, sets.validation, Path(folder), make_fabric(device), steps, minutes)
        run.pattern = pattern
        count = with_gelu(run.net, pattern)
        run.fit()
    return count, run.best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="plain text whose words are drawn")
    parser.add_argument("--words", type=Path, help="folder for the drawn words; drawn once")
    parser.add_argument("--data", type=Path, help="lines to read instead")
    parser.add_argument("--preset", help="this network instead of a small one of swift's kind")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="500 unless told, or by the clock:")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting; repeatable")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of places, from 0")
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["SPIKEHTR_KERNELS"] = "reference"  # the CPU engine has no GELU
    steps = options.steps or (None if options.minutes else 500)
    config = Config.preset(options.preset or "swift")
    config = (config if options.preset else config.with_overrides(SETTINGS)).with_overrides(options.set)
    lines = options.data or options.words
    if (options.data is None) == (options.text is None or options.words is None):
        parser.error("needs --text and --words, or --data")
    if options.data is None:
        draw_words(options.text, lines)
    length = f"{steps} steps" if steps else f"{options.minutes:g} minutes"
    title = ", ".join([options.preset or "a small network", length, *options.set])
    table = Table("GELU stands", "neurons replaced", "validation CER", title=title)
    for number, (place, pattern) in enumerate(PLACES.items()):
        if not options.only or number in options.only:
            count, rate = learn(config, lines, pattern, options.device, steps, options.minutes)
            table.add_row(place, str(count), f"{rate:.2%}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
