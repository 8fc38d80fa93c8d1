"""Kernels compiled together before they are needed: none is started, each form is compiled once."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.ops import using
from spikehtr.ops.triton.launch import compile_together, launch


class Kernel:
    """What `launch` asks of one."""

    def __init__(self):
        self.started, self.compiled = [], []

    def __getitem__(self, grid):
        return lambda *args, **options: self.started.append((grid, args, options))

    def warmup(self, *args, grid, **options):
        self.compiled.append((args, options))


def test_a_launch_starts_the_kernel():
    kernel = Kernel()
    launch(kernel, (3,), 1, 2.0, SIZE=4)
    assert kernel.started == [((3,), (1, 2.0), {"SIZE": 4})]


def test_every_form_of_a_kernel_is_compiled_once_and_none_is_started():
    kernel, other, x = Kernel(), Kernel(), torch.zeros(32)

    def work():
        for size in (5, 7, 16):  # 16 has a form of its own
            launch(kernel, (size,), x, size, BLOCK=8)
        launch(kernel, (1,), x, 5, BLOCK=16)
        launch(kernel, (1,), x.half(), 5, BLOCK=8)
        launch(kernel, (1,), x[1:], 5, BLOCK=8)  # not aligned
        launch(other, (1,), None)

    assert compile_together(work, torch.device("cpu")) == 6
    assert kernel.started == other.started == []
    assert len(kernel.compiled) == 5
    assert len(other.compiled) == 1
    launch(kernel, (1,), x)
    assert len(kernel.started) == 1


def test_after_a_failure_kernels_are_started_again():
    with pytest.raises(ZeroDivisionError):
        compile_together(lambda: 1 / 0, torch.device("cpu"))
    launch(kernel := Kernel(), (1,))
    assert kernel.started


@needs_gpu
def test_a_pass_compiles_nothing_more_after_it():
    from triton import knobs

    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=1).model, 12).to(DEVICE).train()
    images = torch.rand(2, 1, 32, 64, device=DEVICE)

    def work():
        out = net(images)
        (out.logits.square().mean() + out.aux_logits.square().mean()).backward()

    made = []
    with using("auto"):
        assert compile_together(work, DEVICE) > 20
        net.zero_grad(set_to_none=True)
        knobs.runtime.jit_post_compile_hook = lambda **told: made.append(told["repr"])
        try:
            work()
        finally:
            knobs.runtime.jit_post_compile_hook = None
    assert made == []
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
