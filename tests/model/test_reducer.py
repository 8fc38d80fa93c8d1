"""The reducer against a slow, literal left-to-right implementation, and its properties on random previews."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.config import ReducerConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.reducer import CTCLengthReducer, as_fraction, ctc_min_length

MODES = ["keep-and-merge", "none", "prune-only", "merge-only"]


@st.composite
def cases(draw):
    """A reducer and a batch of lines, with previews from near-certain to flat, and many ties."""
    mode = draw(st.sampled_from(MODES))
    config = ReducerConfig(
        mode=mode,
        tau=draw(st.sampled_from([0.0, 0.3, 0.88, 1.0])),
        eta=draw(st.sampled_from([0.0, 0.5, 1.0, 99.0])),
        gamma=draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
        k=draw(st.integers(1, 5)),
    )
    lengths = draw(st.lists(st.integers(1, 24), min_size=1, max_size=4))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    size = max(lengths) + draw(st.integers(0, 3))
    preview = torch.randn(len(lengths), size, 5, generator=g) * draw(st.sampled_from([0.1, 2.0, 8.0]))
    preview[..., 0] += draw(st.sampled_from([-3.0, 0.0, 3.0, 30.0]))
    tokens = torch.randn(2, len(lengths), size, 3, generator=g)
    return config, tokens, torch.tensor(lengths), preview


def literal(config, tokens, length, preview):
    """One line, position by position, straight from Section 3.4: spans, keep set and pooled tokens."""
    pi = preview.double().softmax(-1)
    p_blank = preview.softmax(-1)[:, 0].tolist()  # as it is compared with tau, which may be 1
    p_ink = pi[:, 1:].sum(-1).tolist()  # 1 - p_blank, with all its digits
    entropy = (-(pi * pi.clamp(min=1e-300).log()).sum(-1)).tolist()
    if config.mode == "none":
        keep = set(range(length))
    else:
        keep = {w for w in range(length) if p_blank[w] < config.tau}
        if config.mode != "merge-only":
            keep |= {w for w in range(length) if entropy[w] > config.eta}
            for w in sorted(set(range(length)) - keep, key=lambda w: (-p_ink[w], w)):
                if len(keep) >= math.ceil(as_fraction(config.gamma) * length):
                    break
                keep.add(w)
    spans = []
    for w in range(length):
        if w in keep:
            spans.append([w, w + 1])
        elif config.mode == "prune-only":
            continue
        elif spans and spans[-1][1] == w and spans[-1][0] not in keep and w - spans[-1][0] < config.k:
            spans[-1][1] = w + 1
        else:
            spans.append([w, w + 1])
    if not spans:  # prune-only never empties a line
        spans = [[0, 1]]
    pooled = []
    for first, end in spans:
        a = torch.tensor([p_ink[w] + 1e-6 for w in range(first, end)], dtype=torch.float64)
        pooled.append(((a / a.sum())[:, None] * tokens[:, first:end].double()).sum(1))
    return spans, keep, torch.stack(pooled, 1)


@given(cases())
def test_equals_the_literal_implementation(case):
    config, tokens, lengths, preview = case
    out = CTCLengthReducer(config)(tokens, lengths, preview)
    for b, length in enumerate(lengths.tolist()):
        spans, keep, pooled = literal(config, tokens[:, b], length, preview[b])
        n = len(spans)
        assert out.lengths[b] == n
        assert out.spans[b, :n].tolist() == spans
        assert set(out.kept[b].nonzero().flatten().tolist()) == keep
        assert torch.allclose(out.tokens[:, b, :n].double(), pooled, atol=1e-4)
        assert out.tokens[:, b, n:].abs().sum() == 0
        assert out.spans[b, n:].abs().sum() == 0


@pytest.mark.parametrize("length", [5, 15, 20, 37])
def test_where_all_are_sure_the_least_sure_are_kept(length):
    """In fp32 a blank's probability is 1 at all these positions; what is left of it still tells them apart."""
    preview = 2 * torch.randn(1, length, 5, generator=torch.Generator().manual_seed(length))
    preview[..., 0] += 30
    assert (preview.softmax(-1)[..., 0] == 1).all()
    others = preview.double().softmax(-1)[0, :, 1:].sum(-1)
    out = CTCLengthReducer(ReducerConfig(gamma=0.4))(torch.randn(1, 1, length, 3), torch.tensor([length]), preview)
    assert set(out.kept[0].nonzero().flatten().tolist()) == set(others.topk(-(-2 * length // 5)).indices.tolist())


@pytest.mark.parametrize(("part", "whole"), [(0, 1), (7, 100), (2, 5), (1, 3), (5, 6), (5, 7), (1, 1)])
def test_the_fewest_to_keep_are_counted_without_rounding(part, whole):
    lengths = torch.tensor([1, 5, 6, 7, 60, 100], dtype=torch.uint8)
    preview = torch.tensor([30.0, 0, 0]).expand(6, 100, 3)
    reducer = CTCLengthReducer(ReducerConfig(gamma=0.5))
    reducer.config = ReducerConfig(gamma=part / whole)  # as it is now, not as it was made
    out = reducer(torch.randn(1, 6, 100, 2), lengths, preview)
    assert out.kept.sum(1).tolist() == [-(-n * part // whole) for n in lengths.tolist()]


@given(cases())
def test_properties(case):
    config, tokens, lengths, preview = case
    out = CTCLengthReducer(config)(tokens, lengths, preview)
    for b, length in enumerate(lengths.tolist()):
        n = int(out.lengths[b])
        spans = out.spans[b, :n].tolist()
        assert 1 <= n <= length
        if config.mode != "prune-only":  # a partition of 0..L0, in order
            assert [first for first, _ in spans] == [0, *[end for _, end in spans[:-1]]]
            assert spans[-1][1] == length
        assert all(end - first <= config.k for first, end in spans)
        kept = out.kept[b].nonzero().flatten().tolist()
        assert all([w, w + 1] in spans for w in kept)
        if config.mode in ("keep-and-merge", "prune-only"):
            assert len(kept) >= math.ceil(as_fraction(config.gamma) * length)
        assert torch.allclose(out.weights[b, :n].sum(-1), torch.ones(n), atol=1e-6)
        assert (out.weights >= 0).all()


@given(cases())
def test_none_is_the_identity(case):
    config, tokens, lengths, preview = case
    out = CTCLengthReducer(config.model_copy(update={"mode": "none"}))(tokens, lengths, preview)
    assert torch.equal(out.lengths, lengths)
    for b, length in enumerate(lengths.tolist()):
        assert torch.equal(out.tokens[:, b, :length], tokens[:, b, :length])


@given(cases(), st.data())
def test_lengths_stay_feasible_in_training(case, data):
    config, tokens, lengths, preview = case
    need = torch.tensor([data.draw(st.integers(0, length)) for length in lengths.tolist()])
    out = CTCLengthReducer(config)(tokens, lengths, preview, need)
    free = CTCLengthReducer(config)(tokens, lengths, preview)
    assert (out.lengths >= need).all()
    fine = free.lengths >= need
    assert torch.equal(out.lengths[fine], free.lengths[fine])  # the others are left as they were
    assert torch.equal(out.lengths[~fine], lengths[~fine])


@given(cases())
def test_a_line_is_reduced_the_same_alone(case):
    config, tokens, lengths, preview = case
    reducer = CTCLengthReducer(config)
    out = reducer(tokens, lengths, preview)
    for b, length in enumerate(lengths.tolist()):
        alone = reducer(tokens[:, b : b + 1, :length], lengths[b : b + 1], preview[b : b + 1, :length])
        n = int(alone.lengths)
        assert n == out.lengths[b]
        assert torch.equal(alone.spans[0, :n], out.spans[b, :n])
        assert torch.allclose(alone.tokens[:, 0, :n], out.tokens[:, b, :n], atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preview_gradient", [False, True])
def test_the_preview_passes_gradient_only_when_asked(mode, preview_gradient):
    config = ReducerConfig(mode=mode, tau=0.3, eta=9.0, gamma=0.0, preview_gradient=preview_gradient)
    g = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 2, 20, 3, generator=g, requires_grad=True)
    preview = torch.randn(2, 20, 5, generator=g, requires_grad=True)
    out = CTCLengthReducer(config)(tokens, torch.tensor([20, 15]), preview)
    (out.tokens.square()).sum().backward()
    assert tokens.grad.abs().sum() > 0  # always differentiable in the features
    flows = preview.grad is not None and preview.grad.abs().max() > 1e-3
    merges = mode in ("keep-and-merge", "merge-only")  # only a span of two or more has weights that can move
    assert flows == (preview_gradient and merges)


def test_certain_blanks_keep_finite_weights():
    preview = torch.full((1, 6, 4), -100.0)
    preview[..., 0] = 100.0
    config = ReducerConfig(eta=1.0, gamma=0.0)
    out = CTCLengthReducer(config)(torch.ones(1, 1, 6, 2), torch.tensor([6]), preview)
    assert out.spans[0, :2].tolist() == [[0, 3], [3, 6]]
    assert torch.allclose(out.tokens[:, :, :2], torch.ones(1, 1, 2, 2))


@given(st.lists(st.lists(st.integers(1, 3), max_size=8), min_size=1, max_size=4))
def test_ctc_min_length_counts_repeats(targets):
    lengths = torch.tensor([len(t) for t in targets])
    size = max(1, int(lengths.max()))
    padded = torch.tensor([t + [0] * (size - len(t)) for t in targets])
    expected = [len(t) + sum(a == b for a, b in itertools.pairwise(t)) for t in targets]
    assert ctc_min_length(padded, lengths).tolist() == expected


def test_ctc_min_length_is_what_ctc_needs():
    """'aab' cannot be spelled in 3 frames and can in 4."""
    target = torch.tensor([[1, 1, 2]])
    need = int(ctc_min_length(target, torch.tensor([3])))
    for frames, possible in ((need - 1, False), (need, True)):
        log_probs = torch.full((frames, 1, 3), 1 / 3).log()
        loss = torch.nn.functional.ctc_loss(log_probs, target, torch.tensor([frames]), torch.tensor([3]))
        assert torch.isfinite(loss) == possible


def test_alone_with_any_recogniser():
    """Without configuration, on [B, L, d] tokens: the paper's rule, and tokens that are really fewer."""
    g = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 30, 4, generator=g).bfloat16()
    preview = torch.full((2, 30, 5), -9.0)
    preview[:, :, 0] = 9.0  # all certain blanks
    preview[0, 5, 0] = -torch.inf
    out = CTCLengthReducer()(tokens, torch.tensor([30, 20]), preview)
    assert out.tokens.shape == (2, int(out.lengths.max()), 4)
    assert out.tokens.dtype == torch.bfloat16
    assert (out.lengths < torch.tensor([30, 20])).all()
    assert out.kept[0, 5]


def test_garbage_past_a_lines_end_stays_there():
    config = ReducerConfig(gamma=0.0, eta=99.0)
    tokens, preview = torch.randn(1, 2, 10, 3), torch.randn(2, 10, 5)
    preview[..., 0] += 9
    lengths = torch.tensor([10, 7])
    clean = CTCLengthReducer(config)(tokens, lengths, preview)
    tokens[:, 1, 7:], preview[1, 7:] = torch.nan, torch.nan
    dirty = CTCLengthReducer(config)(tokens, lengths, preview)
    assert torch.equal(clean.tokens, dirty.tokens)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_the_host_waits_for_one_copy_at_most(mode, training):
    """Nothing in the reducer stops the host but that copy, and in training not even that; the result is the CPU's."""
    config = ReducerConfig(mode=mode, tau=0.3, eta=9.0, gamma=0.3)
    g = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 4, 40, 8, generator=g), torch.tensor([40, 33, 7, 1]), torch.randn(4, 40, 5, generator=g)
    expected = CTCLengthReducer(config)(*inputs)
    moved = [x.cuda() for x in inputs]
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.set_grad_enabled(training):
            found = CTCLengthReducer(config)(*moved)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    size = expected.tokens.shape[2]
    assert found.tokens.shape[2] == (40 if training else size)
    assert torch.allclose(expected.tokens, found.tokens[:, :, :size].cpu(), atol=1e-6)
    assert found.tokens[:, :, size:].abs().sum() == 0
    assert torch.equal(expected.spans, found.spans[:, :size].cpu())
    assert torch.equal(expected.lengths, found.lengths.cpu())
    assert torch.equal(expected.kept, found.kept.cpu())


@pytest.mark.parametrize(
    ("tokens", "lengths", "preview", "says"),
    [
        ((1, 1, 20, 2), [20], (1, 10, 5), "tokens must be"),
        ((2, 20, 2), [20], (1, 20, 5), "tokens must be"),
        ((20, 2), [20], (1, 20, 5), "tokens must be"),
        ((1, 20, 2), [20, 3], (1, 20, 5), r"lengths must be \[1\]"),
        ((1, 20, 2), [20.0], (1, 20, 5), "whole numbers"),
        ((0, 20, 2), [], (0, 20, 5), "lengths must be"),
        ((1, 20, 2), [21], (1, 20, 5), r"lie in 1\.\.20, found 21"),
        ((1, 20, 2), [-1], (1, 20, 5), r"lie in 1\.\.20, found -1"),
    ],
)
def test_what_does_not_belong_together_is_told(tokens, lengths, preview, says):
    with pytest.raises(SpikeHTRError, match=says):
        CTCLengthReducer()(torch.rand(tokens), torch.tensor(lengths), torch.rand(preview))
