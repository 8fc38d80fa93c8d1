import numpy as np
import pytest
import torch

from spikehtr.decoding.confidence import sureness
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.text import Charset

CHARSET = Charset(tuple("abc "))


def test_at_every_temperature_it_is_what_decoding_the_divided_logits_says():
    torch.manual_seed(0)
    logits, lengths = 4 * torch.randn(3, 20, 5), torch.tensor([20, 7, 13])
    logits[1, 7:] = 100.0  # past a line's own frames: means nothing
    temperatures = (0.5, 1.0, 3.0)
    found = sureness(logits, lengths, decode_greedy(logits, lengths, CHARSET), temperatures)
    for column, temperature in enumerate(temperatures):
        for line, expected in zip(found, decode_greedy(logits / temperature, lengths, CHARSET), strict=True):
            assert line.text == expected.text  # a temperature changes no text
            assert len(line.text) > 1
            assert line.characters[:, column] == pytest.approx(expected.confidences, rel=1e-6)
            assert line.line[column] == pytest.approx(expected.confidence, rel=1e-6)
    assert (np.diff(found[0].characters, axis=1) < 0).all()  # the hotter, the less sure


def test_a_line_without_characters():
    logits = torch.zeros(1, 4, 5)
    logits[..., 0] = 9.0  # blanks alone
    (line,) = sureness(logits, torch.tensor([4]), decode_greedy(logits, torch.tensor([4]), CHARSET), (1.0, 2.0))
    assert (line.text, line.characters.shape, line.line.shape) == ("", (0, 2), (2,))
