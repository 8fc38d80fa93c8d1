"""Comparing several ways of reading the same lines."""

from copy import deepcopy

import pytest
import torch

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.evaluation.agreement import NOISE, Noisy, agree
from spikehtr.readers import Reader
from spikehtr.readers.torch import DoubleReader, TorchReader


def test_agreement_counts_lines_and_characters():
    found = agree(truths=["abcd", "ef"], first=["abcd", "eg"], texts=["abxd", "eg"])
    assert (found.lines, found.same) == (2, 1)
    assert (found.changed.errors, found.changed.length) == (1, 6)
    assert (found.wrong.errors, found.wrong.length) == (2, 6)


def test_noise_is_a_hair_and_the_same_each_time():
    seen = []

    class Noting(TorchReader):
        def __call__(self, images, widths):
            seen.append(images)
            return super().__call__(images, widths)

    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=1, mixer__blocks=["QK"]).model, 5).eval()
    reader = Noisy(Noting(net))
    assert isinstance(reader, Reader)
    assert reader.precision == "fp32"
    grey = torch.randint(0, 256, (1, 1, 32, 16), dtype=torch.uint8)
    for _ in range(2):
        reader(grey, torch.tensor([16]))
    assert torch.equal(seen[0], seen[1])
    off = (seen[0] - grey.float() / 255).abs()
    assert 0 < off.max() < 6 * NOISE


def test_the_exact_reader_is_the_reference_in_double_precision():
    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=1, neuron="gelu", mixer__blocks=["QK"]).model, 5).eval()
    grey, widths = torch.randint(0, 256, (2, 1, 32, 48), dtype=torch.uint8), torch.tensor([48, 31])
    plain, exact = TorchReader(net)(grey, widths), DoubleReader(net)(grey, widths)
    assert exact.logits.dtype == torch.float64
    assert exact.logits.numpy() == pytest.approx(plain.logits.numpy(), abs=1e-4)
    assert not torch.equal(exact.logits.float(), plain.logits)
    assert {p.dtype for p in net.parameters()} == {torch.float32}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_in_double_precision_a_gpu_fires_what_a_cpu_fires():
    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=2).model, 5).eval()
    grey, widths = torch.randint(0, 256, (8, 1, 32, 200), dtype=torch.uint8), torch.arange(25, 201, 25)
    here, there = DoubleReader(net)(grey, widths), DoubleReader(deepcopy(net).cuda())(grey, widths)
    assert torch.equal(here.spans, there.spans.cpu())
    assert there.logits.cpu().numpy() == pytest.approx(here.logits.numpy(), abs=1e-9)
