"""The compiled functions against plain ones, at random sizes."""

import ctypes

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spikehtr.config import InkCoderConfig, ReducerConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.inkcoder import InkCoder
from spikehtr.model.reducer import CTCLengthReducer
from spikehtr.readers.cpu import library as native
from spikehtr.readers.cpu.layers import Layer, Memory, Products, half_bits
from spikehtr.readers.cpu.library import DENSE, EVENTS, TILES, library
from spikehtr.readers.cpu.line_reducer import reduce_line
from spikehtr.readers.cpu.operations import depthwise

try:
    HAVE = library()
except SpikeHTRError as error:
    pytest.skip(f"no native kernels here: {error}", allow_module_level=True)

SIDES = st.integers(1, 9)


def test_a_library_of_other_sources_is_refused(monkeypatch):
    fields = native.Fire._fields_
    wider = type("Fire", (ctypes.Structure,), {"_fields_": [*fields, ("more", ctypes.c_int)]})
    monkeypatch.setitem(native._CALLS, "fire", wider)
    library.cache_clear()
    try:
        with pytest.raises(SpikeHTRError, match=r"fire is laid out otherwise.*install the package again"):
            library()
    finally:
        library.cache_clear()


def filled(run, layer, x):
    """x [T, H, W, C] in every form the layer may read."""
    out = run.map("in", x.shape, layer)
    if out.dense is not None:
        out.dense[:] = x.ravel()
    if out.half is not None:
        out.half[:] = half_bits(x).ravel()
    if out.fired is not None:
        for place, row in enumerate(x.reshape(-1, x.shape[3])):
            found = np.flatnonzero(row)
            out.counts[place], out.fired[place * len(row) : place * len(row) + len(found)] = len(found), found
    return out


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), SIDES, st.integers(1, 40), st.integers(1, 70)),
    st.integers(1, 150),
    st.sampled_from([(1, 1, 1, 1), (3, 3, 1, 1), (3, 3, 2, 2), (3, 3, 2, 1), (5, 3, 1, 2)]),
    st.sampled_from([DENSE, TILES, EVENTS]),
    st.integers(1, 3),
    st.booleans(),
)
def test_products(shape, outputs, geometry, mode, threads, bias):
    if mode == TILES and not HAVE.tiles:
        mode = DENSE
    kernel_h, kernel_w, *stride = geometry
    torch.manual_seed(outputs)
    conv = nn.Conv2d(shape[3], outputs, (kernel_h, kernel_w), tuple(stride), (kernel_h // 2, kernel_w // 2), bias=bias)
    layer = Layer.of("a layer", conv, spikes=True)
    layer.choose(mode)
    HAVE.use_threads(threads)
    run = Products(HAVE, Memory())
    x = (torch.rand(shape) < 0.3).float().numpy() if mode == EVENTS else torch.randn(shape).numpy()
    found, sums = run.product(layer, filled(run, layer, x), "out", sums=True)
    with torch.no_grad():
        if mode == TILES:
            x = torch.from_numpy(x).bfloat16().float().numpy()
            conv.weight.copy_(conv.weight.bfloat16().float())
        expected = conv.double()(torch.from_numpy(x).double().permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    steps, _, _, n = expected.shape
    got = torch.from_numpy(found.dense.copy()).reshape(expected.shape).double()
    assert torch.allclose(got, expected, atol=1e-4)
    totals = torch.from_numpy(sums.copy()).reshape(steps, -1, 2, n).double().sum(1)
    assert torch.allclose(totals[:, 0], got.sum((1, 2)), atol=1e-3)
    assert torch.allclose(totals[:, 1], got.square().sum((1, 2)), rtol=1e-4, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 70), st.integers(1, 100))
def test_a_product_has_the_same_digits_wherever_a_row_lies(rows, inputs, outputs):
    """Alone, in a block of rows, or among the last, some of which are done twice."""
    torch.manual_seed(rows)
    layer = Layer.of("a layer", nn.Linear(inputs, outputs))
    layer.choose(DENSE)
    x = torch.randn(1, 1, rows, inputs).numpy()

    def product(x):
        run = Products(HAVE, Memory())
        return run.product(layer, filled(run, layer, x), "out")[0].dense.reshape(-1, outputs).copy()

    assert np.array_equal(product(x), np.concatenate([product(x[:, :, [row]]) for row in range(rows)]))


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 2), SIDES, st.integers(1, 30), st.integers(1, 80)),
    st.sampled_from([(5, 5), (3, 3), (1, 7), (1, 15)]),
)
def test_depthwise(shape, kernel):
    steps, height, _, channels = shape
    x, weight = torch.randn(shape), torch.randn(channels, 1, *kernel)
    run, sums = Products(HAVE, Memory()), np.full(steps * height * 2 * channels, np.nan, np.float32)
    source = run.map("in", shape)
    source.dense[:] = x.numpy().ravel()
    out = depthwise(run, source, np.ascontiguousarray(weight.flatten(1).T.numpy()), kernel, "out", sums)
    around = (kernel[0] // 2, kernel[1] // 2)
    expected = F.conv2d(x.permute(0, 3, 1, 2), weight, padding=around, groups=channels).permute(0, 2, 3, 1)
    assert torch.allclose(torch.from_numpy(out.dense.copy()).reshape(shape), expected, atol=1e-5)
    rows = torch.from_numpy(sums).reshape(steps, height, 2, channels)
    assert torch.allclose(rows, torch.stack([expected.sum(2), expected.square().sum(2)], 2), rtol=1e-4, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(0, 9), st.integers(0, 9), st.sampled_from([(5, 5), (3, 3), (1, 15)]))
def test_a_depthwise_convolution_has_the_same_digits_wherever_a_column_lies(width, before, after, kernel):
    """Columns at an edge, one by one, and within the map, many at once: empty ones beside them move them about."""
    x, taps = torch.randn(3, width, 20), np.random.default_rng(width).standard_normal((kernel[0] * kernel[1], 20))
    found = []
    for padded in (x, F.pad(x, (0, 0, before, after))):
        run = Products(HAVE, Memory())
        source = run.map("in", (1, *padded.shape))
        source.dense[:] = padded.numpy().ravel()
        out = depthwise(run, source, taps.astype(np.float32), kernel, "out")
        found.append(torch.from_numpy(out.dense.copy()).reshape(padded.shape))
    assert torch.equal(found[0], found[1][:, before : before + width])


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 50),
    st.integers(1, 3),
    st.sampled_from(["keep-and-merge", "none", "prune-only", "merge-only"]),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 3),
    st.integers(1, 5),
    st.integers(0, 10**6),
)
def test_reduction_of_one_line(length, steps, mode, tau, gamma, eta, k, seed):
    config = ReducerConfig(mode=mode, tau=tau, gamma=gamma, eta=eta, k=k)
    torch.manual_seed(seed)
    tokens, preview = torch.randn(steps, 1, length, 6), 3 * torch.randn(1, length, 5)
    expected = CTCLengthReducer(config)(tokens, torch.tensor([length]), preview)
    found, spans = reduce_line(tokens[:, 0].numpy(), preview[0].numpy(), config)
    assert spans.tolist() == expected.spans[0].tolist()
    assert np.allclose(found, expected.tokens[:, 0].numpy(), atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(0, 10**6), st.sampled_from([(1, 1), (2, 2), (4, 2), (4, 4)]))
def test_gates(width, seed, stride):
    from spikehtr.model.entry import pool_gates
    from spikehtr.readers.cpu.encoder_pass import EncoderRun, schedule_of

    torch.manual_seed(seed)
    gray = torch.rand(1, 1, 16, width).round(decimals=2)
    coder = InkCoder(InkCoderConfig(), 3)
    widths = torch.tensor([width])
    padded = F.pad(gray, (0, -width % 4))
    with torch.no_grad():
        expected = pool_gates(coder(padded, widths), widths, stride)[:, 0, 0, :, : -(-width // stride[1])]
    run = Products(HAVE, Memory())
    encoder = EncoderRun.__new__(EncoderRun)
    encoder.entry = type("entry", (), {"inkcoder": coder})
    encoder.stem_stride, encoder.schedule = stride, schedule_of(coder)
    out = run.map("x", (3, 16 // stride[0], -(-width // stride[1]), 1))
    found = encoder._gates(run, np.ascontiguousarray(gray[0, 0].numpy()), out).reshape(expected.shape)
    assert np.allclose(found, expected.numpy(), atol=1e-5)
