import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from spikehtr.baselines.common import BLSTM, reversed_rows


def packed(lstm: nn.LSTM, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """What BLSTM computes, by PyTorch's own packing."""
    rows = pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(rows)[0], batch_first=True, total_length=tokens.shape[1])[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 2))
def test_values_and_gradients_are_those_of_packed_rows(lengths, layers, padding):
    torch.manual_seed(len(lengths))
    plain = nn.LSTM(3, 4, layers, batch_first=True, bidirectional=True).double()
    ours = BLSTM(3, 4, layers).double()
    ours.load_state_dict(
        {f"lstm.{name}": value for name, value in plain.state_dict().items()}
    )  # as older files have it
    size = torch.tensor(lengths)
    inside = torch.arange(max(lengths) + padding) < size[:, None]
    x = torch.randn(*inside.shape, 3, dtype=torch.double)
    xs = [x.clone().requires_grad_() for _ in range(2)]
    results = [packed(plain, xs[0], size), ours(xs[1], size)]
    assert torch.allclose(results[0][inside], results[1][inside], rtol=0, atol=1e-12)
    weigh = torch.randn_like(results[0]) * inside[..., None]
    for result in results:
        (result * weigh).sum().backward()
    assert torch.allclose(xs[0].grad, xs[1].grad, rtol=0, atol=1e-12)
    for layer in range(layers):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            for ending, direction in (("", ours.ahead), ("_reverse", ours.behind)):
                wanted = getattr(plain, f"{kind}_l{layer}{ending}").grad
                found = getattr(direction[layer], f"{kind}_l0").grad
                assert torch.allclose(wanted, found, rtol=0, atol=1e-11)


def test_rows_are_reversed_by_their_own_length():
    assert reversed_rows(torch.tensor([1, 3, 4]), 4).tolist() == [[0, 1, 2, 3], [2, 1, 0, 3], [3, 2, 1, 0]]


def test_what_lies_in_the_padding_cannot_matter():
    torch.manual_seed(0)
    ours, lengths = BLSTM(3, 4, 2).double(), torch.tensor([2, 5])
    x = torch.randn(2, 5, 3, dtype=torch.double)
    other = x.clone()
    other[0, 2:] = 1e6
    assert torch.equal(ours(x, lengths)[0, :2], ours(other, lengths)[0, :2])


def test_dropout_stands_between_layers_alone():
    torch.manual_seed(0)
    x, lengths = torch.randn(1, 6, 3), torch.tensor([6])
    one, two = BLSTM(3, 4, 1, dropout=0.9), BLSTM(3, 4, 2, dropout=0.9)
    assert torch.equal(one(x, lengths), one(x, lengths))
    assert not torch.equal(two(x, lengths), two(x, lengths))
    assert torch.equal(two.eval()(x, lengths), two(x, lengths))


@pytest.mark.parametrize("arch", ["retsinas", "kraken", "cnn-blstm"])
def test_the_host_never_waits_for_lengths(arch):
    """On a device without contents, which has no number to give."""
    from baselines_help import LABELS, small

    from spikehtr.registry import build

    with torch.device("meta"):
        net = build(small(arch).model, LABELS)
        tokens = net.features(torch.empty(2, 1, 32, 64), lambda x: x)
        assert net.read(tokens, torch.empty(2, dtype=torch.long)).shape == (2, 8, LABELS)
