"""The leaky scan: its formula against a loop, Triton's side against the plain one."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from spikehtr.ops.plain.scan import leaky_scan as plain
from spikehtr.ops.triton.scan_op import leaky_scan


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def rows(*lengths, size):
    return torch.arange(size, device=DEVICE) < torch.tensor(lengths, device=DEVICE)[:, None]


def along(values, leaks):
    """[L, c], one token after the other."""
    u, out = torch.zeros_like(values[0]), []
    for v, leak in zip(values, leaks, strict=True):
        f = leak.sigmoid()
        u = f * u + (1 - f) * v
        out.append(u)
    return torch.stack(out)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_is_what_a_loop_over_each_lines_own_tokens_gives(dim):
    lengths, size = (6, 1, 3), 6
    x = draw(2, 3, size, 2 * dim)
    u = plain(x, rows(*lengths, size=size))
    for t in range(2):
        for b, length in enumerate(lengths):
            v, leak = x[t, b, :length].chunk(2, -1)
            half = dim // 2
            ahead = along(v[:, :half], leak[:, :half])
            behind = along(v[:, half:].flip(0), leak[:, half:].flip(0)).flip(0)
            assert torch.allclose(u[t, b, :length], torch.cat([ahead, behind], -1), atol=1e-6)


@pytest.mark.parametrize(("length", "dim"), [(1, 2), (7, 5), (9, 70), pytest.param(256, 384, marks=needs_gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parity_forward_and_backward(length, dim, dtype):
    x, mask = draw(2, 2, length, 2 * dim).to(dtype), rows(length, max(1, length - 3), size=length)
    leaf = x.clone().requires_grad_()
    expected, found = plain(leaf, mask), leaky_scan(leaf, mask, dtype)
    upstream = draw(*expected.shape, seed=1)
    (a,), (b,) = (torch.autograd.grad((y * upstream.to(y.dtype)).sum(), leaf) for y in (expected, found))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    for one, two in ((expected, found), (a, b)):
        assert (one.double() - two.double()).norm() <= tolerance * one.double().norm()


def test_what_padding_holds_changes_nothing():
    mask, x = rows(4, 2, size=4), draw(1, 2, 4, 6)
    poisoned = torch.where(mask[None, :, :, None], x, 1e9)
    for function in (plain, lambda x, mask: leaky_scan(x, mask, torch.float32)):
        assert torch.equal(function(x, mask)[:, mask], function(poisoned, mask)[:, mask])
