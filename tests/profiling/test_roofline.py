"""Operations counted by hand against what the hooks see, and the two bounds made of them."""

import pytest
import torch

from conftest import micro
from spikehtr.model.encoder import ConvMix2d, DownMix, HeightPool, SpikingConv2d
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.counts import counted_macs
from spikehtr.profiling.roofline import Ceilings, Op, Roofline, counted_ops, measure_ceilings, step_roofline
from spikehtr.training.muon import matrices_of

T, B = 2, 3


def seen(module, *inputs):
    with counted_ops(module, itemsize=2) as table:
        module(*inputs)
    return {(op.name, op.direction): (op.flops, op.moved) for op in table.ops()}


def test_a_spiking_convolution_by_hand():
    unit = SpikingConv2d(micro().model, 4, 8, 3, stride=2)
    x = torch.randn(T, B, 4, 8, 12, requires_grad=True)
    found = seen(unit, x, torch.tensor([6, 6, 6]))
    read, written, weights = T * B * 4 * 8 * 12, T * B * 8 * 4 * 6, 8 * 4 * 9
    flops = 2 * written * 4 * 9
    assert found == {
        ("conv", "forward"): (flops, 2 * (read + weights + written)),
        ("conv", "backward"): (2 * flops, 2 * (written + read + weights + read + weights)),
        ("norm", "forward"): (0, 2 * 2 * written),
        ("norm", "backward"): (0, 2 * 3 * written),
    }


def test_no_gradient_for_an_image_and_none_at_inference():
    unit = SpikingConv2d(micro().model, 3, 8, 3)
    x = torch.randn(1, 1, 3, 4, 4)
    found = seen(unit, x, torch.tensor([4]))
    flops = 2 * 8 * 16 * 27
    assert found["conv", "backward"] == (flops, 2 * (8 * 16 + 3 * 16 + 2 * 8 * 27))
    with torch.no_grad():
        assert {direction for _, direction in seen(unit, x, torch.tensor([4]))} == {"forward"}


def test_a_block_adds_two_residual_reads():
    config = micro().model
    block = ConvMix2d(config, 8, drop_path=0.0)
    size = T * B * 8 * 4 * 6
    with counted_ops(block, itemsize=4) as table:
        block(torch.randn(T, B, 8, 4, 6, requires_grad=True), torch.tensor([6, 6, 6]))
    residual = [op for op in table.ops() if op.kind == "ConvMix2d"]
    assert [(op.direction, op.moved) for op in residual] == [("forward", 2 * 4 * size), ("backward", 2 * 4 * size)]
    norms = sum(op.moved for op in table.ops() if op.kind == "MaskedGroupNorm")
    assert norms == 4 * 5 * (size + size + 2 * size + size)  # dw, the norm before pw1, pw1 (twice as wide), pw2


def test_pools_by_hand():
    z = torch.randn(T, B, 8, 4, 6, requires_grad=True)
    found = seen(DownMix("mix"), z, torch.tensor([6, 5, 2]))
    assert found == {
        ("", "forward"): (0, 2 * (z.numel() + z.numel() // 4)),
        ("", "backward"): (0, 2 * (z.numel() // 4 + 2 * z.numel())),
    }
    pool = seen(HeightPool(8), z)
    assert pool["", "forward"] == (0, 2 * (z.numel() + z.numel() // 4))
    assert pool["score.0", "forward"][0] == 2 * z.numel() * 2
    assert pool["nudge", "forward"][0] == 2 * (z.numel() // 4) * 8


def batch(width=48, lines=3):
    g = torch.Generator().manual_seed(0)
    return torch.rand(lines, 1, 32, width, generator=g), torch.tensor([width] * lines)


def test_arithmetic_equals_two_other_counters():
    from torch.utils.flop_counter import FlopCounterMode  # imports Triton, which tests of kernels must do first

    net = SpikeHTR(micro().model, 9).eval()
    images, widths = batch()
    roofline = step_roofline(net, images, widths, None, train=False, half=False)
    with counted_macs(net) as macs, FlopCounterMode(display=False) as counter, torch.no_grad():
        net(images, widths)
    assert roofline.flops == 2 * macs.total()
    counts = {name: sum(kinds.values()) for name, kinds in counter.get_flop_counts().items()}
    # Places in the table of positions may be looked up or multiplied in: no work that a step must do.
    looked_up = counts["SpikeHTR.positions"] - counts["SpikeHTR.positions.cpe"]
    assert roofline.flops == counts["Global"] - looked_up


def test_a_training_step_counts_each_weight_once_and_updates_it():
    net = SpikeHTR(micro(reducer__mode="none").model, 9)
    state = torch.random.get_rng_state()
    small = step_roofline(net, *batch(lines=3), None, train=True, half=True)
    large = step_roofline(net, *batch(lines=27), None, train=True, half=True)  # several groups of lines
    assert torch.equal(state, torch.random.get_rng_state())
    assert net.training
    for few, many in zip(small.ops, large.ops, strict=True):
        assert (few.name, few.direction, few.weights) == (many.name, many.direction, many.weights)
        assert (9 * few.activations, 9 * few.flops) == (many.activations, many.flops)
    parameters = sum(p.numel() for p in net.parameters())
    assert [op.moved for op in small.ops if op.direction == "update"] == [36 * parameters]
    muon = step_roofline(net, *batch(lines=3), None, train=True, half=True, muon=True)
    assert muon.ops[-1].moved == 36 * parameters - 8 * sum(p.numel() for p in matrices_of(net))
    heads = [op.direction for op in small.ops if op.name == "head.linear"]
    assert heads == ["forward", "forward", "backward", "forward", "backward"]  # the preview learns nothing
    assert all(p.grad is None for p in net.parameters())
    assert not any(module._forward_hooks for module in net.modules())


def test_the_injection_writes_one_map_a_step():
    images, widths = batch()
    for steps in (1, 3):
        net = SpikeHTR(micro(timesteps=steps).model, 9)
        ops = step_roofline(net, images, widths, None, train=False, half=False).ops
        (entry,) = [op for op in ops if op.kind == "Entry"]
        assert entry.moved == (steps - 1) * images.numel() * 8 * 4


def test_the_roofline_is_the_sum_of_the_slower_sides():
    ops = [Op("a", "", "forward", flops=100, activations=10), Op("b", "", "forward", flops=10, activations=100)]
    line, ceilings = Roofline(ops), Ceilings(bandwidth=4.0, rate=1.0)
    assert line.seconds(ceilings) == 100 + 100  # a computes for 100 s, b moves 400 bytes
    assert line.seconds(Ceilings(1e9, 1.0)) == pytest.approx(110)


def test_ceilings_are_measured():
    found = measure_ceilings(torch.device("cpu"), half=False)
    assert 1e8 < found.bandwidth < 1e13
    assert 1e8 < found.rate < 1e14
