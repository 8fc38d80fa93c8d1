import pytest
import torch

from spikehtr.decoding.greedy import decode_greedy
from spikehtr.text import Charset


def logits_for(frames, sure=0.9, labels=4):
    """One line whose frames are `frames`, each with probability `sure`."""
    p = torch.full((1, len(frames), labels), (1 - sure) / (labels - 1))
    for i, label in enumerate(frames):
        p[0, i, label] = sure
    return p.log()


def test_text_spans_and_confidences():
    logits = logits_for([0, 1, 1, 0, 2, 3])
    logits[0, 2] = torch.tensor([0.2, 0.7, 0.05, 0.05]).log()  # a less sure frame of the first character
    logits[0, 5] = torch.tensor([0.2, 0.1, 0.1, 0.6]).log()
    (line,) = decode_greedy(logits, torch.tensor([6]), Charset(("a", "b", "c")))
    assert line.text == "abc"
    assert line.spans == [("a", 1, 3), ("b", 4, 5), ("c", 5, 6)]
    assert line.confidences == pytest.approx([0.9, 0.9, 0.6])
    assert line.confidence == pytest.approx(0.8)  # sure blanks do not make a line surer


def test_frames_past_the_length_do_not_count():
    logits = logits_for([1, 0, 2, 2])
    (line,) = decode_greedy(logits, torch.tensor([2]), Charset(("a", "b", "c")))
    assert line.text == "a"
    assert line.confidence == pytest.approx(0.9)


def test_of_a_blank_line_nothing_is_sure():  # so that it is among the first to be looked at
    (line,) = decode_greedy(logits_for([0, 0, 0]), torch.tensor([3]), Charset(("a", "b", "c")))
    assert (line.text, line.spans, line.confidences, line.confidence) == ("", [], [], 0.0)
