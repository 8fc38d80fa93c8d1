"""The 2D encoder of one line, native: the same steps as `model/encoder.py`, in its order, on valid columns only."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from spikehtr.model.encoder import ConvMix2d, Encoder, SpikingConv2d, Stage
from spikehtr.model.inkcoder import InkCoder
from spikehtr.readers.cpu.layers import Floats, Layer, Map, Products, array, pointer
from spikehtr.readers.cpu.library import COPY, NUDGE, SILU, TILES
from spikehtr.readers.cpu.operations import (
    PLAIN,
    NeuronConstants,
    NormWeights,
    depthwise,
    elementwise,
    fire,
    identity,
    to_form,
)


class ConvLayer:
    """`SpikingConv2d`: its product, norm, neuron and shortcut."""

    def __init__(self, name: str, module: SpikingConv2d, spikes: bool) -> None:
        self.depthwise = module.conv.groups > 1
        self.kernel = (int(module.conv.kernel_size[0]), int(module.conv.kernel_size[1]))
        if self.depthwise:
            self.taps = array(module.conv.weight.flatten(1).T)  # [kh kw, C]
        else:
            self.layer = Layer.of(name, module.conv, spikes)
        self.norm, self.neuron = NormWeights(module.norm), NeuronConstants(module.neuron)
        self.drive = None if module.drive is None else NormWeights(module.drive)
        self.alpha = 0.0 if module.alpha is None else float(module.alpha.detach())

    def spread(self, run: Products, x: Map, name: str) -> tuple[Map, tuple[Floats, Floats]]:
        """The depthwise convolution of x, and its norm."""
        sums = run.memory.take("sums", x.steps * x.height * 2 * x.channels)
        out = depthwise(run, x, self.taps, self.kernel, name, sums)
        return out, self.norm(run, sums, out, x.height)

    def multiply(self, run: Products, x: Map, name: str) -> tuple[Map, tuple[Floats, Floats]]:
        out, sums = run.product(self.layer, x, name, sums=True)
        assert sums is not None
        return out, self.norm(run, sums, out)

    def fire_first(self, run: Products, x: Map, sums: Floats | None, out: Map) -> None:
        """What `spikes_first` has before the product, from x and its sums."""
        assert self.drive is not None
        assert sums is not None
        fire(run, x, self.drive(run, sums, x), self.neuron, out)


class MixBlock:
    """`ConvMix2d` of x in place. `found`: the sums of x; where named, those of the result are taken."""

    def __init__(self, name: str, module: ConvMix2d, first: bool) -> None:
        self.first = first
        self.dw = ConvLayer(f"{name}.dw", module.dw, first)
        self.norm = None if module.norm is None else NormWeights(module.norm)
        self.pw1 = ConvLayer(f"{name}.pw1", module.pw1, first)
        self.pw2 = ConvLayer(f"{name}.pw2", module.pw2, True)

    def __call__(self, run: Products, x: Map, found: Floats | None, sums: str | None) -> Floats | None:
        return self._spikes_first(run, x, found, sums) if self.first else self._paper(run, x, sums)

    def _paper(self, run: Products, x: Map, sums: str | None) -> Floats | None:
        raw, affine = self.dw.spread(run, x, "raw")
        found = fire(run, raw, affine, self.dw.neuron, x, self.dw.alpha, x, "sums.x")
        assert self.norm is not None
        assert found is not None
        normed = run.map("normed", x.shape, self.pw1.layer, dense=False)
        fire(run, x, self.norm(run, found, x), PLAIN, normed)
        return self._pointwise(run, x, normed, sums, self.pw2.neuron, self.pw2.alpha)

    def _spikes_first(self, run: Products, x: Map, found: Floats | None, sums: str | None) -> Floats | None:
        spikes = run.map("normed", x.shape)
        self.dw.fire_first(run, x, found, spikes)
        raw, affine = self.dw.spread(run, spikes, "raw")
        found = fire(run, raw, affine, PLAIN, x, 0.0, x, "sums.x")
        spikes = run.map("normed", x.shape, self.pw1.layer, dense=False)
        self.pw1.fire_first(run, x, found, spikes)
        return self._pointwise(run, x, spikes, sums, PLAIN, 0.0)

    def _pointwise(
        self, run: Products, x: Map, read: Map, sums: str | None, last: NeuronConstants, alpha: float
    ) -> Floats | None:
        raw, affine = self.pw1.multiply(run, read, "wide")
        neuron = self.pw2.neuron if self.first else self.pw1.neuron
        spikes = run.map("spikes", raw.shape, self.pw2.layer, dense=False, burst=neuron.burst)
        fire(run, raw, affine, neuron, spikes)
        raw, affine = self.pw2.multiply(run, spikes, "raw")
        return fire(run, raw, affine, last, x, alpha, x, sums)


class StageRun:
    """`Stage`: x [T, H, W, C] -> [T, H', W', C'], and the sums of its result where named. `found`: the sums of x, which
    `spikes_first` needs, as it does all others on the way."""

    def __init__(self, name: str, module: Stage, first: bool) -> None:
        self.first = first
        self.conv = ConvLayer(f"{name}.conv", module.conv, first)
        self.blocks = []
        for index, block in enumerate(module.blocks):
            assert isinstance(block, ConvMix2d)
            self.blocks.append(MixBlock(f"{name}.blocks.{index}", block, first))

    def __call__(
        self, run: Products, x: Map, found: Floats | None, name: str, sums: str | None
    ) -> tuple[Map, Floats | None]:
        conv = self.conv
        if self.first:
            read = run.map("normed", x.shape, conv.layer, dense=False)
            conv.fire_first(run, x, found, read)
        else:
            read = to_form(run, x, conv.layer, "normed")
        raw, affine = conv.multiply(run, read, "raw")
        out = run.map(name, raw.shape)
        last = len(self.blocks)
        wanted = [sums if self.first or number == last else None for number in range(last + 1)]
        found = fire(run, raw, affine, PLAIN if self.first else conv.neuron, out, conv.alpha, None, wanted[0])
        for number, block in enumerate(self.blocks, 1):
            found = block(run, out, found, wanted[number])
        return out, found


def schedule_of(coder: InkCoder | None) -> list[Floats]:
    """InkCoder's theta, sharpness after its calibration, and weight, each [T]."""
    if coder is None:
        return []
    theta, sharpness, weight = coder.schedules()
    return [array(theta), array(sharpness * coder.s_alpha + coder.b_alpha), array(weight)]


class EncoderRun:
    """A grey line [H, w] -> tokens [T, ceil(w / 4), d]."""

    def __init__(self, module: Encoder) -> None:
        first = module.stage1.conv.first
        conv = module.stem.conv
        self.stem_taps = array(conv.weight.sum(1).flatten(1).T)  # a grey line is the same in all channels
        self.stem_kernel, self.stem_stride = conv.kernel_size, conv.stride
        self.stem_norm = NormWeights(module.stem.norm)
        self.entry, self.beta = module.entry, float(module.entry.beta.detach())
        self.schedule = schedule_of(self.entry.inkcoder)  # not with each line: torch may crash in a forked child
        self.stages = [
            StageRun(f"encoder.stage{i}", stage, first)
            for i, stage in enumerate((module.stage1, module.stage2, module.stage3), 1)
        ]
        fusion = module.fusion
        self.fusion = fusion
        if fusion is not None:
            self.norm_detail, self.norm_gate = NormWeights(fusion.norm_detail), NormWeights(fusion.norm_gate)
            self.proj = Layer.of("encoder.fusion.proj", fusion.proj)
            self.gate = Layer.of("encoder.fusion.gate", fusion.gate)
            self.rho = float(torch.as_tensor(fusion.down.rho).detach())
        score, _, readout = module.pool.score
        assert isinstance(readout, nn.Linear)
        self.score = Layer.of("encoder.pool.score", score)
        self.readout = array(readout.weight.flatten())
        self.nudge = Layer.of("encoder.pool.nudge", module.pool.nudge)

    def layers(self) -> list[Layer]:
        found = [self.score, self.nudge] + ([self.proj, self.gate] if self.fusion is not None else [])
        for stage in self.stages:
            found.append(stage.conv.layer)
            for block in stage.blocks:
                found += [block.pw1.layer, block.pw2.layer]
        return found

    def __call__(self, run: Products, gray: Floats) -> Map:
        x = self._entry(run, gray)
        first, sums = self.stages[0].first, None
        if first:
            sums = fire(run, x, identity(run, x.steps, x.channels), PLAIN, x, sums="sums.x")
        x, sums1 = self.stages[0](run, x, sums, "f1", "sums.f1" if first else None)
        f2, sums2 = self.stages[1](run, x, sums1, "f2", "sums.f2")
        f3, sums3 = self.stages[2](run, f2, sums2, "f3", "sums.f3")
        if self.fusion is not None:
            assert sums2 is not None
            assert sums3 is not None
            self._fuse(run, f2, sums2, f3, sums3)
        return self._pool(run, f3)

    def _entry(self, run: Products, gray: Floats) -> Map:
        height, width = gray.shape
        (kernel_h, kernel_w), (down, right) = self.stem_kernel, self.stem_stride
        channels = self.stem_taps.shape[1]
        features = run.map("raw", (1, height // down, -(-width // right), channels))
        blocks = 2 * features.height
        sums = run.memory.take("sums", blocks * 2 * channels)
        run.call(
            "stem",
            gray=pointer(gray),
            weight=pointer(self.stem_taps),
            out=pointer(features.dense),
            sums=pointer(sums),
            height=height,
            width=width,
            channels=channels,
            kernel_h=kernel_h,
            kernel_w=kernel_w,
            stride_h=down,
            stride_w=right,
        )
        affine = self.stem_norm(run, sums, features, blocks)
        fire(run, features, affine, PLAIN, features, kind=SILU)
        steps = self.entry.timesteps
        out = run.map("x", (steps, features.height, features.width, channels))
        gates = self._gates(run, gray, out)
        run.call(
            "inject",
            features=pointer(features.dense),
            gates=pointer(gates),
            out=pointer(out.dense),
            steps=steps,
            positions=out.positions,
            channels=channels,
            beta=self.beta,
        )
        return out

    def _gates(self, run: Products, gray: Floats, out: Map) -> NDArray[Any]:
        gates = run.memory.take("gates", out.steps * out.positions)
        coder = self.entry.inkcoder
        if coder is None:  # repeat
            gates[:] = 1.0
            return gates
        height, width = gray.shape
        run.call(
            "ink",
            gray=pointer(gray),
            gates=pointer(gates),
            memory=pointer(run.memory.take("ink", 8 * height * (width + 2 * coder.numbers.edge_scale))),
            theta=pointer(self.schedule[0]),
            sharpness=pointer(self.schedule[1]),
            weight=pointer(self.schedule[2]),
            steps=out.steps,
            height=height,
            width=width,
            stride_h=self.stem_stride[0],
            stride_w=self.stem_stride[1],
            **coder.numbers._asdict(),
        )
        return gates

    def _fuse(self, run: Products, f2: Map, sums2: Floats, f3: Map, sums3: Floats) -> None:
        assert self.fusion is not None
        down = self.fusion.down
        fine = run.map("normed", f2.shape, self.proj, dense=False)
        fire(run, f2, self.norm_detail(run, sums2, f2), PLAIN, fine)
        detail, _ = run.product(self.proj, fine, "wide")
        coarse = run.map("normed", f3.shape, self.gate, dense=False)
        fire(run, f3, self.norm_gate(run, sums3, f3), PLAIN, coarse)
        gate, _ = run.product(self.gate, coarse, "raw")
        run.call(
            "fuse",
            detail=pointer(detail.dense),
            gate=pointer(gate.dense),
            f3=pointer(f3.dense),
            steps=f3.steps,
            height=f2.height,
            width=f2.width,
            channels=f3.channels,
            stride_h=down.stride[0],
            stride_w=down.stride[1],
            rho=self.rho,
        )

    def _pool(self, run: Products, f3: Map) -> Map:
        hidden, _ = run.product(self.score, to_form(run, f3, self.score, "normed"), "raw")
        shape = (f3.steps, 1, f3.width, f3.channels)
        attended, largest = run.map("attended", shape, self.nudge), run.map("largest", shape)
        run.call(
            "attend_rows",
            f=pointer(f3.dense),
            hidden=pointer(hidden.dense),
            readout=pointer(self.readout),
            attended=pointer(attended.dense),
            largest=pointer(largest.dense),
            **f3.sizes,
            hidden_channels=hidden.channels,
        )
        if self.nudge.mode == TILES:
            elementwise(run, COPY, attended, out=attended)
        nudge, _ = run.product(self.nudge, attended, "raw")
        tokens = run.map("tokens", shape)
        elementwise(run, NUDGE, attended, nudge, largest, out=tokens)
        return tokens
