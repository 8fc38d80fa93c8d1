import os
import subprocess
import sys
import threading

import kernels_help  # noqa: F401 - before any kernel
import pytest
import torch
from filelock import FileLock

from conftest import micro
from spikehtr.baselines import build
from spikehtr.data.batching import Batch
from spikehtr.kernels import ahead
from spikehtr.training.devices import make_fabric
from spikehtr.training.step import Moment, TrainStep

# The compiler needs no GPU if it is told what to compile for. In a process of its own: here Triton interprets.
SCRIPT = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Card:
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

driver.set_active(Card())

from spikehtr.config import LIFConfig
from spikehtr.kernels import addup, groupnorm
from spikehtr.kernels.ahead import compile_ahead, launches
from spikehtr.kernels.network import group_norm
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import MaskedGroupNorm

norm, neuron = MaskedGroupNorm(8, 2), MultiStepLIF(LIFConfig())
before = norm.weight.detach().clone()

def work():
    x = torch.empty(1, 2, 8, 4, 16, requires_grad=True)
    group_norm(norm, x, torch.empty(2, dtype=torch.long), neuron).sum().backward()

def made(kernel):
    return len(kernel.device_caches[0][0])

used = [launch.kernel for launch in launches(work)]
wanted = [groupnorm.sums, groupnorm.moments, groupnorm.apply]
wanted += [groupnorm.grad_sums, groupnorm.grad_moments, groupnorm.grad_input, addup.column_sums]
assert used == wanted, used
assert [made(kernel) for kernel in wanted] == [0] * 7, "nothing is compiled by looking"
compile_ahead(work)
assert [made(kernel) for kernel in wanted] == [1] * 7
assert all(hasattr(made, "asm") for kernel in wanted for made in kernel.device_caches[0][0].values())
compile_ahead(work)
assert [made(kernel) for kernel in wanted] == [1] * 7, "what is there is not compiled again"
assert torch.equal(norm.weight, before)
print("compiled")
"""


def test_kernels_of_both_passes_are_found_and_compiled_without_being_started(tmp_path):
    environment = os.environ | {
        "SPIKEHTR_KERNELS": "triton",
        "TRITON_CACHE_DIR": str(tmp_path),
        "TRITON_INTERPRET": "0",
    }
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert run.stdout.strip() == "compiled", run.stderr


def step_and_batch(device, changes=None, precision="fp32"):
    config = micro().with_overrides(changes or {})
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, 12), make_fabric(device, precision=precision))
    images = torch.randint(0, 255, (2, 1, config.model.height, 96), dtype=torch.uint8)
    batch = Batch(
        images, torch.tensor([96, 50]), torch.ones(2, 4, dtype=torch.long), torch.tensor([4, 2]), torch.arange(2)
    )
    return step, batch


def test_a_step_goes_on_where_nothing_can_be_compiled_ahead(monkeypatch):
    def fail(work):
        raise RuntimeError("it needs the contents")

    step, batch = step_and_batch("cpu")
    monkeypatch.setattr("spikehtr.training.step.compile_ahead", fail)
    with pytest.warns(UserWarning, match="one after the other .RuntimeError: it needs the contents"):
        step._compile(batch)
    assert torch.isfinite(step(batch, Moment(0.5, 1e-3, 0))).all()


@pytest.mark.parametrize("stretch", [0.0, 0.2])
def test_the_pass_ahead_has_the_shapes_of_the_step(monkeypatch, stretch):
    class Seen(Exception):
        pass

    def look(images, *_):
        shapes.append((images.shape, images.dtype))
        raise Seen

    shapes = []
    step, batch = step_and_batch("cpu", {"data.augment.stretch": stretch})
    batch = batch._replace(images=torch.nn.functional.pad(batch.images, (0, 32), value=255))  # 128: as it is padded
    monkeypatch.setattr(step, "forward", look)
    monkeypatch.setattr("spikehtr.training.step.compile_ahead", lambda work: work())
    with pytest.warns(UserWarning, match="one after the other"):
        step._compile(batch)
    with pytest.raises(Seen):
        step(batch, Moment(0.5, 1e-3, 0))
    assert shapes[0] == shapes[1]
    assert shapes[0][0][-1] == (154 if stretch else 128)


def test_one_process_compiles_and_the_others_wait_for_it(monkeypatch, tmp_path):
    from triton import knobs

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "cache"))
    with ahead._after_another():
        other = FileLock(tmp_path / "cache" / "spikehtr.lock")
        entered = threading.Event()

        def wait():
            with ahead._after_another():
                entered.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not entered.wait(0.3)
        with pytest.raises(TimeoutError):
            other.acquire(timeout=0)
    assert entered.wait(10)
    thread.join()
    with pytest.raises(KeyError), ahead._after_another():
        raise KeyError
    with other.acquire(timeout=0):
        pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({}, "fp32"),
        ({"model.timesteps": 2, "training.firing_penalty": 10.0}, "bf16"),
        ({"model.neuron": "gelu", "training.consistency": 0.5}, "bf16"),
        ({"model.encoder.dropout": 0.2, "model.encoder.drop_path": 0.2, "model.span_mask.ratio": 0.3}, "bf16"),
    ],
)
def test_a_step_finds_all_its_kernels_compiled(changes, precision):
    from triton import knobs

    step, batch = step_and_batch("cuda", changes, precision)
    before = {name: value.clone() for name, value in step.net.state_dict().items()}
    compiled = []
    step._compile(batch)  # a failure would be a warning, and that an error here
    assert all(p.grad is None for p in step.net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in step.net.state_dict().items())
    knobs.runtime.jit_post_compile_hook = lambda **facts: compiled.append(facts["repr"])
    try:
        numbers = step(Batch(*(value.pin_memory() for value in batch)), Moment(0.5, 1e-3, 0))
    finally:
        knobs.runtime.jit_post_compile_hook = None
    assert compiled == []
    assert torch.isfinite(numbers).all()
    assert all(type(p.grad) is torch.Tensor for p in step.net.parameters())
