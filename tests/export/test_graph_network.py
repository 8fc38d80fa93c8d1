"""An exported graph in the place of a network, whatever library runs it: here a function that notes what it is fed."""

import torch
from export_help import CHARSET, images

from conftest import micro
from spikehtr.export.exported_reader import Header, recognizer
from spikehtr.readers import make_reader
from spikehtr.readers.torch import TorchReader


def noting():
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

    return recognizer(Header(micro(), CHARSET, 1, "fp32"), run), fed


def test_a_graph_is_read_by_its_own_library():
    """Its configuration is a spiking network's, but no engine of ours can take its place."""
    file, fed = noting()
    assert type(file.reader) is TorchReader
    assert type(make_reader(file.net, "fp32", recorded=False)) is TorchReader  # as `predict` asks for one
    lines = file.transcribe(images(), batch_size=5)
    assert [shape[0] for shape, _ in fed] == [5]
    assert all(len(line.text) == 1 for line in lines)
