import pytest
import torch

from conftest import micro
from spikehtr.model.masking import valid_mask
from spikehtr.model.mixer import LargeKernel, LinearAttention, Mixer, QKMix

LAYOUTS = ["auto", "all-LA", "all-QK", "all-LK"]


def tokens(batch=3, size=13, steps=2):
    return torch.randn(steps, batch, size, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_padding_and_batch_mates_change_nothing(layout, neuron):
    mixer = Mixer(micro(mixer__layout=layout, neuron=neuron).model).eval().double()
    x, lengths = tokens(), torch.tensor([13, 7, 1])
    out = mixer(x, valid_mask(lengths, 13))
    noise = x.clone()
    for b, n in enumerate(lengths.tolist()):
        alone = mixer(x[:, b : b + 1, :n], torch.ones(1, n, dtype=torch.bool))
        assert torch.allclose(out[:, b : b + 1, :n], alone, atol=1e-10)
        noise[:, b, n:] = 1e3
    disturbed = mixer(noise, valid_mask(lengths, 13))
    for b, n in enumerate(lengths.tolist()):
        assert torch.allclose(out[:, b, :n], disturbed[:, b, :n], atol=1e-10)


def test_linear_attention_is_a_mean_of_matched_values():
    module = LinearAttention(micro().model).eval().double()
    x = tokens(batch=1)
    mask = torch.ones(1, 13, dtype=torch.bool)
    seen = []
    module.out.linear.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    module(x, mask)
    q, k, v = module.qkv(module.norm(x)).unflatten(-1, (3, 2, 16)).unbind(3)
    assert set(q.unique().tolist()) == {0.0, 1.0}
    expected = torch.zeros(2, 1, 13, 2, 16, dtype=torch.float64)
    for t in range(2):
        for h in range(2):
            for i in range(13):
                overlap = k[t, 0, :, h] @ q[t, 0, i, h]  # spikes shared with each key
                expected[t, 0, i, h] = (overlap[:, None] * v[t, 0, :, h]).sum(0) / (1 + overlap.sum())
    assert torch.allclose(seen[0], expected.flatten(3), atol=1e-10)


def test_qk_passes_a_head_only_where_q_spikes():
    module = QKMix(micro().model).eval()
    x = tokens(batch=1).float()
    seen = []
    module.out.linear.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    module(x, torch.ones(1, 13, dtype=torch.bool))
    q, k = module.qk(module.norm(x)).unflatten(-1, (2, 2, 16)).unbind(3)
    expected = (q.sum(-1, keepdim=True) >= 1) * k
    assert torch.equal(seen[0], expected.flatten(3))


def test_large_kernel_reaches_half_its_length_each_way():
    module = LargeKernel(micro(neuron="gelu").model).eval().double()
    x, mask = tokens(batch=1), torch.ones(1, 13, dtype=torch.bool)
    moved = x.clone()
    moved[:, :, 6] += 1.0
    change = (module(moved, mask) - module(x, mask)).abs().sum((0, 1, 3))
    assert (change[3:10] > 0).all()  # kernel 7
    assert change[:3].sum() + change[10:].sum() == 0


def test_branches_add_whole_spikes():
    """Every operator and MLP ends in a neuron, so a block changes a token by 0, 1 or 2."""
    for layout in ("all-LA", "all-QK", "all-LK"):
        mixer = Mixer(micro(mixer__layout=layout).model).eval().double()
        x = tokens()
        step = mixer.blocks[0](x, torch.ones(3, 13, dtype=torch.bool)) - x
        assert torch.allclose(step, step.round(), atol=1e-12)
        assert {0.0, 1.0} <= {round(v) for v in step.flatten().tolist()} <= {0.0, 1.0, 2.0}


def test_stochastic_depth_is_ramped():
    mixer = Mixer(micro(mixer__drop_path=0.2).model)
    assert [block.drop_path.rate for block in mixer.blocks] == pytest.approx([0.0, 0.1, 0.2])
