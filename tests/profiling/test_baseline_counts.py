import pytest
import torch

from spikehtr.config import Config
from spikehtr.profiling.baseline_counts import count_baseline


@pytest.mark.parametrize(
    ("arch", "scale", "features", "sequence", "heads"),
    [
        # 64 x 64 pixels. Convolutions: places x channels in x kernel x channels out.
        (
            "kraken",
            1 / 8,
            64 * 64 * 39 * 4 + 32 * 32 * 4 * 39 * 4 + 16 * 16 * 4 * 27 * 8 + 8 * 8 * 8 * 27 * 8,
            8 * 2 * 4 * 25 * ((64 + 25) + 2 * (50 + 25)),
            8 * 50 * 80,
        ),
        (
            "cnn-blstm",
            1 / 8,
            64 * 64 * 9 * 2 + 32 * 32 * 2 * 9 * 4 + 16 * 16 * 4 * 9 * 6 + 8 * 8 * 6 * 9 * 8 + 8 * 8 * 8 * 9 * 10,
            8 * 2 * 4 * 32 * ((80 + 32) + 4 * (64 + 32)),
            8 * 64 * 80,
        ),
    ],
)
def test_counts_are_those_done_by_hand(arch, scale, features, sequence, heads):
    config = Config.preset(arch).with_overrides({"model.baseline.scale": scale, "model.height": 64})
    c = count_baseline(config, 80, 64)
    assert c.macs == {"features": features, "sequence part": sequence, "heads": heads}
    assert c.dense_macs == features + sequence + heads
    assert (c.tokens_in, c.tokens_read) == (8, 8)


def test_attention_grows_with_the_square_of_the_length():
    config = Config.preset("htr-vt").with_overrides({"model.baseline.scale": 1 / 8, "model.height": 32})
    short, long = (count_baseline(config, 80, width).macs["sequence part"] for width in (128, 256))
    assert long - 2 * short == 4 * 2 * 96 * (64**2 - 2 * 32**2)  # layers, products, d


def test_the_reducer_spares_the_sequence_part_and_the_counting_no_random_number():
    config = Config.preset("retsinas").with_overrides({"model.baseline.scale": 1 / 8, "model.height": 32})
    torch.manual_seed(0)
    whole = count_baseline(config, 80, 400)
    reduced = count_baseline(config.with_reducer(), 80, 400)
    assert (whole.tokens_read, reduced.tokens_in, reduced.tokens_read) == (50, 50, 34)
    assert reduced.macs["sequence part"] == whole.macs["sequence part"] * 34 // 50
    assert reduced.macs["heads"] > whole.macs["heads"]  # the preview
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), after)
