import pytest
import torch
import torch.nn.functional as F

from conftest import micro
from spikehtr.model.encoder import Conv2d, DownMix, Encoder, HeightPool, SpikingConv2d
from spikehtr.model.masking import MaskedGroupNorm, SharedDropout, ramp


def test_masked_group_norm_equals_group_norm_where_nothing_is_padded():
    norm = MaskedGroupNorm(12, 4)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 12, 5, 9) * 3 + 1
    expected = F.group_norm(x.flatten(0, 1), 4, norm.weight, norm.bias).view_as(x)
    assert torch.allclose(norm(x, torch.full((3,), 9)), expected, atol=1e-5)


def test_masked_group_norm_sees_only_the_line():
    norm = MaskedGroupNorm(8, 4)
    x = torch.randn(2, 3, 8, 4, 10)
    widths = torch.tensor([10, 6, 1])
    found = norm(x, widths)
    for b, w in enumerate(widths.tolist()):
        alone = F.group_norm(x[:, b, :, :, :w], 4)
        assert torch.allclose(found[:, b, :, :, :w], alone, atol=1e-5)
    assert torch.isfinite(found).all()


def test_group_count_falls_to_a_divisor():
    assert MaskedGroupNorm(20, 8).groups == 5
    assert MaskedGroupNorm(7, 8).groups == 7


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_is_torchs(channels, kernel, stride, groups):
    if channels % groups:
        groups = 1
    conv = Conv2d(channels, 4, kernel, stride, kernel // 2, groups=groups).double()
    x = torch.randn(2, channels, 8, 12, dtype=torch.float64, requires_grad=True)
    y = conv(x)
    expected = F.conv2d(x, conv.weight, conv.bias, stride, kernel // 2, groups=groups)
    assert torch.allclose(y, expected, atol=1e-12)
    found = torch.autograd.grad(y.square().sum(), [x, conv.weight, conv.bias])
    wanted = torch.autograd.grad(expected.square().sum(), [x, conv.weight, conv.bias])
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("bypass", [True, False])
def test_membrane_shortcut_follows_the_equation(bypass):
    config = micro(encoder__bypass=bypass, encoder__bypass_init=0.3).model
    unit = SpikingConv2d(config, 4, 8, 3)
    x = torch.randn(2, 1, 4, 6, 7)
    widths = torch.tensor([7])
    h = unit.norm(unit.conv(x.flatten(0, 1)).unflatten(0, (2, 1)), widths)
    expected = unit.neuron(h) + (0.3 * h if bypass else 0)
    assert torch.allclose(unit(x, widths), expected, atol=1e-6)
    assert (unit.alpha is not None) == bypass


@pytest.mark.parametrize("mode", ["mix", "avg", "max"])
def test_downmix_equals_plain_pools_on_whole_maps(mode):
    down = DownMix(mode)
    z = torch.randn(2, 3, 4, 6, 8)
    average, largest = (pool(z.flatten(0, 1), 2).view(2, 3, 4, 3, 4) for pool in (F.avg_pool2d, F.max_pool2d))
    expected = {"mix": (average + largest) / 2, "avg": average, "max": largest}[mode]
    assert torch.allclose(down(z, torch.full((3,), 8)), expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["mix", "avg", "max"])
def test_downmix_counts_valid_columns_only(mode):
    down = DownMix(mode)
    z = torch.randn(1, 3, 4, 6, 8)
    widths = torch.tensor([8, 5, 2])
    found = down(z, widths)
    for b, w in enumerate(widths.tolist()):
        whole = F.pad(z[0, b, :, :, :w], (0, w % 2), mode="replicate")  # an odd column pools with itself
        expected = down(whole[None, None], torch.tensor([whole.shape[-1]]))[0, 0]
        assert torch.allclose(found[0, b, :, :, : expected.shape[-1]], expected, atol=1e-6)
    assert torch.isfinite(found).all()


def test_height_pool_follows_the_equation():
    pool = HeightPool(8)
    f = torch.randn(2, 3, 8, 4, 5)
    z = pool(f)
    assert z.shape == (2, 3, 5, 8)
    column = f[1, 2, :, :, 3].T  # [H', d]
    omega = pool.score(column).softmax(0)
    attended = (omega * column).sum(0)
    r = torch.sigmoid(pool.nudge(attended))
    assert torch.allclose(z[1, 2, 3], attended + r * (column.amax(0) - attended), atol=1e-6)


@pytest.mark.parametrize("dual", [True, False])
def test_token_count_is_a_quarter_of_the_width_rounded_up(dual):
    encoder = Encoder(micro(encoder__dual_resolution=dual).model).eval()
    tokens, lengths = encoder(torch.rand(6, 3, 32, 36), torch.tensor([36, 35, 33, 32, 2, 1]))
    assert tokens.shape == (2, 6, 9, 32)
    assert lengths.tolist() == [9, 9, 9, 8, 1, 1]
    assert torch.isfinite(tokens).all()
    assert (encoder.fusion is not None) == dual


def test_bypass_off_leaves_whole_numbers_in_the_stream():
    encoder = Encoder(micro(encoder__bypass=False).model).eval()
    seen = []
    encoder.stage3.register_forward_hook(lambda *args: seen.append(args[2]))
    encoder(torch.rand(1, 3, 32, 40), torch.tensor([40]))
    assert torch.equal(seen[0], seen[0].round())
    assert seen[0].max() > 0


def test_shared_dropout_is_one_mask_for_all_timesteps():
    drop = SharedDropout(0.5)
    x = torch.ones(3, 4, 5, 6)
    out = drop(x)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])
    lines = SharedDropout(0.5, per="line")(torch.ones(3, 64, 2, 2))
    assert torch.equal(lines, lines[:1, :, :1, :1].expand_as(lines))
    assert set(lines.unique().tolist()) == {0.0, 2.0}
    channels = SharedDropout(0.5, per="channel")(torch.ones(3, 8, 16, 2, 2))
    assert torch.equal(channels, channels[:1, :, :, :1, :1].expand_as(channels))
    assert all(set(line.unique().tolist()) == {0.0, 2.0} for line in channels[0])
    assert torch.equal(drop.eval()(x), x)
    assert ramp(0.2, 3) == pytest.approx([0.0, 0.1, 0.2])
    assert ramp(0.2, 1) == [0.0]
