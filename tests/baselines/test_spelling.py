"""The recognisers that spell a line character by character."""

import pytest
import torch
from baselines_help import LABELS, SPELLING, net, small

from conftest import draw_line
from spikehtr import Recognizer
from spikehtr.assets import FONTS
from spikehtr.baselines.autoregressive import spelling_costs
from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.data.compiling import compile_store
from spikehtr.data.synth import synthesise
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.export.tracing import trace
from spikehtr.model.network import Transcripts
from spikehtr.model.reducer import ctc_min_length
from spikehtr.registry import build
from spikehtr.text import BLANK, Charset
from spikehtr.training.loop import BEST, TrainingRun
from spikehtr.training.losses import spike_htr_loss
from spikehtr.training.step import Prepared
from spikehtr.weights import load_model

CHARSET = Charset(tuple("abcdef"))


@pytest.mark.parametrize("arch", SPELLING)
def test_a_line_s_result_does_not_depend_on_batch_or_padding(arch):
    made = net(arch)
    made.decoder.head.bias.data[BLANK] -= 1  # it goes on writing
    widths = [41, 64, 7, 90]
    lines = [torch.rand(1, 32, width, dtype=torch.double) for width in widths]
    batch = torch.rand(4, 1, 32, 99, dtype=torch.double)  # rubbish where it is padded
    for image, line in zip(batch, lines, strict=True):
        image[..., : line.shape[-1]] = line
    together = made(batch, torch.tensor(widths))
    assert together.lengths.max() > 20
    for row, line in enumerate(lines):
        alone = made(line[None])
        length = int(alone.lengths[0])
        assert length == together.lengths[row]
        assert torch.equal(alone.spans[0, :length], together.spans[row, :length])
        assert torch.allclose(alone.logits[0, :length], together.logits[row, :length], rtol=0, atol=1e-10)


@pytest.mark.parametrize("arch", SPELLING)
def test_reading_with_cached_keys_says_what_teaching_would(arch):
    made = net(arch)
    made.decoder.head.bias.data[BLANK] -= 1
    images, widths = torch.rand(2, 1, 32, 96, dtype=torch.double), torch.tensor([96, 50])
    out = made(images, widths)
    steps = out.logits[:, ::2]  # without the blanks between
    read = steps.argmax(-1)
    ink, own, whole = _inside(made, images, widths)
    memory = made.memory(made.features(ink, own), whole)
    taught = made.decoder.teach(memory, Transcripts(read, torch.tensor([read.shape[1]] * 2)), noise=0.0)
    for row, length in enumerate((out.lengths + 1) // 2):
        assert torch.allclose(taught[row, :length], steps[row, :length], rtol=0, atol=1e-10)


def _inside(made, images, widths):
    from spikehtr.baselines.common import Columns

    images, widths = made.prepare(images, widths)
    own = Columns(widths, images.shape[-1])
    return own(1 - images), own, -(-widths // made.stride)


@pytest.mark.parametrize("arch", SPELLING)
def test_frames_are_read_as_what_was_spelled(arch):
    made = net(arch)
    head = made.decoder.head
    head.weight.data.zero_()
    image = torch.rand(1, 1, 32, 40, dtype=torch.double)
    head.bias.data = torch.tensor([0.0, 3.0, 0, 0, 0, 0, 0], dtype=torch.double)  # always an a, and never the end
    out = made(image)
    (line,) = decode_greedy(out.logits, out.lengths, CHARSET)
    tokens = -(-40 // made.stride)
    assert line.text == "a" * (tokens * made.stride // 4)  # no character is narrower than four pixels
    sure = float(head.bias.data.softmax(0)[1])
    assert line.confidences == pytest.approx([sure] * len(line.text))
    places = out.spans[0, : out.lengths[0]]
    assert (places[:, 1] == places[:, 0] + 1).all()
    assert (places[1:, 0] >= places[:-1, 0]).all()
    assert places.max() <= tokens
    head.bias.data[BLANK] = 9.0
    out = made(image)
    assert out.lengths.tolist() == [1]
    assert decode_greedy(out.logits, out.lengths, CHARSET)[0].text == ""


def test_costs_are_the_mean_over_characters_and_the_end():
    logits = torch.randn(2, 4, LABELS, dtype=torch.double)
    text = Transcripts(torch.tensor([[3, 5, 1], [2, 6, 6]]), torch.tensor([3, 1]))
    costs = spelling_costs(logits, text, 0.0)
    log_probs = logits.log_softmax(-1)
    wanted = [[3, 5, 1, 0], [2, 0]]
    for row, labels in enumerate(wanted):
        spelled = -sum(log_probs[row, place, label] for place, label in enumerate(labels)) / len(labels)
        assert costs[row].item() == pytest.approx(spelled.item())
    assert (spelling_costs(logits, text, 0.4) != costs).all()


@pytest.mark.parametrize("arch", SPELLING)
def test_every_parameter_learns(arch):
    config = small(arch, model__baseline__dropout=0.0)
    torch.manual_seed(1)
    made = build(config.model, LABELS).train()
    targets, lengths = torch.tensor([[1, 1, 2], [3, 4, 5]]), torch.tensor([3, 2])
    given = Prepared(
        torch.rand(2, 1, 32, 90), torch.tensor([90, 80]), ctc_min_length(targets, lengths), targets, lengths
    )
    losses = spike_htr_loss(made(*given.of(made)), targets, lengths, made, config.training)
    assert torch.equal(losses.total, losses.main)
    losses.total.backward()
    silent = [name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_what_the_decoder_is_shown_is_wrong_at_times():
    made = net("dan")
    text = Transcripts(torch.tensor([[1, 2, 3]]), torch.tensor([3]))
    ink, own, whole = _inside(made, torch.rand(1, 1, 32, 64, dtype=torch.double), torch.tensor([64]))
    memory = made.memory(made.features(ink, own), whole)
    plain, noisy = (made.decoder.teach(memory, text, noise) for noise in (0.0, 0.99))
    assert torch.equal(plain[:, 0], noisy[:, 0])  # the start is never another
    assert not torch.allclose(plain, noisy)


def test_what_they_are_not_made_for_is_refused():
    made = net("dan").train()
    with pytest.raises(SpikeHTRError, match="dan learns from transcripts"):
        made(torch.rand(1, 1, 32, 64, dtype=torch.double))
    with pytest.raises(SpikeHTRError, match="dan has no CTC head"):
        Config.preset("dan").with_reducer()
    with pytest.raises(SpikeHTRError, match="character by character"):
        trace(made)


@pytest.mark.parametrize("arch", [pytest.param("par", marks=pytest.mark.slow), "dan"])
def test_a_run_is_trained_validated_saved_and_read(arch, tmp_path):
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin"], FONTS, 12, tmp_path / "made", height=32)
    store = compile_store([tmp_path / "made"], tmp_path / "s.arrow", height=32)[0]
    config = small(arch, training__batch_size=6, training__epochs=1, training__warmup_epochs=0.5)
    lines = Lines(store, store.rows(), store.charset, config.data.max_width)
    held_out = Lines(store, store.rows()[:4], store.charset, config.data.max_width, labelled=False)
    (tmp_path / "r").mkdir()
    run = TrainingRun(config, lines, held_out, tmp_path / "r")
    run.fit()
    assert run.best < float("inf")
    loaded = load_model(tmp_path / "r" / BEST)
    assert loaded.config == config
    line = Recognizer.load(tmp_path / "r" / BEST).transcribe(draw_line("ink", 32, 0))
    assert 0 <= line.confidence <= 1
    again = TrainingRun(config, lines, held_out, tmp_path / "r")
    again.resume()
    assert again.finished
    assert all(torch.equal(a, b) for a, b in zip(again.net.parameters(), run.net.parameters(), strict=True))
