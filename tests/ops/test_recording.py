"""Recordings: when they are made, and that nothing in recorded work waits for the device.

Tensors without data ("meta") stand for a GPU's here: whoever asks for a value, or mixes in a tensor of the host, fails.
"""

from contextlib import nullcontext

import pytest
import torch

from conftest import ask_for, micro
from readers_help import Rehearsals
from spikehtr import SpikeHTR
from spikehtr.config import Config
from spikehtr.data.batching import Batch
from spikehtr.readers.cuda_graphs import CudaGraphReader
from spikehtr.training.losses import symmetric_kl
from spikehtr.training.step import prepare

META = torch.device("meta")


def test_the_second_sighting_is_recorded_and_replayed():
    recordings = Rehearsals()
    assert not recordings.wanted("a")
    assert recordings.wanted("a")
    assert recordings.get("a") is None
    x = torch.ones(1)
    recordings.add("a", lambda: (x, x * 2))
    x.fill_(5)
    assert recordings.replay("a")[1].item() == 10
    assert not recordings.wanted("b")  # each key by itself
    recordings.most = 1
    assert recordings.wanted("a")
    assert not recordings.wanted("b")
    recordings.forget()
    assert recordings.get("a") is None
    assert recordings.wanted("a")


def network(config):
    with META:
        return SpikeHTR(config.model, 20)


@pytest.fixture
def no_autocast(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())  # there is none for such tensors
    ask_for(monkeypatch, "reference")


CONFIGS = {"micro": micro(), "tiny": Config.preset("tiny"), "none": micro(reducer__mode="none", timesteps=1)}


@pytest.mark.parametrize("name", CONFIGS)
def test_reading_does_not_wait(name, no_autocast):
    config = CONFIGS[name]
    reader = CudaGraphReader(network(config).eval())
    images = torch.zeros(2, 1, config.model.height, 128, dtype=torch.uint8, device=META)
    held = reader._run(images, torch.zeros(2, dtype=torch.long, device=META))
    assert held.output.logits.shape == held.output.aux_logits.shape == (2, 32, 20)


def test_training_does_not_wait(no_autocast):
    config = micro()
    numbers = torch.zeros(2, dtype=torch.long, device=META)
    images = torch.zeros(2, 1, config.model.height, 128, dtype=torch.uint8, device=META)
    batch = Batch(images, numbers, torch.zeros(2, 8, dtype=torch.long, device=META), numbers, numbers)
    pixels, widths, need, *_ = prepare(batch, config)
    out = network(config).train()(pixels, widths, need, full=True)
    assert symmetric_kl(out.logits, out.aux_logits, out.lengths).device == META
