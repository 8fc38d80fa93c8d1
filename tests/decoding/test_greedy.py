"""Greedy decoding of whole batches, against the charset's own way with one line."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.decoding.greedy import Frames, decode_frames, decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.text import Charset

CHARSET = Charset(("a", "b", " "))


@given(
    st.integers(0, 9).flatmap(
        lambda size: st.lists(
            st.tuples(st.lists(st.integers(0, 3), min_size=size, max_size=size), st.integers(0, size)), max_size=4
        )
    )
)
def test_a_batch_decodes_as_its_lines_do(rows: list[tuple[list[int], int]]) -> None:
    size = len(rows[0][0]) if rows else 0
    labels = torch.tensor([row for row, _ in rows], dtype=torch.long).reshape(len(rows), size)
    log_probs = torch.randn(labels.shape, generator=torch.Generator().manual_seed(size)) - 3
    lengths = torch.tensor([length for _, length in rows], dtype=torch.long)
    found = decode_frames(Frames(HostCopy(log_probs), HostCopy(labels), HostCopy(lengths)), CHARSET)
    assert len(found) == len(rows)
    for line, (row, length), probs in zip(found, rows, log_probs.tolist(), strict=True):
        assert line.spans == CHARSET.decode_spans(row[:length])
        assert line.confidences == [math.exp(max(probs[span.start : span.end])) for span in line.spans]
        assert line.confidence == math.fsum(line.confidences) / max(1, len(line.confidences))


def test_labels_beyond_the_charset_are_refused() -> None:
    with pytest.raises(SpikeHTRError, match="label 4 is outside a charset of 4 labels"):
        decode_greedy(torch.eye(6)[None, :5], torch.tensor([5]), CHARSET)
