import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import draw_line
from spikehtr.config import AugmentConfig
from spikehtr.data.augment import augment, without_ink
from spikehtr.data.batching import to_batch

OFF = {
    **dict.fromkeys(("rotate", "shear", "scale", "shift", "stretch", "elastic"), 0.0),
    **dict.fromkeys(("noise", "sharpen", "stroke", "invert"), 0.0),
}
ALL = AugmentConfig(probability=1.0, rotate=2.0, noise=0.1, invert=0.5)
TEXTS = ("Ink first,", "edges later: spikes read.", "a", "Lines of several lengths")


def only(**strengths):
    return AugmentConfig(**{**OFF, "probability": 1.0, **strengths})


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(height=32):
    return to_batch([draw_line(text, height) for text in TEXTS])


def places(height=32, width=200, count=16):
    """Lines whose channels tell each pixel's column and row (scaled to [0, 1]), so that a result tells its source."""
    x = torch.arange(width) / (width - 1) * torch.ones(height, 1)
    y = torch.arange(height)[:, None] / (height - 1) * torch.ones(width)
    images = torch.stack((x, y, torch.zeros_like(x))).expand(count, -1, -1, -1).clone()
    return images, torch.full((count,), width)


def sources(images, height=32, width=200):
    return images[:, 0] * (width - 1), images[:, 1] * (height - 1)


@pytest.mark.parametrize("config", [AugmentConfig(**OFF), AugmentConfig(probability=0.0)])
def test_nothing_asked_for_nothing_changed(config):
    images, widths = batch()
    images[0, :, :, -1] = 0.5  # not even padding
    out, new = augment(images, widths, config, seeded())
    assert torch.equal(out, images)
    assert torch.equal(new, widths)


def test_lines_that_meet_no_operation_keep_every_bit():
    images, widths = batch()
    many, wide = images.repeat(16, 1, 1, 1), widths.repeat(16)
    out, new = augment(many, wide, AugmentConfig(probability=0.1), seeded())
    whole = torch.nn.functional.pad(many, (0, out.shape[-1] - many.shape[-1]), value=1.0)
    same = (out == whole).flatten(1).all(1) & (new == wide)
    assert 20 <= same.sum() <= 56  # 0.9^5 of 64 are expected: 38


@given(st.integers(0, 2**32), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), st.sampled_from([1, 3]))
@settings(max_examples=10)
def test_range_shape_type_and_white_padding(seed, dtype, channels):
    images, widths = batch()
    images = images.expand(-1, channels, -1, -1).to(dtype)
    before = images.clone()
    out, new = augment(images, widths, ALL, seeded(seed))
    assert out.dtype == dtype
    assert out.shape == (4, channels, 32, math.ceil(images.shape[-1] * (1 + ALL.stretch)))
    assert new.dtype == widths.dtype
    assert (out >= 0).all()
    assert (out <= 1).all()
    for line, width in zip(out, new.tolist(), strict=True):
        assert (line[..., width:] == 1).all()
    assert torch.equal(images, before)  # the input is not written to


def test_the_generator_decides_all():
    images, widths = batch()
    first, second, other = (augment(images, widths, ALL, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])


@given(st.integers(0, 2**32), st.integers(1, 90), st.sampled_from([0.0, 0.3, math.nan]))
@settings(max_examples=10)
def test_padding_does_not_reach_a_line(seed, more, level):
    images, widths = batch()
    padded = torch.nn.functional.pad(images, (0, more))
    padded.masked_fill_(torch.arange(padded.shape[-1]) >= widths[:, None, None, None], level)
    plain, new = augment(images, widths, ALL, seeded(seed))
    out, again = augment(padded, widths, ALL, seeded(seed))
    assert torch.equal(new, again)
    # Not to the bit: grid_sample's coordinates are shares of the canvas.
    torch.testing.assert_close(out[..., : plain.shape[-1]], plain, atol=2e-3, rtol=0)
    assert (out[..., plain.shape[-1] :] == 1).all()


def test_the_other_lines_do_not_matter():
    images, widths = batch()
    out, new = augment(images, widths, ALL, seeded())
    mixed = images.clone()
    mixed[1:] = torch.rand(mixed[1:].shape, generator=seeded(5))
    other, _ = augment(mixed, widths.clone().fill_(40).index_fill(0, torch.tensor(0), int(widths[0])), ALL, seeded())
    assert torch.equal(out[0], other[0])
    fewer, some = augment(images[:2], widths[:2], ALL, seeded())
    # Up to rounding: on ARM torch's sine differs in its last bit by where in the tensor a number stands.
    torch.testing.assert_close(fewer, out[:2], rtol=0, atol=1e-5)
    assert torch.equal(some, new[:2])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(0, 2**32), st.data())
def test_widths_keep_within_the_stretch_and_above_what_the_text_needs(widths, seed, data):
    needed = torch.tensor(data.draw(st.lists(st.integers(0, 400), min_size=len(widths), max_size=len(widths))))
    before = torch.tensor(widths)
    images = torch.rand(len(widths), 1, 4, int(before.max()))
    out, after = augment(images, before, only(stretch=0.3), seeded(seed), needed)
    assert (after >= 1).all()
    assert (after <= out.shape[-1]).all()
    assert (after >= torch.minimum(needed, before)).all()
    assert (after >= (before * 0.7 - 0.5).floor()).all()
    assert (after <= (before * 1.3 + 0.5).ceil()).all()
    free = augment(images, before, only(stretch=0.3), seeded(seed))[1]
    assert torch.equal(after, torch.maximum(free, torch.minimum(needed, before)))  # the floor changes nothing else


def test_a_stretch_keeps_both_ends_in_place():
    images, widths = places()
    out, new = augment(images, widths, only(stretch=0.2), seeded())
    assert len(set(new.tolist())) > 8
    for line, width in zip(sources(out)[0], new.tolist(), strict=True):
        torch.testing.assert_close(line[0, 0].item(), 0.0, atol=0.2, rtol=0)
        torch.testing.assert_close(line[0, width - 1].item(), 199.0, atol=0.2, rtol=0)


@pytest.mark.parametrize("padding", [0, 117])
def test_rotation_turns_about_the_lines_own_centre(padding):
    images, widths = places(width=60)
    images = torch.nn.functional.pad(images, (0, padding), value=1.0)
    out, _ = augment(images, widths, only(rotate=8.0), seeded())
    x, y = sources(out[..., :60], width=60)
    middle = x[:, 15:17, 29:31].mean((1, 2)), y[:, 15:17, 29:31].mean((1, 2))
    torch.testing.assert_close(middle[0], torch.full((16,), 29.5), atol=1e-2, rtol=0)
    torch.testing.assert_close(middle[1], torch.full((16,), 15.5), atol=1e-2, rtol=0)
    angle = torch.atan2(y[:, 16, 40] - y[:, 16, 20], x[:, 16, 40] - x[:, 16, 20]) * 180 / math.pi
    assert angle.abs().max() <= 8.0 + 1e-2
    assert angle.min() < -4
    assert angle.max() > 4


def test_the_ends_of_a_long_line_stay_in_sight():
    images, widths = places(width=1000)
    out, _ = augment(images, widths, only(rotate=10.0), seeded())
    _, y = sources(out, width=1000)
    rows = torch.arange(32.0)[:, None]
    assert (y[:, 6:-6] - rows[6:-6]).abs().max() <= 32 / 8 + 0.1


@pytest.mark.parametrize(
    ("strength", "bound"),
    [({"scale": 0.1}, 15.5 * (1 / 0.9 - 1)), ({"shift": 0.1}, 3.2), ({"elastic": 2.0}, 2.0)],
    ids=["scale", "shift", "elastic"],
)
def test_no_row_moves_further_than_asked(strength, bound):
    images, widths = places()
    out, _ = augment(images, widths, only(**strength), seeded())
    x, y = sources(out)
    moved = (y - torch.arange(32.0)[:, None]).abs().amax((1, 2))
    assert moved.max() <= bound + 1e-2
    assert moved.max() > bound / 3
    sideways = (x - torch.arange(200.0)).abs().max()
    assert sideways <= (2.01 if "elastic" in strength else 0.01)


@given(st.integers(0, 2**32), st.floats(0.1, 12.0))
@settings(max_examples=20)
def test_the_elastic_warp_never_folds(seed, strength):
    images, widths = places(count=4)
    x, _ = sources(augment(images, widths, only(elastic=strength), seeded(seed))[0])
    assert (x.diff(dim=2) > -1e-3).all()


def test_a_slanted_line_keeps_the_middle_of_its_ends():
    images, widths = places()
    x, _ = sources(augment(images, widths, only(shear=0.5), seeded())[0])
    assert x[:, 8:24, 0].max() < 0.5  # column 0 is still drawn in the middle half of the rows
    assert x[:, 8:24, -1].min() > 198.5
    slants = (x[:, 20, 100] - x[:, 10, 100]) / 10
    assert slants.abs().max() <= 0.5
    assert slants.min() < -0.25
    assert slants.max() > 0.25


def test_ink_becomes_thinner_or_thicker():
    images, widths = batch()
    out, _ = augment(images.repeat(8, 1, 1, 1), widths.repeat(8), only(stroke=0.5), seeded())
    change = (out - images.repeat(8, 1, 1, 1)).flatten(1)
    thinner, thicker = (change >= 0).all(1), (change <= 0).all(1)
    assert (thinner | thicker).all()
    assert thinner.sum() > 4
    assert thicker.sum() > 4


def test_a_stroke_grows_by_one_pixel_at_full_strength():
    images = torch.ones(64, 1, 9, 9)
    images[:, :, 4, 4] = 0
    out, _ = augment(images, torch.full((64,), 9), only(stroke=1.0), seeded())
    grown = out[out[:, 0, 3, 3] < 1, 0]
    assert len(grown) > 16
    assert (grown[:, 3:6, 3:6] < 1).all()
    assert (grown[:, 0] == 1).all()
    assert (grown[:, :, 6:] == 1).all()


def test_noise_or_sharpen_but_not_both():
    images = torch.full((64, 1, 16, 40), 0.5)  # flat, so that sharpening leaves it alone
    images[:, :, :, 20:] = 0.6
    out, _ = augment(images, torch.full((64,), 40), only(noise=0.05, sharpen=1.0), seeded())
    deviation = (out[..., 4:16] - 0.5).flatten(1).std(1)
    step = out[:, 0, :, 20].mean(1) - out[:, 0, :, 19].mean(1)
    noisy = deviation > 1e-4
    assert 16 < noisy.sum() < 48
    assert (deviation <= 0.06).all()
    assert (step[~noisy] > 0.1).all()  # the edge is steeper
    assert (step[~noisy] < 0.1 + 0.1 * 2 / 3 + 1e-3).all()
    assert ((step[noisy] - 0.1).abs() < 0.05).all()


def test_noise_alone_is_always_noise():
    out, _ = augment(torch.full((16, 1, 64, 64), 0.5), torch.full((16,), 64), only(noise=0.05), seeded())
    grain = (out - 0.5).flatten(1)
    assert (grain.std(1) > 0).all()
    assert (grain.mean(1).abs() < 0.05 * 5 / 64).all()
    unit = grain / grain.std(1, keepdim=True)
    assert (unit @ unit.T / 4096).fill_diagonal_(0).abs().max() < 0.08  # no two lines share their grain


def test_inversion_changes_ink_and_paper_but_not_padding():
    images, widths = batch()
    out, _ = augment(images, widths, AugmentConfig(**{**OFF, "probability": 0.0, "invert": 1.0}), seeded())
    for line, flipped, width in zip(images, out, widths.tolist(), strict=True):
        assert torch.equal(flipped[..., :width], 1 - line[..., :width])
        assert (flipped[..., width:] == 1).all()


def test_half_precision_is_computed_in_single():
    images, widths = batch()
    half = images.bfloat16()
    out, _ = augment(half, widths, ALL, seeded())
    single, _ = augment(half.float(), widths, ALL, seeded())
    assert torch.equal(out, single.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(augment(half.float(), widths, ALL, seeded())[0], single)


def test_nothing_is_read_back_to_the_host():
    images = torch.empty(3, 1, 32, 100, device="meta")  # holds no values, so any look at one would raise
    widths = torch.empty(3, dtype=torch.long, device="meta")
    out, new = augment(images, widths, ALL, min_widths=widths)
    assert out.shape == (3, 1, 32, 115)
    assert new.shape == (3,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_no_synchronisation_and_the_same_lines_on_a_gpu():
    images, widths = batch()
    on_host, new = augment(images, widths, ALL, seeded())
    images, widths = images.cuda(), widths.cuda()
    augment(images, widths, ALL)  # warm-up
    torch.cuda.set_sync_debug_mode("error")
    try:
        out, wide = augment(images, widths, ALL, seeded(), min_widths=widths // 2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(wide.cpu(), new)
    torch.testing.assert_close(out.cpu(), on_host, atol=5e-3, rtol=0)


def test_no_line_becomes_wider_than_the_widest_that_is_read():
    images, widths = batch()
    strong = AugmentConfig(probability=1.0, stretch=0.5)
    limit = images.shape[-1]
    free = augment(images, widths, strong, torch.Generator().manual_seed(1))
    held = augment(images, widths, strong, torch.Generator().manual_seed(1), max_width=limit)
    assert free[0].shape[-1] > limit
    assert held[0].shape[-1] == limit
    assert torch.equal(held[1], free[1].clamp(max=limit))
    kept = free[1] <= limit
    assert kept.any()
    assert torch.allclose(held[0][kept], free[0][kept][..., :limit], atol=1e-4)  # sampling rounds by the canvas


def test_without_ink_paper_is_left():
    images, widths = batch(64)
    chosen = torch.tensor([True, False, True, False])
    found = without_ink(images, widths, chosen)
    assert images[chosen].min() < 0.3
    for line, width, was, empty in zip(found, widths.tolist(), images, chosen.tolist(), strict=True):
        assert torch.equal(line[..., width:], was[..., width:])
        assert line[..., :width].min() > 0.9 if empty else torch.equal(line, was)


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=10)
def test_a_line_without_ink_has_nothing_of_its_padding(seed, more):
    images = torch.randint(0, 200, (3, 1, 24, 50), generator=seeded(seed), dtype=torch.uint8)
    widths, chosen = torch.tensor([50, 31, 1]), torch.ones(3, dtype=torch.bool)
    wide = torch.nn.functional.pad(images, (0, more), value=255)
    found = without_ink(wide, widths, chosen)
    for number, width in enumerate(widths.tolist()):
        alone = without_ink(images[number : number + 1, ..., :width], widths[number : number + 1], chosen[:1])
        assert torch.equal(found[number, ..., :width], alone[0])
