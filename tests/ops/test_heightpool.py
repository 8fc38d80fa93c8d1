"""Height pooling in one read against the plain one: values and every gradient."""

import pytest
import torch
from ops_help import DEVICE, assert_close, both_ways, needs_gpu

from spikehtr.model.encoder import HeightPool
from spikehtr.ops.triton import heightpool as fast
from spikehtr.ops.triton.functions import pixels


def column_maps(steps, batch, channels, height, width):
    g = torch.Generator().manual_seed(0)
    return torch.randn(steps, batch, channels, height, width, generator=g).to(DEVICE)


@pytest.mark.parametrize("shape", [(2, 2, 8, 4, 5), (1, 1, 72, 3, 7), (3, 1, 12, 16, 1)], ids=str)
def test_equals_the_plain_one(shape, monkeypatch):
    torch.manual_seed(0)
    pool = HeightPool(shape[2]).to(DEVICE)
    assert_close(both_ways(pool, [column_maps(*shape)], monkeypatch), 1e-5)


def test_equal_largest_values_share_the_gradient(monkeypatch):
    torch.manual_seed(0)
    f = torch.randint(0, 2, (2, 1, 8, 4, 6)).float().to(DEVICE)  # spikes: ties everywhere
    assert_close(both_ways(HeightPool(8).to(DEVICE), [f], monkeypatch), 1e-5)


def test_half_precision(monkeypatch):
    torch.manual_seed(0)
    pool = HeightPool(16).to(DEVICE)
    f = column_maps(2, 2, 16, 4, 6).bfloat16()

    def call(f):
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return pool(f)

    call.parameters = pool.parameters
    assert_close(both_ways(call, [f], monkeypatch), 2e-2)


def test_each_column_by_itself():
    f, scores = (pixels(column_maps(2, 2, channels, 4, 9)) for channels in (8, 1))
    whole = fast.height_pool(f, scores)
    part = fast.height_pool(f[:, 1:, :, 3:5], scores[:, 1:, :, 3:5])
    assert all(torch.equal(a[:, 1:, 3:5], b) for a, b in zip(whole, part, strict=True))


def test_scores_of_any_size_stay_finite():
    f, scores = pixels(column_maps(1, 1, 8, 4, 3)), pixels(column_maps(1, 1, 1, 4, 3)) * 1e4
    attended, largest = fast.height_pool(f, scores)
    assert torch.isfinite(attended).all()
    assert torch.equal(largest, f.amax(2))


@needs_gpu
def test_equals_the_plain_one_at_real_size(monkeypatch):
    torch.manual_seed(0)
    assert_close(both_ways(HeightPool(384).cuda(), [column_maps(2, 8, 384, 16, 148)], monkeypatch), 1e-4)
