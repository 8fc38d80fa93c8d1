"""Readers: whatever way a batch takes, its lines are read as the network itself reads them."""

from copy import deepcopy

import pytest
import torch

from conftest import ask_for, draw_line, micro
from readers_help import Rehearsals
from spikehtr import SpikeHTR, ops
from spikehtr.config import Config
from spikehtr.data.batching import pad_right
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.model.reducer import ctc_min_length
from spikehtr.readers import Reader, as_floats, make_reader, uses_bf16
from spikehtr.readers.cuda_graphs import CudaGraphReader, round_up
from spikehtr.readers.torch import TorchReader, full_precision
from spikehtr.recognizer import Recognizer
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.training.losses import spike_htr_loss
from spikehtr.weights import save_model

CHARSET = Charset.from_texts(["abcdefghijk"])
GPU = torch.cuda.is_available()


def network(**overrides):
    torch.manual_seed(0)
    net = SpikeHTR(micro(reducer__eta=9.0, reducer__gamma=0.4, **overrides).model, len(CHARSET)).eval()
    with torch.no_grad():
        net.head.linear.weight *= 6
    return net


def lines(*words):
    return pad_right([draw_line(word, seed=seed) for seed, word in enumerate(words)])


def rehearsed(net, half=False):
    reader = CudaGraphReader(net, half)
    reader.recordings = Rehearsals()
    return reader


def assert_same(found, expected, atol=1e-5):
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.allclose(found.keep_ratio, expected.keep_ratio)
    for row, n in enumerate(expected.lengths.tolist()):
        assert torch.allclose(found.logits[row, :n], expected.logits[row, :n], atol=atol)
        assert torch.allclose(found.aux_logits[row, :n], expected.aux_logits[row, :n], atol=atol)
        assert torch.equal(found.spans[row, :n], expected.spans[row, :n])


BATCHES = [("ink", "a long line", "so"), ("hand", "other words", "x"), ("nib", "still others", "on"), ("a",), ("b",)]


def test_recorded_passes_read_what_the_network_reads():
    net = network().double()  # in fp32 a spike within rounding of the threshold may flip with the padding
    reader, plain = rehearsed(net), TorchReader(net)
    assert isinstance(reader, Reader)
    found = [reader(*lines(*words)) for words in BATCHES]
    for words, out in zip(BATCHES, found, strict=True):  # all read before: a replay must not touch earlier results
        expected = plain(*lines(*words))
        assert_same(out, expected)
        assert len(out.logits) == len(words)
    kept = reader.recordings.kept
    assert len({tuple(key[0]) for key in kept}) == len(kept) >= 1
    assert sum(reader.recordings.seen.values()) == len(BATCHES)


def test_nothing_is_replayed_where_the_reference_is_asked_for():
    net = network()
    reader, seen = rehearsed(net), []
    with net.mixer.register_forward_hook(lambda *_: seen.append(1)), ops.reference():
        for _ in range(4):
            reader(*lines("ink"))
    assert len(seen) == 4
    assert not reader.recordings.seen


@pytest.mark.parametrize(("count", "width", "shape"), [(1, 1, (1, 64)), (3, 64, (4, 64)), (5, 65, (8, 100))])
def test_sizes_are_rounded_up_with_white(count, width, shape):
    images, widths = torch.zeros(count, 1, 8, width, dtype=torch.uint8), torch.full((count,), width)
    more, wider = round_up(images, widths, widest=100)
    assert (more.shape[0], more.shape[-1]) == shape
    assert more.dtype == torch.uint8
    assert (more[:count, ..., :width] == 0).all()
    assert (more[count:] == 255).all()
    assert (more[..., width:] == 255).all()
    assert wider.tolist() == [width] * count + [1] * (shape[0] - count)
    assert (round_up(images.float(), widths, 100)[0].amax() == 1) == (more.shape != images.shape)


def test_a_batch_that_does_not_fit_is_halved_and_the_next_one_at_once(monkeypatch):
    net = network().double()
    reader, sizes = TorchReader(net), []
    words = ("ink", "hand", "so", "spiking", "nib")
    expected = reader(*lines(*words))
    read = TorchReader.read

    def small(self, images, widths):
        sizes.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("too large")
        return read(self, images, widths)

    monkeypatch.setattr(TorchReader, "read", small)
    assert_same(reader(*lines(*words)), expected)
    assert sizes == [5, 2, 1, 2]  # three lines are more than half of five
    sizes.clear()
    assert_same(reader(*lines(*words)), expected)
    assert max(sizes) == 2
    monkeypatch.setattr(TorchReader, "read", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("too large")))
    with pytest.raises(SpikeHTRError, match="out of memory on a line of"):
        reader(*lines("ink"))


def test_the_choice_of_a_reader():
    net = network()
    assert not isinstance(make_reader(net), CudaGraphReader)  # a CPU records nothing
    assert isinstance(make_reader(net), Reader)
    assert make_reader(net).batch_size == 16
    cpu = torch.device("cpu")
    assert [uses_bf16(precision, cpu) for precision in ("auto", "fp32", "bf16")] == [False, False, True]
    baseline = build(Config.preset("kraken").with_overrides({"model.baseline.scale": 0.1}).model, 5)
    assert type(make_reader(baseline)) is TorchReader
    with pytest.raises(SpikeHTRError, match="auto, fp32, bf16 or fp64"):
        make_reader(net, "fp16")


def test_full_precision_puts_back_what_it_found():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled
    with full_precision():
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.enabled == before[2]
    after = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.cudnn.enabled
    assert after == before


def test_a_recognizer_reads_with_the_reader_it_is_given():
    net, config = network().double(), micro(reducer__eta=9.0, reducer__gamma=0.4)
    images = [draw_line(word, seed=i) for i, word in enumerate(("ink", "a long line", "so", "hand", "nib"))]
    plain = Recognizer(net, config, CHARSET)
    found = Recognizer(net, config, CHARSET, reader=rehearsed(net)).transcribe(images, batch_size=2)
    for a, b in zip(found, plain.transcribe(images), strict=True):
        assert a.text == b.text
        assert a.confidence == pytest.approx(b.confidence)
        assert [c[2:] for c in a.characters] == [c[2:] for c in b.characters]


def test_bf16_on_request(tmp_path):
    net, config = network(neuron="gelu", timesteps=1), micro(neuron="gelu", timesteps=1)
    save_model(tmp_path / "m.safetensors", net, config, CHARSET)
    exact, rough = (Recognizer.load(tmp_path / "m.safetensors", precision=p).reader for p in ("auto", "bf16"))
    a, b = exact(*lines("ink", "hand")).logits, rough(*lines("ink", "hand")).logits
    assert b.dtype == torch.bfloat16
    assert a.shape != b.shape or not torch.equal(a, b.float())


def test_fp64_on_request_reads_by_the_reference_in_double_precision(tmp_path):
    net, config = network(timesteps=1), micro(timesteps=1)
    save_model(tmp_path / "m.safetensors", net, config, CHARSET)
    read = Recognizer.load(tmp_path / "m.safetensors", precision="fp64")
    pixels, widths = lines("ink", "hand")
    found = read.reader(pixels, widths)
    with torch.no_grad():
        wanted = deepcopy(net).double()(as_floats(pixels).double(), widths)
    assert found.logits.dtype == torch.float64
    assert torch.equal(found.logits, wanted.logits)
    assert read.transcribe(draw_line("ink", seed=0)).confidence > 0


WORDS = ["ink", "spike", "hand"]


def learned():
    """A network that knows its lines by heart, its characters, and the lines."""
    torch.manual_seed(0)
    device = torch.device("cuda" if GPU else "cpu")
    quick = {
        "height": 24,
        "encoder__expansion": 1.0,
        "encoder__bypass_init": 0.3,
        "mixer__dropout": 0.0,
        "mixer__drop_path": 0.0,
    }
    config, charset = micro(timesteps=1, **quick), Charset.from_texts(WORDS)
    net = SpikeHTR(config.model, len(charset)).to(device)
    images, widths = pad_right([draw_line(word, 24, seed) for seed, word in enumerate(WORDS)])
    labels = [torch.tensor(charset.encode(word)) for word in WORDS]
    targets = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True).to(device)
    counts = torch.tensor([len(word) for word in WORDS], device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=8e-3)
    for _ in range(50):
        out = net.train()(as_floats(images).to(device), widths, ctc_min_length(targets, counts))
        optimizer.zero_grad()
        spike_htr_loss(out, targets, counts, net, config.training).total.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return net.eval(), charset, images, widths


def test_bf16_and_recordings_read_what_the_reference_reads_in_fp32(monkeypatch):
    """Of lines that the network is sure of. On a GPU passes are recorded, elsewhere rehearsed."""
    net, charset, images, widths = learned()
    reader = CudaGraphReader(net, half=True) if GPU else rehearsed(net, half=True)
    found = [reader(images, widths) for _ in range(3)][-1]
    assert reader.recordings.kept
    assert [line.text for line in decode_greedy(found.logits, found.lengths, charset)] == WORDS
    ask_for(monkeypatch, "reference")
    expected = TorchReader(net)(images, widths)
    assert [line.text for line in decode_greedy(expected.logits, expected.lengths, charset)] == WORDS


def test_bf16_without_spikes_is_close():
    """Spikes flip or do not, and one flips others; without them rounding stays small."""
    net = network(neuron="gelu", timesteps=1, reducer__mode="none")
    reader = rehearsed(net, half=True)
    batch = lines("ink", "a long line", "so")
    expected = TorchReader(net)(*batch)
    for _ in range(3):
        found = reader(*batch)
        for row, n in enumerate(expected.lengths.tolist()):
            gap = (found.logits[row, :n] - expected.logits[row, :n]).norm() / expected.logits[row, :n].norm()
            assert 0 < gap < 0.03
