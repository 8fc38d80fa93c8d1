"""The 1D mixer of one line, native: the same steps as `model/mixer.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from spikehtr.model.masking import TokenNorm
from spikehtr.model.mixer import Branch, LargeKernel, LinearAttention, MixerBlock, QKMix, SpikingMLP
from spikehtr.model.recurrence import SpikingRecurrence
from spikehtr.readers.cpu.layers import Layer, Map, Products, array, pointer
from spikehtr.readers.cpu.library import COPY, GATE_KEYS, LARGE_KERNEL, SCALE, TILES
from spikehtr.readers.cpu.operations import NeuronConstants, depthwise, elementwise


class TokenFire:
    """LayerNorm and, where given, a neuron: [T, L, C] -> same shape."""

    def __init__(self, norm: TokenNorm, neuron: nn.Module | None = None) -> None:
        self.weight, self.bias, self.eps = array(norm.weight), array(norm.bias), norm.eps
        self.neuron = NeuronConstants(neuron)

    def __call__(self, run: Products, raw: Map, out: Map, residual: Map | None = None) -> Map:
        assert out.fired is None or out.burst == self.neuron.burst
        run.call(
            "token_fire",
            out.reader,
            raw=pointer(raw.dense),
            weight=pointer(self.weight),
            bias=pointer(self.bias),
            residual=None if residual is None else pointer(residual.dense),
            out=pointer(out.dense),
            **out.forms(),
            steps=raw.steps,
            length=raw.width,
            channels=raw.channels,
            neuron=self.neuron.kind,
            burst=self.neuron.burst,
            eps=self.eps,
            decay=self.neuron.decay,
            threshold=self.neuron.threshold,
            burst_step=self.neuron.burst_step,
        )
        return out


def _shape(x: Map, channels: int | None = None) -> tuple[int, int, int, int]:
    return x.steps, 1, x.width, channels or x.channels


class BranchRun(ABC):
    """A branch of a block: x in place, x + spikes of the branch's outlet, or what would drive them."""

    def __init__(self, name: str, module: Branch) -> None:
        assert isinstance(module.norm, TokenNorm)
        self.norm = TokenFire(module.norm)
        outlet = module.outlet
        self.last = Layer.of(f"{name}.out", outlet.linear)
        self.fire = TokenFire(outlet.norm, outlet.neuron)

    @abstractmethod
    def layers(self) -> list[Layer]:
        """Its products."""

    @abstractmethod
    def drive(self, run: Products, x: Map) -> Map:
        """What drives the outlet's neuron."""

    def __call__(self, run: Products, x: Map) -> None:
        self.fire(run, self.drive(run, x), x, x)

    def _normed(self, run: Products, x: Map, reader: Layer) -> Map:
        return self.norm(run, x, run.map("normed", _shape(x), reader, dense=False))


class AttentionRun(BranchRun):
    def __init__(self, name: str, module: LinearAttention) -> None:
        super().__init__(name, module)
        self.heads = module.heads
        self.qkv = Layer.of(f"{name}.qkv", module.qkv.linear)
        self.qkv_fire = TokenFire(module.qkv.norm, module.qkv.neuron)

    def layers(self) -> list[Layer]:
        return [self.qkv, self.last]

    def drive(self, run: Products, x: Map) -> Map:
        raw, _ = run.product(self.qkv, self._normed(run, x, self.qkv), "raw")
        spikes = self.qkv_fire(run, raw, run.map("spikes", _shape(raw)))
        y = run.map("wide", _shape(x), self.last)
        run.call(
            "attention",
            qkv=pointer(spikes.dense),
            out=pointer(y.dense),
            steps=x.steps,
            length=x.width,
            heads=self.heads,
            depth=x.channels // self.heads,
        )
        if self.last.mode == TILES:
            elementwise(run, COPY, y, out=y)
        return run.product(self.last, y, "raw")[0]


class QKRun(BranchRun):
    def __init__(self, name: str, module: QKMix) -> None:
        super().__init__(name, module)
        self.heads = module.heads
        self.qk = Layer.of(f"{name}.qk", module.qk.linear)
        self.qk_fire = TokenFire(module.qk.norm, module.qk.neuron)
        self.gate = Layer.of(f"{name}.gate", module.gate)

    def layers(self) -> list[Layer]:
        return [self.qk, self.gate, self.last]

    def drive(self, run: Products, x: Map) -> Map:
        normed = self._normed(run, x, self.qk)
        raw, _ = run.product(self.qk, normed, "raw")
        gate, _ = run.product(self.gate, normed, "gate")
        spikes = self.qk_fire(run, raw, run.map("spikes", _shape(raw)))
        assert spikes.dense is not None
        start = spikes.dense.ctypes.data
        passed = run.map("wide", _shape(x), self.last)
        elementwise(run, GATE_KEYS, start, start + 4 * x.channels, out=passed, heads=self.heads, lda=2 * x.channels)
        out, _ = run.product(self.last, passed, "raw")
        elementwise(run, SCALE, out, gate, out=out)
        return out


class LargeKernelRun(BranchRun):
    def __init__(self, name: str, module: LargeKernel) -> None:
        super().__init__(name, module)
        self.inp = Layer.of(f"{name}.inp", module.inp)
        self.taps = array(module.dw.weight[:, 0].T)  # [k, e d]
        self.near = TokenFire(module.dw_norm, module.dw_neuron)

    def layers(self) -> list[Layer]:
        return [self.inp, self.last]

    def drive(self, run: Products, x: Map) -> Map:
        three, _ = run.product(self.inp, self._normed(run, x, self.inp), "raw")  # [T, L, 3 e d]: u, v, g
        wide = self.taps.shape[1]
        assert three.dense is not None
        u = run.map("u", _shape(x, wide))
        assert u.dense is not None
        u.dense.reshape(-1, wide)[:] = three.dense.reshape(-1, 3 * wide)[:, :wide]
        near = depthwise(run, u, self.taps, (1, len(self.taps)), "near")
        fired = self.near(run, near, run.map("spikes", _shape(x, wide)))
        y = run.map("wide", _shape(x, wide), self.last)
        start = three.dense.ctypes.data + 4 * wide
        elementwise(run, LARGE_KERNEL, start, start + 4 * wide, fired, out=y, lda=3 * wide)
        return run.product(self.last, y, "gate")[0]


class RecurrenceRun(BranchRun):
    def __init__(self, name: str, module: SpikingRecurrence) -> None:
        super().__init__(name, module)
        self.inp = Layer.of(f"{name}.inp", module.inp)
        self.state_fire = TokenFire(module.state_norm, module.state_neuron)
        self.last.spikes = True

    def layers(self) -> list[Layer]:
        return [self.inp, self.last]

    def drive(self, run: Products, x: Map) -> Map:
        driven, _ = run.product(self.inp, self._normed(run, x, self.inp), "raw")
        u = run.map("u", _shape(x))
        run.call(
            "leaky_scan",
            driven=pointer(driven.dense),
            out=pointer(u.dense),
            steps=x.steps,
            length=x.width,
            channels=x.channels,
        )
        burst = self.state_fire.neuron.burst
        spikes = self.state_fire(run, u, run.map("spikes", _shape(x), self.last, dense=False, burst=burst))
        return run.product(self.last, spikes, "gate")[0]


class MLPRun(BranchRun):
    def __init__(self, name: str, module: SpikingMLP) -> None:
        super().__init__(name, module)
        self.fc1 = Layer.of(f"{name}.fc1", module.fc1.linear)
        self.fc1_fire = TokenFire(module.fc1.norm, module.fc1.neuron)
        self.last.spikes = True
        self.last.name = f"{name}.fc2"

    def layers(self) -> list[Layer]:
        return [self.fc1, self.last]

    def drive(self, run: Products, x: Map) -> Map:
        raw, _ = run.product(self.fc1, self._normed(run, x, self.fc1), "raw")
        burst = self.fc1_fire.neuron.burst
        spikes = self.fc1_fire(run, raw, run.map("spikes", _shape(raw), self.last, dense=False, burst=burst))
        return run.product(self.last, spikes, "gate")[0]


OPERATOR_RUNS = {"LA": AttentionRun, "QK": QKRun, "LK": LargeKernelRun, "SR": RecurrenceRun}


class BlockRun:
    def __init__(self, name: str, module: MixerBlock) -> None:
        self.branches: list[BranchRun] = [
            OPERATOR_RUNS[module.kind](f"{name}.operator", module.operator),
            MLPRun(f"{name}.mlp", module.mlp),
        ]

    def __call__(self, run: Products, x: Map) -> None:
        for branch in self.branches:
            branch(run, x)
