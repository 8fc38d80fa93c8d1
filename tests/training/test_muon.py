"""Muon: what it takes, what its step is, and that it learns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import Config, TrainingConfig
from spikehtr.registry import build
from spikehtr.training.muon import Muon, matrices_of, orthogonal, stacks
from spikehtr.training.optim import make_optimizer


def with_values(rows, columns, values):
    """A matrix with these singular values and random singular vectors."""
    left, right = (torch.linalg.qr(torch.randn(n, len(values)))[0] for n in (rows, columns))
    return left * values @ right.T


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 24), st.integers(2, 24), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_singular_values_come_to_about_one_and_vectors_stay(rows, columns, scale, seed):
    torch.manual_seed(seed)
    size = min(rows, columns)
    matrix = with_values(rows, columns, torch.rand(size) * 0.9 + 0.1)
    found = orthogonal(scale * matrix[None])[0]
    assert found.shape == matrix.shape
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ found @ right.T  # diagonal where the vectors are the same
    assert (inner - torch.diag(inner.diag())).abs().max() < 1e-3


def test_a_matrix_is_its_own_whatever_is_stacked_with_it():
    torch.manual_seed(0)
    some = torch.randn(3, 20, 31)
    assert torch.equal(orthogonal(torch.zeros(2, 4, 3)), torch.zeros(2, 4, 3))
    for alone, together in zip(some, orthogonal(some), strict=True):
        torch.testing.assert_close(orthogonal(alone[None])[0], together, rtol=1e-5, atol=1e-5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=12), st.integers(0, 200))
def test_stacks_hold_every_matrix_once_and_few_zeros(shapes, spare):
    sizes = [torch.Size(shape) for shape in shapes]
    found = stacks(sizes, spare)
    assert sorted(i for stack in found for i in stack) == list(range(len(shapes)))
    for first, *others in found:
        for i in others:
            assert all(a <= b for a, b in zip(sizes[i], sizes[first], strict=True))
            assert sizes[first].numel() - sizes[i].numel() <= spare
    if spare == 0:
        assert len(found) == len(set(shapes))


def test_a_step_is_the_same_however_matrices_are_stacked():
    torch.manual_seed(0)
    shapes = [(20, 3, 3, 3), (40, 16), (16, 40), (40, 16), (24, 24), (17, 1, 5, 5), (40, 1, 4, 5), (64, 30)]
    start, gradients = [torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes]
    ends = []
    for spare in (0, 500, 10**6):
        matrices = [nn.Parameter(value.clone()) for value in start]
        optimizer = Muon(matrices, [{"params": [nn.Parameter(torch.zeros(1))]}], 0.1, 0.2, spare=spare)
        for _ in range(2):
            for p, gradient in zip(matrices, gradients, strict=True):
                p.grad = gradient.clone()
            optimizer.step()
        ends.append([p.detach() for p in matrices])
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spare", [0, 10**4])
@pytest.mark.parametrize("shape", [(20, 3, 3, 3), (40, 16), (24, 24), (40, 1, 4, 5)])
def test_a_step_is_the_one_of_the_formula(shape, spare):
    torch.manual_seed(0)
    kernel, bias, larger = (nn.Parameter(torch.randn(size)) for size in (shape, (20,), (50, 60)))
    groups = [{"params": [bias], "weight_decay": 0.0}]
    optimizer = Muon([kernel, larger], groups, lr=0.05, weight_decay=0.5, times=2.0, spare=spare)
    twin = nn.Parameter(bias.detach().clone())
    plain = torch.optim.AdamW([twin], lr=0.05, weight_decay=0.0)
    weight, momentum = kernel.detach().clone(), torch.zeros_like(kernel)
    for _ in range(3):
        gradient = torch.randn_like(kernel)
        kernel.grad, bias.grad, larger.grad = gradient.clone(), torch.randn_like(bias), torch.randn_like(larger)
        twin.grad = bias.grad.clone()
        optimizer.step()
        plain.step()
        momentum = momentum + 0.05 * (gradient - momentum)
        matrix = (gradient + 0.95 * (momentum - gradient)).flatten(1)
        straight = orthogonal(matrix[None]).view_as(kernel)
        weight = weight - 0.1 * 0.5 * weight - 0.1 * 0.2 * max(matrix.shape) ** 0.5 * straight
    torch.testing.assert_close(kernel.detach(), weight, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bias.detach(), twin.detach())
    optimizer.zero_grad()
    assert kernel.grad is None
    assert bias.grad is None


def test_an_update_is_as_large_as_adamw_s():
    torch.manual_seed(0)
    for shape in ((64, 640), (640, 64), (96, 96)):
        matrix = nn.Parameter(torch.zeros(shape))
        optimizer = Muon([matrix], [{"params": [nn.Parameter(torch.zeros(1))]}], lr=1.0, weight_decay=0.0)
        matrix.grad = torch.randn(shape)
        optimizer.step()
        assert 0.1 < matrix.detach().pow(2).mean().sqrt() < 0.4


def test_what_gets_no_gradient_stays():
    kept, learning = (nn.Parameter(torch.ones(16, 16)) for _ in range(2))
    optimizer = Muon([kept, learning], [{"params": [nn.Parameter(torch.zeros(1))]}], lr=0.1, weight_decay=0.5)
    optimizer.step()
    learning.grad = torch.eye(16)
    optimizer.step()
    assert torch.equal(kept, torch.ones(16, 16))
    assert not torch.equal(learning, torch.ones(16, 16))


@pytest.mark.parametrize(
    "preset",
    ["swift", "tiny", "retsinas", "htr-vt", "cnn-blstm", "kraken", "span", "origaminet", "htr-convtext", "dan"],
)
def test_matrices_are_most_of_a_network_but_not_its_tables(preset):
    with torch.device("meta"):
        net = build(Config.preset(preset).model, 90)
    taken = {id(p) for p in matrices_of(net)}
    names = [name for name, p in net.named_parameters() if id(p) in taken]
    wrong = (*net.per_label, "positions.table")
    assert not any(name in wrong or name.endswith("bias") for name in names)
    count = sum(p.numel() for p in net.parameters())
    assert sum(p.numel() for p in net.parameters() if id(p) in taken) > 0.9 * count


def test_every_parameter_has_one_optimiser():
    net = SpikeHTR(micro().model, 5)
    optimizer = make_optimizer(net, TrainingConfig(optimizer="muon", muon_rate=3.0))
    assert isinstance(optimizer, Muon)
    assert optimizer.times == 3.0
    held = [id(p) for group in optimizer.param_groups for p in group["params"]] + [id(p) for p in optimizer.matrices]
    assert sorted(held) == sorted(id(p) for p in net.parameters())


def test_it_learns_what_adamw_learns():
    torch.manual_seed(0)
    truth, inputs = torch.randn(24, 32), torch.randn(256, 32)
    net = nn.Linear(32, 24)
    optimizer = make_optimizer(net, TrainingConfig(optimizer="muon", muon_rate=1.0, weight_decay=0.0))
    losses = []
    for number in range(200):
        for group in optimizer.param_groups:
            group["lr"] = 0.15 * (1 - number / 200)
        optimizer.zero_grad()
        loss = (net(inputs) - inputs @ truth.T).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]
