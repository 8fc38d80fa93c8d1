import pytest
import torch
from baselines_help import ARCHS, LABELS, net, small

from spikehtr import SpikeHTR
from spikehtr.baselines.htr_vt import positions, span_mask
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.model.reducer import ctc_min_length
from spikehtr.registry import build
from spikehtr.training.losses import spike_htr_loss
from spikehtr.training.step import Prepared


@pytest.mark.parametrize(
    ("arch", "millions", "stride"),
    [
        ("cnn-blstm", 9.6, 8),
        ("crnn", 18.2, 4),
        ("gated-crnn", 0.73, 4),
        ("retsinas", 7.4, 8),
        ("gfcn", 1.376, 4),
        ("van", 1.73, 8),
        ("span", 18.2, 8),
        ("origaminet", 39.0, 4),
        ("htr-vt", 53.5, 4),
        ("htr-convtext", 65.9, 4),
        ("kraken", 4.02, 8),
        ("par", 54.7, 16),
        ("dan", 7.6, 8),
    ],
)
def test_published_size(arch, millions, stride):
    """With 80 labels, the blank among them: as many as the sources have on IAM."""
    config = Config.preset(arch)
    with torch.device("meta"):
        made = build(config.model, 80)
    read_by = [p for name, p in made.named_parameters() if not name.startswith("context.")]  # that is for training
    assert sum(p.numel() for p in read_by) == pytest.approx(1e6 * millions, rel=0.01)
    assert made.stride == stride
    resized = (
        "cnn-blstm",
        "gated-crnn",
        "retsinas",
        "htr-vt",
        "htr-convtext",
    )  # onto a canvas; the others leave widths as they are
    assert (config.data.max_width == 8 * config.model.height) == (arch in resized)


def test_the_default_is_spike_htr():
    assert type(build(small("retsinas", model__arch="spike-htr").model, LABELS)) is SpikeHTR
    with pytest.raises(SpikeHTRError, match=r"model\.arch is retsinas: spikehtr\.registry\.build"):
        SpikeHTR(Config.preset("retsinas").model, LABELS)
    with pytest.raises(SpikeHTRError, match=r"cfg\.model, not Config"):
        build(Config.preset("retsinas"), LABELS)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("reducer", [False, True])
def test_shapes_and_lengths_over_odd_widths(arch, reducer):
    made = net(arch, reducer=reducer)
    widths = torch.tensor([1, 2, made.stride - 1, made.stride, made.stride + 1, 61, 67])
    out = made(torch.rand(len(widths), 1, 32, 67, dtype=torch.double), widths)
    tokens = -(-widths // made.stride)
    assert (out.lengths >= 1).all()
    assert (out.lengths <= tokens).all()
    if not reducer:
        assert torch.equal(out.lengths, tokens)
        assert (out.keep_ratio == 1).all()
    assert out.logits.shape == (len(widths), int(out.lengths.max()), LABELS)
    assert out.logits.isfinite().all()
    assert (out.aux_logits is not None) == (reducer or arch == "retsinas")
    for row, length in enumerate(out.lengths):
        spans = out.spans[row, :length]  # they cover the line's tokens in order, without a gap
        assert spans[0, 0] == 0
        assert spans[-1, 1] == tokens[row]
        assert torch.equal(spans[1:, 0], spans[:-1, 1])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("reducer", [False, True])
def test_a_line_s_result_does_not_depend_on_batch_or_padding(arch, reducer):
    eager = {"model__reducer__eta": 9.0, "model__reducer__tau": 0.13, "model__reducer__gamma": 0.2}
    made = net(arch, reducer=reducer, **eager)
    if reducer:
        made.shortcut.conv.bias.data[0] += 0.5  # blanks: some are merged by any random head
    widths = [41, 64, 7, 90]
    lines = [torch.rand(1, 32, width, dtype=torch.double) for width in widths]
    batch = torch.rand(4, 1, 32, 99, dtype=torch.double)  # rubbish where it is padded
    for image, line in zip(batch, lines, strict=True):
        image[..., : line.shape[-1]] = line
    together = made(batch, torch.tensor(widths))
    if reducer:
        assert (together.keep_ratio < 1).any()
    for row, line in enumerate(lines):
        alone = made(line[None])
        length = int(alone.lengths[0])
        assert length == together.lengths[row]
        assert torch.equal(alone.spans[0], together.spans[row, :length])
        assert torch.allclose(alone.logits[0], together.logits[row, :length], rtol=0, atol=1e-10)
        if alone.aux_logits is not None:
            assert torch.allclose(alone.aux_logits[0], together.aux_logits[row, :length], rtol=0, atol=1e-10)


@pytest.mark.parametrize("arch", ARCHS)
def test_lines_that_are_known_to_fill_the_canvas_need_no_masks_and_read_the_same(arch):
    made = net(arch)
    images = torch.rand(2, 1, 32, 64, dtype=torch.double)
    assert torch.allclose(made(images).logits, made(images, [64, 64]).logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_line_s_ink_matters_up_to_its_last_column(arch):
    made = net(arch)
    image = torch.full((1, 1, 32, 61), 0.9, dtype=torch.double)
    other = image.clone()
    other[..., 60] = 0.1
    assert not torch.allclose(made(image).logits, made(other).logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("reducer", [False, True])
def test_every_parameter_learns(arch, reducer):
    config = small(arch, reducer=reducer, model__reducer__eta=9.0, model__baseline__dropout=0.0)  # or some drop out
    torch.manual_seed(1)
    made = build(config.model, LABELS).train()
    targets, lengths = torch.tensor([[1, 1, 2], [3, 4, 0]]), torch.tensor([3, 2])
    need = ctc_min_length(targets, lengths)
    given = Prepared(torch.rand(2, 1, 32, 90), torch.tensor([90, 80]), need, targets, lengths)
    out = made(*given.of(made))
    assert (out.lengths >= need).all()
    spike_htr_loss(out, targets, lengths, made, config.training).total.backward()
    silent = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_the_preview_of_a_reducer_passes_no_gradient_unless_asked():
    for asked in (False, True):
        made = net("cnn-blstm", reducer=True, model__reducer__preview_gradient=asked, model__reducer__gamma=0.1)
        made.shortcut.conv.bias.data[0] += 5  # blanks: much is merged, by the preview's weights
        out = made(torch.rand(1, 1, 32, 90, dtype=torch.double))
        out.logits.sum().backward()
        assert (made.shortcut.conv.weight.grad is not None) == asked


def test_the_reducer_s_preview_is_not_drawn_by_lot():
    made = net("retsinas", reducer=True).train()
    tokens = torch.rand(1, 5, made.shortcut.conv.in_channels, dtype=torch.double)
    assert torch.equal(made.shortcut.preview(tokens), made.shortcut.preview(tokens))
    assert not torch.equal(made.shortcut(tokens), made.shortcut(tokens))  # dropout, as its paper has it


def test_span_mask():
    lengths = torch.tensor([100, 60, 19, 3])
    torch.manual_seed(0)
    masks = torch.stack([span_mask(lengths, 110, ratio=0.4, span=8) for _ in range(200)])
    counts = masks.sum(-1)
    assert (counts <= torch.tensor([40, 24, 0, 0])).all()  # floor(0.4 L / 8) spans of 8
    assert (counts[:, 0] >= 8).all()
    assert counts[:, 0].float().mean() > 28  # they overlap at times
    assert masks[:, 0, :100].any(0).all()  # every place has its turn
    assert not masks[:, 0, 100:].any()
    assert not masks[:, 1, 60:].any()
    assert not (masks[:, 0, :60] == masks[:, 1, :60]).all()  # each line its own
    assert not span_mask(lengths, 110, ratio=0.0, span=8).any()


def test_masking_belongs_to_training():
    made = net("htr-vt", model__baseline__mask_span=2)
    images = torch.rand(2, 1, 32, 96, dtype=torch.double)
    before = made(images).logits
    made.mask_token.data += 1
    assert torch.equal(made(images).logits, before)


def test_positions_differ_and_do_not_hang_on_the_length():
    table = positions(40, 12)
    assert torch.equal(positions(7, 12), table[:7])
    assert torch.cdist(table, table).fill_diagonal_(9).min() > 0.1


def test_a_line_normalised_logit_has_unit_scale():
    out = net("htr-vt")(torch.rand(2, 1, 32, 96, dtype=torch.double), [96, 40])
    for row, length in enumerate(out.lengths):
        own = out.logits[row, :length]
        assert own.mean().item() == pytest.approx(0, abs=1e-9)
        assert own.std(correction=0).item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("arch", "override", "says"),
    [
        ("retsinas", "model.height=24", "multiple of 16"),
        ("cnn-blstm", "model.height=20", "multiple of 8"),
        ("kraken", "model.reducer.mode=keep-and-merge", r"on kraken needs training\.aux_weight above 0"),
        ("kraken", "model.baseline.scale=2.0", "less than or equal to 1"),
    ],
)
def test_settings_that_do_not_fit(arch, override, says):
    with pytest.raises(SpikeHTRError, match=says):
        Config.preset(arch).with_overrides([override])
