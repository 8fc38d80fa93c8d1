import gc
import re
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import draw_line, micro
from spikehtr import Line, Recognizer, SpikeHTR
from spikehtr.decoding.decoders import Begun, GreedyDecoder
from spikehtr.decoding.greedy import Decoded
from spikehtr.errors import SpikeHTRError
from spikehtr.readers.line_reader import _uncollected
from spikehtr.results.line import Alternative
from spikehtr.text import Charset
from spikehtr.weights import save_model

CHARSET = Charset.from_texts(["abcdefghijk"])
WORDS = ["ink", "a rather long line", "so", "spiking", "hand"]


@pytest.fixture
def recognizer():
    torch.manual_seed(0)
    config = micro(reducer__eta=9.0, reducer__gamma=0.4)
    net = SpikeHTR(config.model, len(CHARSET)).double()
    with torch.no_grad():
        net.head.linear.weight *= 6
    return Recognizer(net, config, CHARSET)


def images():
    return [draw_line(word, height=40, seed=i) for i, word in enumerate(WORDS)]


def test_one_image_gives_a_line_and_a_list_gives_a_list_in_order(recognizer):
    one = recognizer.transcribe(images()[1])
    many = recognizer.transcribe(images(), batch_size=2)
    assert isinstance(one, Line)
    assert len(many) == 5
    assert len({line.text for line in many}) > 1
    assert many[1].text == one.text
    assert recognizer.transcribe([]) == []


def test_batches_do_not_change_what_is_read(recognizer):
    alone = [recognizer.transcribe(image) for image in images()]
    for size in (1, 3, 16):
        for a, b in zip(alone, recognizer.transcribe(images(), batch_size=size), strict=True):
            assert a.text == b.text
            assert a.confidence == pytest.approx(b.confidence)
            assert [c[2:] for c in a.characters] == [c[2:] for c in b.characters]


def test_a_line_read_as_nothing_keeps_what_else_it_could_say(recognizer):
    """As a search with a language model finds it."""
    others = (Alternative("a", 0.4),)

    class Unsure(GreedyDecoder):
        def begin(self, logits, lengths):
            return Begun(lambda: lambda: [Decoded("", [], [], [], 0.0, (), others)] * len(lengths))

    recognizer.decoder = Unsure(CHARSET)
    line = recognizer.transcribe(images()[0])
    assert (line.text, line.characters, line.alternatives) == ("", [], others)


def test_several_threads_that_read_leave_the_garbage_collector_as_it_was():
    assert gc.isenabled()
    with ExitStack() as first:
        first.enter_context(_uncollected)
        with _uncollected:
            first.close()  # the first to come is the first to go
            assert not gc.isenabled()
        assert gc.isenabled()
    gc.disable()
    try:
        with _uncollected:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_characters_have_confidences_and_places_in_the_image(recognizer):
    for image, line in zip(images(), recognizer.transcribe(images()), strict=True):
        assert "".join(c.character for c in line.characters) == line.text
        assert 0 < line.confidence <= 1
        ends = 0.0
        for c in line.characters:
            assert 0 < c.confidence <= 1
            assert ends <= c.x0 < c.x1 <= image.shape[1]
            ends = c.x1


def test_any_kind_of_image(recognizer, tmp_path):
    pixels = images()[3]
    Image.fromarray(pixels).save(tmp_path / "line.png")
    rgb = np.repeat(pixels[:, :, None], 3, axis=2)
    kinds = [
        pixels,
        rgb,
        Image.fromarray(pixels),
        Image.fromarray(rgb),
        tmp_path / "line.png",
        str(tmp_path / "line.png"),
    ]
    assert len({line.text for line in recognizer.transcribe(kinds)}) == 1


def test_a_saved_model_reads_the_same(recognizer, tmp_path):
    save_model(tmp_path / "m.safetensors", recognizer.net.float(), recognizer.config, CHARSET)
    loaded = Recognizer.load(tmp_path / "m.safetensors", precision="fp32")
    assert [a.text for a in loaded.transcribe(images())] == [b.text for b in recognizer.transcribe(images())]


def test_wrong_input_is_refused_with_words(recognizer, tmp_path):
    with pytest.raises(SpikeHTRError, match=r"nowhere\.png"):
        recognizer.transcribe(tmp_path / "nowhere.png")
    with pytest.raises(SpikeHTRError, match="bytes"):
        recognizer.transcribe(np.zeros((4, 4)))
    with pytest.raises(SpikeHTRError, match="batch_size"):
        recognizer.transcribe(images(), batch_size=0)
    with pytest.raises(SpikeHTRError, match="no such file"):
        Recognizer.load(tmp_path / "none.safetensors")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "an image or a list of images can be read, not None"),
        (iter(()), "can be read, not builtins.tuple_iterator"),
        ([None], "an image is a path, a PIL image, an array of bytes or a file's bytes, not None"),
        ([torch.zeros(8, 8)], "a file's bytes, not torch.Tensor"),
    ],
)
def test_what_is_no_image_is_told(recognizer, given, says):
    with pytest.raises(SpikeHTRError, match=re.escape(says)):
        recognizer.transcribe(given)
