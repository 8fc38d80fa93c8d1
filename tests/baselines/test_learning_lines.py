"""Each baseline learns a handful of drawn words, and then reads them in evaluation mode."""

import pytest
import torch
from baselines_help import small

from conftest import draw_line
from spikehtr.data.batching import to_batch
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.model.reducer import ctc_min_length
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.training.losses import spike_htr_loss
from spikehtr.training.step import Prepared

WORDS = ["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"]
CHARSET = Charset.from_texts(WORDS)


@pytest.mark.parametrize(
    ("arch", "reducer", "rate"),
    [
        pytest.param("crnn", False, 2e-3, marks=pytest.mark.slow),
        pytest.param("gated-crnn", False, 3e-3, marks=pytest.mark.slow),
        pytest.param("gfcn", False, 2e-3, marks=pytest.mark.slow),
        pytest.param("van", False, 2e-3, marks=pytest.mark.slow),
        pytest.param("van", True, 2e-3, marks=pytest.mark.slow),
        pytest.param("span", False, 2e-3, marks=pytest.mark.slow),
        pytest.param("origaminet", False, 5e-3, marks=pytest.mark.slow),
        pytest.param("htr-convtext", False, 1e-3, marks=pytest.mark.slow),
        pytest.param("par", False, 5e-4, marks=pytest.mark.slow),
        pytest.param("dan", False, 2e-3, marks=pytest.mark.slow),
        pytest.param("cnn-blstm", False, 5e-3, marks=pytest.mark.slow),
        ("retsinas", False, 5e-3),
        pytest.param("htr-vt", True, 1e-3, marks=pytest.mark.slow),
        pytest.param("kraken", True, 5e-3, marks=pytest.mark.slow),
    ],
)
def test_eight_words_are_learnt(arch, reducer, rate):
    scale = {"gated-crnn": 1.0, "htr-convtext": 0.125, "par": 0.125}.get(arch, 0.25)
    quiet = {"model__baseline__dropout": 0.0, "model__baseline__mask_ratio": 0.0, "model__baseline__scale": scale}
    quiet |= {"model__baseline__teacher_noise": 0.0, "model__baseline__label_smoothing": 0.0}
    config = small(arch, reducer=reducer, **quiet)
    images, widths = to_batch([draw_line(word, 32, number) for number, word in enumerate(WORDS)])
    lengths = torch.tensor([len(word) for word in WORDS])
    targets = torch.zeros(len(WORDS), 4, dtype=torch.long)
    for row, word in zip(targets, WORDS, strict=True):
        row[: len(word)] = torch.tensor(CHARSET.encode(word))
    torch.manual_seed(0)
    net = build(config.model, len(CHARSET))
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    given = Prepared(images, widths, ctc_min_length(targets, lengths), targets, lengths)
    for _ in range(20):
        net.train()
        for _ in range(10):
            out = net(*given.of(net))
            optimizer.zero_grad()
            spike_htr_loss(out, targets, lengths, net, config.training).total.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        with torch.no_grad():
            seen = net.eval()(images, widths)
        read = [line.text for line in decode_greedy(seen.logits, seen.lengths, CHARSET)]
        if read == WORDS:
            return
    pytest.fail(f"after 200 steps it reads {read}")
