"""The gradients of a run's first step, by however many processes it has: `python gradients_help.py STORE OUT NODES`."""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import save_file

from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.data.store import LineStore
from spikehtr.training.devices import close_process_group, make_fabric
from spikehtr.training.loop import TrainingRun

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from training_help import SETTINGS  # noqa: E402

SAME = {"data.augment.probability": 0.0, "model.mixer.dropout": 0.0, "model.mixer.drop_path": 0.0}


def main(file: str, out: str, nodes: str) -> None:
    fabric = make_fabric("cpu", 1, "fp32", int(nodes))
    fabric.launch()
    store = LineStore(Path(file))
    config = Config().with_overrides(SETTINGS | SAME | {"training.batch_size": 11})
    run = TrainingRun(
        config, Lines(store, store.rows(), store.charset, config.data.max_width), None, Path(out).parent, fabric
    )
    run.train_step.net.train()
    batch, indices = next(iter(run._batches(0)))
    run.train_step.learn(batch, 0, indices)
    if fabric.is_global_zero:
        found = {name: one.grad for name, one in run.net.named_parameters() if one.grad is not None}
        save_file({name: gradient.contiguous() for name, gradient in found.items()}, out)
    fabric.barrier()
    close_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
