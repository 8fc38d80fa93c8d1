"""The forward pass as a graph, and its precision under autocast."""

import pytest
import torch
import torch.nn.functional as F
from model_help import VARIANTS, batch, build

from spikehtr.config import TrainingConfig
from spikehtr.export.tracing import capture
from spikehtr.model.encoder import Conv2d, MaskedGroupNorm
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import TokenNorm
from spikehtr.model.spike_htr import TemporalFusion
from spikehtr.model.watching import watch
from spikehtr.training.losses import spike_htr_loss


def assert_agrees(traced, plain):
    """A traced graph keeps L = L0, so compare each line's own frames."""
    assert torch.equal(traced.lengths, plain.lengths)
    for b, n in enumerate(plain.lengths.tolist()):
        assert torch.equal(traced.spans[b, :n], plain.spans[b, :n])
        assert torch.allclose(traced.logits[b, :n], plain.logits[b, :n], atol=1e-9)


ONE_BLOCK = {"mixer__blocks": ["LK"]}  # of a mixer that another case traces whole: tracing takes long


@pytest.mark.slow  # its parts: tests/export
def test_export_holds_for_other_batches_and_widths():
    """One exported program, traced at one shape, gives the plain network's answers at others. (Each part at more
    settings: tests/export/test_graph_parts.py.)"""
    net = build(**ONE_BLOCK).double()
    images, widths = batch(torch.float64)
    images = F.pad(images, (0, -images.shape[-1] % 4), value=1.0)
    size, tokens = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("tokens", min=4, max=1024)
    program = capture(net, (images, widths), ({0: size, 3: 4 * tokens}, {0: size}))
    with torch.no_grad():
        assert_agrees(program.module()(images, widths), net(images, widths))
        wider = F.pad(images[:3], (0, 24), value=1.0)
        assert_agrees(program.module()(wider, widths[:3]), net(wider, widths[:3]))


@pytest.mark.slow  # the same tracing, for export: tests/export/test_program.py
@pytest.mark.parametrize("variant", ["default", "T=4", "ann-pure", "poisson", "ttfs"])
def test_compile_finds_one_graph_without_breaks(variant):
    net = build(**VARIANTS[variant] | ({} if variant == "default" else ONE_BLOCK)).double()
    images, widths = batch(torch.float64)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert_agrees(compiled(images, widths), net(images, widths))


@pytest.mark.slow
def test_training_step_traces_too():
    net = build(**ONE_BLOCK).train()
    images, widths = batch()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    out = compiled(images, widths)
    out.logits.square().mean().backward()
    assert net.encoder.stem.conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_bf16_autocast_keeps_norms_membranes_sums_and_losses_in_fp32(neuron):
    net = build(neuron=neuron).train()
    images, widths = batch()
    seen = {}

    def note(module, args, output):
        seen.setdefault(type(module).__name__, set()).add(output.dtype)

    for module in net.modules():
        if isinstance(module, TemporalFusion | Conv2d | torch.nn.Linear):
            module.register_forward_hook(note)
    inner = watch(net, lambda _, *call: note(*call), MaskedGroupNorm, TokenNorm, MultiStepLIF)
    with inner, torch.autocast("cpu", torch.bfloat16):
        out = net(images, widths)
        targets = torch.tensor([[1, 2, 2]] * 4)
        losses = spike_htr_loss(out, targets, torch.tensor([3] * 4), net, TrainingConfig())
    wide = {"MaskedGroupNorm", "TokenNorm", "TemporalFusion"} | ({"MultiStepLIF"} if neuron == "lif" else set())
    assert all(seen[kind] == {torch.float32} for kind in wide)
    assert seen["Conv2d"] == seen["Linear"] == {torch.bfloat16}  # autocast was really on
    assert all(value.dtype == torch.float32 for value in losses)
    losses.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
