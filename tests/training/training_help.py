"""What training tests share: settings of a network that learns in seconds, lines, and a run."""

import pytest

from conftest import MICRO
from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.training.loop import TrainingRun

SETTINGS = MICRO | {
    "model.height": 24,
    "model.timesteps": 1,
    "model.encoder.bypass_init": 0.3,
    "data.workers": 0,
    "data.max_width": 96,
    "training.batch_size": 8,
    "training.epochs": 3,
    "training.warmup_epochs": 1,
    "training.learning_rate": 2e-3,
}


def run(store, folder, *, max_minutes=None, start=None, **changes):
    config = Config().with_overrides(SETTINGS | {key.replace("__", "."): value for key, value in changes.items()})
    lines = Lines(store, store.rows(), store.charset, config.data.max_width)
    held_out = Lines(store, store.rows()[:6], store.charset, config.data.max_width, labelled=False)
    folder.mkdir(exist_ok=True)
    return TrainingRun(config, lines, held_out, folder, max_minutes=max_minutes, start=start)


class Epochs(list):
    """What is told at the ends of epochs."""

    def __call__(self, told):
        if told.epoch_ended:
            self.append(told)


class Killed(BaseException):
    """Stands for kill -9: nothing is caught, nothing is tidied up."""


def kill_at(killed, at, monkeypatch):
    """Train until the step of this number would begin."""
    step = TrainingRun._train_on

    def until(self, batch, indices):
        if self.step == at:
            raise Killed
        return step(self, batch, indices)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "_train_on", until)
        with pytest.raises(Killed):
            killed.fit(save_every=1)
