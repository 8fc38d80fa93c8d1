"""What the engine does between products: one function or class for each compiled call that several parts need."""

from __future__ import annotations

from torch import nn

from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import MaskedGroupNorm
from spikehtr.readers.cpu.layers import Floats, Layer, Map, Products, array, blocks, pointer
from spikehtr.readers.cpu.library import COPY, LIF, NO_NEURON, TILES


class NormWeights:
    """GroupNorm: from block sums to scale and shift [T, C]."""

    def __init__(self, module: MaskedGroupNorm) -> None:
        self.groups, self.eps = module.groups, module.eps
        self.weight, self.bias = array(module.weight), array(module.bias)

    def __call__(self, run: Products, sums: Floats, x: Map, rows: int | None = None) -> tuple[Floats, Floats]:
        """`rows`: into how many blocks the sums were taken, where that is not the usual number."""
        count = x.steps * x.channels
        scale, shift = run.memory.take("scale", count), run.memory.take("shift", count)
        parts = blocks(x.positions) if rows is None else rows
        run.library.norm(
            pointer(sums),
            x.steps,
            parts,
            x.positions,
            x.channels,
            self.groups,
            self.eps,
            pointer(self.weight),
            pointer(self.bias),
            pointer(scale),
            pointer(shift),
        )
        return scale, shift


class NeuronConstants:
    """LIF with the network's constants, or none."""

    def __init__(self, module: nn.Module | None) -> None:
        if isinstance(module, nn.Identity):
            module = None
        assert module is None or isinstance(module, MultiStepLIF)
        self.kind = NO_NEURON if module is None else LIF
        self.decay = 0.0 if module is None else module.config.decay
        self.threshold = 1.0 if module is None else module.config.threshold
        self.burst = 1 if module is None else module.burst
        self.burst_step = 1.0 if module is None else module.config.burst_step


PLAIN = NeuronConstants(None)


def fire(
    run: Products,
    raw: Map,
    affine: tuple[Floats, Floats],
    neuron: NeuronConstants,
    out: Map,
    alpha: float = 0.0,
    residual: Map | None = None,
    sums: str | None = None,
    kind: int | None = None,
) -> Floats | None:
    """out = neuron(raw * scale + shift) + alpha * (...) + residual, in the forms `out` has; its sums where named."""
    found = None
    assert out.fired is None or (out.burst == neuron.burst and alpha == 0 and residual is None)
    if sums is not None:
        found = run.memory.take(sums, raw.steps * blocks(raw.positions) * 2 * raw.channels)
    run.call(
        "fire",
        out.reader,
        raw=pointer(raw.dense),
        scale=pointer(affine[0]),
        shift=pointer(affine[1]),
        residual=None if residual is None else pointer(residual.dense),
        out=pointer(out.dense),
        **out.forms(),
        sums=pointer(found),
        steps=raw.steps,
        positions=raw.positions,
        channels=raw.channels,
        neuron=neuron.kind if kind is None else kind,
        burst=neuron.burst,
        decay=neuron.decay,
        threshold=neuron.threshold,
        burst_step=neuron.burst_step,
        alpha=alpha,
    )
    return found


def depthwise(
    run: Products, x: Map, taps: Floats, kernel: tuple[int, int], name: str, sums: Floats | None = None
) -> Map:
    """Each channel of x [T, H, W, C] by itself, taps [kh kw, C] -> same shape; sums, a block a row, where asked for."""
    out = run.map(name, x.shape)
    run.call(
        "depthwise",
        x=pointer(x.dense),
        weight=pointer(taps),
        out=pointer(out.dense),
        sums=pointer(sums),
        **x.sizes,
        kernel_h=kernel[0],
        kernel_w=kernel[1],
    )
    return out


def identity(run: Products, steps: int, channels: int) -> tuple[Floats, Floats]:
    """Scale and shift that change nothing."""
    one, zero = run.memory.take("one", steps * channels), run.memory.take("zero", steps * channels)
    one[:], zero[:] = 1.0, 0.0
    return one, zero


def to_form(run: Products, x: Map, layer: Layer, name: str) -> Map:
    """x in the form `layer` reads; itself where that is single numbers."""
    if layer.mode != TILES:
        return x
    out = run.map(name, x.shape, layer, dense=False)
    elementwise(run, COPY, x, out=x, forms=out)
    return out


def elementwise(
    run: Products,
    kind: int,
    a: Map | int | None,
    b: Map | int | None = None,
    c: Map | int | None = None,
    *,
    out: Map,
    forms: Map | None = None,
    heads: int = 1,
    lda: int | None = None,
) -> None:
    def address(x: Map | int | None) -> int | None:
        return pointer(x.dense) if isinstance(x, Map) else x

    run.call(
        "elementwise",
        a=address(a),
        b=address(b),
        c=address(c),
        out=pointer(out.dense),
        half=pointer((forms or out).half),
        kind=kind,
        rows=out.steps * out.positions,
        channels=out.channels,
        heads=heads,
        lda=out.channels if lda is None else lda,
    )
