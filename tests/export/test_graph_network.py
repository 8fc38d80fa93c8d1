"""An exported graph in the place of a network, whatever library runs it: here a function that notes what it is fed."""

import torch
from export_help import CHARSET, images

from conftest import micro
from spikehtr.export.reading import Header, recognizer
from spikehtr.inference import PlainReader, make_reader


def noting(precision):
    """A reader on a graph whose frame says how many columns its line has, and the shapes that the graph was fed."""
    fed = []

    def run(images, widths):
        fed.append((tuple(images.shape), widths.tolist()))
        tokens = (widths + 3) // 4
        size = int(tokens.max())
        logits = torch.zeros(len(images), size, len(CHARSET))
        logits[torch.arange(len(images)), 0, tokens % 11 + 1] = 9.0
        place = torch.arange(size)
        return logits, tokens, torch.stack([place, place + 1], -1).expand(len(images), -1, -1)

    return recognizer(Header(micro(), CHARSET, 1, precision), run), fed


def test_a_graph_is_read_by_its_own_library():
    """Its configuration is a spiking network's, but no engine of ours can take its place."""
    file, fed = noting("fp32")
    assert type(file.reader) is PlainReader
    assert type(make_reader(file.net, "fp32", graphs="none")) is PlainReader  # as `predict` asks for one
    lines = file.transcribe(images(), batch_size=5)
    assert [shape[0] for shape, _ in fed] == [5]
    assert all(len(line.text) == 1 for line in lines)


def test_an_int8_graph_gets_one_line_at_a_time_and_nothing_beside_it():
    exact, _ = noting("fp32")
    file, fed = noting("int8")
    lines = file.transcribe(images(), batch_size=5)
    assert [shape[0] for shape, _ in fed] == [1] * 5
    assert all(shape[3] - 4 < width <= shape[3] for shape, (width,) in fed)
    assert lines == exact.transcribe(images(), batch_size=5)
