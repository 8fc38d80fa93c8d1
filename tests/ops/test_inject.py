"""The gated injection in one pass."""

import pytest
import torch
from ops_help import DEVICE

from spikehtr.ops.triton.inject_op import inject


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize(("channels", "width"), [(3, 1), (20, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_against_a_product(steps, channels, width, dtype):
    g = torch.Generator().manual_seed(0)
    features = torch.randn(2, channels, 5, width, generator=g).to(DEVICE, dtype).requires_grad_()
    gain = torch.rand(steps, 2, 1, 5, width, generator=g).to(DEVICE).requires_grad_()
    plain = features.float() * gain
    quick = inject(features, gain, dtype)
    assert quick.dtype == dtype
    upstream = torch.randn(plain.shape, generator=g).to(DEVICE)
    expected = torch.autograd.grad(plain, [features, gain], upstream)
    found = torch.autograd.grad(quick, [features, gain], upstream.to(dtype))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    for a, b in zip([plain, *expected], [quick, *found], strict=True):
        assert (a.double() - b.double()).norm() <= tolerance * a.double().norm()
