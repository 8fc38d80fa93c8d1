"""Sums over rows against torch's."""

import pytest
import torch
from ops_help import DEVICE

from spikehtr.ops.triton import addup
from spikehtr.ops.triton.addup import add_rows


@pytest.mark.parametrize("shape", [(1, 1), (127, 3), (128, 32), (129, 2, 33), (400, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_torch(shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    found = add_rows(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, x.double().sum(0).float(), atol=1e-4)


@pytest.mark.parametrize("rows", [9, 64, 65])
def test_tall_tensors_go_in_stretches(rows, monkeypatch):
    monkeypatch.setattr(addup, "_TALL", 8)
    monkeypatch.setattr(addup, "_STRETCH", 4)
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert torch.allclose(add_rows(x), x.double().sum(0).float(), atol=1e-5)


def test_rows_of_zeros_at_the_end_change_nothing():
    x = torch.randn(300, 40, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert torch.equal(add_rows(x), add_rows(torch.cat([x, torch.zeros_like(x)])))
