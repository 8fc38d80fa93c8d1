"""Reading on a CPU: the network of `model/`, line by line, by the compiled functions of `readers/cpu/native`.

A line is read by itself, on its own columns: no padding is computed, and no line can depend on its neighbours. Every
product is carried out in one of three ways (single precision, the tile unit, lists of spikes), the fastest on this
machine for this model.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from spikehtr import ops
from spikehtr.assets import SAMPLE_LINE
from spikehtr.data.geometry import fit_line
from spikehtr.data.images import load_line
from spikehtr.errors import SpikeHTRError
from spikehtr.model.inkcoder import to_gray
from spikehtr.model.mixer import MixerBlock
from spikehtr.model.network import Network, Output
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.readers.base import as_floats
from spikehtr.readers.cpu.encoder_pass import EncoderRun
from spikehtr.readers.cpu.layers import Floats, Layer, Map, Memory, Products, array
from spikehtr.readers.cpu.library import DENSE, EVENTS, TILES, library
from spikehtr.readers.cpu.line_reducer import reduce_line
from spikehtr.readers.cpu.mixer_pass import OPERATOR_RUNS, BlockRun, TokenFire
from spikehtr.readers.cpu.operations import depthwise


def unsupported_reason(net: Network, half: bool = False) -> str | None:
    """Why the engine cannot read with a network here, in bf16 if `half`; None where it can."""
    config = net.config
    if not isinstance(net, SpikeHTR):
        return f"it reads Spike-HTR only, not {type(net).__name__}"
    if config.neuron != "lif":
        return f"model.neuron is {config.neuron}: it reads spiking networks only"
    if config.entry not in ("inkcoder", "repeat"):
        return f"model.entry is {config.entry}"
    if unknown := set(config.mixer.operators) - set(OPERATOR_RUNS):
        return f"it has no token operator {', '.join(sorted(unknown))}"
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in net.parameters()):
        return "the network is not in fp32 on the CPU"
    if ops.reference_asked():
        return "the reference is asked for (SPIKEHTR_KERNELS=reference, or `with ops.reference()`)"
    try:
        found = library()
    except SpikeHTRError as error:
        return str(error)
    return "bf16 needs a CPU with a tile unit (AMX)" if half and not found.tiles else None


# Spikes an input below which adding up weight rows is faster than the dense product, as `spikehtr bench --cpu` measures
# them with AVX-512 and on ARM: in fp32, and in tiles. On x86 with less it was not measured.
EVENTS_PAY_DENSE, EVENTS_PAY_TILES = 0.2, 0.02

MOST_A_LINE = 8  # threads that a single line can keep busy


def sample_line(height: int) -> Floats:
    """The sample line that comes with the package, as the network reads it."""
    pixels = fit_line(load_line(SAMPLE_LINE), height, 8 * height)
    return pixels.astype(np.float32) / np.float32(255)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Engine:
    """A `Reader` for spiking networks on a CPU: `engine(images, widths)` -> Output, without
    auxiliary logits.

    `precision`: fp32; or bf16, which is faster where there is a tile unit (AMX) and rounds what every layer reads.
    `events`: whether layers that read spikes add up the weight rows of what fired: auto where it is faster (see
    `choose`), always, or never. In fp32 the result is the same to the last bit, but for bursts, whose weights are then
    added one by one.
    """

    batch_size = 16

    def __init__(self, net: Network, precision: str = "fp32", events: str = "auto", threads: int | None = None) -> None:
        if precision not in ("fp32", "bf16"):
            raise SpikeHTRError(f"precision must be fp32 or bf16, not {precision!r}")
        reason = unsupported_reason(net, precision == "bf16")
        if reason is not None:
            raise SpikeHTRError(f"the CPU engine cannot take this network: {reason}")
        assert isinstance(net, SpikeHTR)
        self.library = library()
        self.threads = threads or min(usable_cores(), torch.get_num_threads())  # OMP_NUM_THREADS counts here, too
        self.net, self.precision = net, precision
        self.encoder = EncoderRun(net.encoder)
        self.blocks = []
        for index, block in enumerate(net.mixer.blocks):
            assert isinstance(block, MixerBlock)
            self.blocks.append(BlockRun(f"mixer.blocks.{index}", block))
        self.head_norm, self.head = TokenFire(net.head.norm), Layer.of("head", net.head.linear)
        cpe = net.positions.cpe
        assert cpe.bias is not None
        self.cpe_taps, self.cpe_bias = array(cpe.weight[:, 0].T), array(cpe.bias)
        self.table = array(net.positions.table)
        steps = net.config.timesteps
        self.fuse_pre, self.fuse_post = (array(f.logits[:steps].softmax(0)) for f in (net.fuse_pre, net.fuse_post))
        self._local = threading.local()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None  # and the process whose it is
        self.density: dict[str, float] = {}  # of the layers that read spikes, on the sample line
        self.choose(events)

    def layers(self) -> list[Layer]:
        """Every product, in no order that matters."""
        mixer = [layer for block in self.blocks for branch in block.branches for layer in branch.layers()]
        return [*self.encoder.layers(), *mixer, self.head]

    def choose(self, events: str = "auto") -> None:
        """Decide how each product is carried out.

        auto measures, on the sample line that comes with the package, how many of a layer's inputs fire, and takes
        lists of spikes where an estimate of their cost is below the dense one. The estimate knows no clock, so the
        same model reads the same on the same machine.
        """
        if events not in ("auto", "always", "never"):
            raise SpikeHTRError(f"events must be auto, always or never, not {events!r}")
        dense = DENSE if self.precision == "fp32" else TILES
        for layer in self.layers():
            layer.choose(EVENTS if layer.spikes and events != "never" else dense)
        if events != "auto":
            return
        self.density = self.watch(sample_line(self.net.config.height))[1]
        most = EVENTS_PAY_DENSE if dense == DENSE else EVENTS_PAY_TILES
        for layer in self.layers():
            if layer.spikes and self.density.get(layer.name, 1.0) > most:
                layer.choose(dense)

    def watch(self, gray: Floats) -> tuple[dict[str, float], dict[str, float]]:
        """Read a line; the seconds of each layer, and the spikes an input where they are listed."""
        run = self._products()
        self.library.use_threads(min(self.threads, MOST_A_LINE))
        run.seconds, run.density = {}, {}
        try:
            self.read(gray)
            return run.seconds, run.density
        finally:
            run.seconds = run.density = None

    def _products(self) -> Products:
        if not hasattr(self._local, "products"):
            self._local.products = Products(self.library, Memory())
        run: Products = self._local.products
        return run

    @torch.no_grad()
    def __call__(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> Output:
        """images [B, 1, H, W] in [0, 1], widths [B] -> Output. A network of grey lines takes colours, too."""
        images = as_floats(images)
        widths = self.net.check(images, widths)
        if images.shape[1] == self.net.config.in_channels == 3:
            raise SpikeHTRError("the CPU engine reads grey lines, [B, 1, H, W]: for colours call the network itself")
        gray = (images if images.shape[1] == 1 else to_gray(images)).float().numpy()
        grays = [gray[row, 0, :, : int(width)] for row, width in enumerate(widths)]
        lines = self._read_all(grays)
        longest = max(len(logits) for logits, _, _ in lines)
        vocabulary = self.head.outputs
        logits, spans = (
            torch.zeros(len(lines), longest, vocabulary),
            torch.zeros(len(lines), longest, 2, dtype=torch.long),
        )
        for row, (found, covered, _) in enumerate(lines):
            logits[row, : len(found)], spans[row, : len(found)] = found, covered
        lengths = torch.tensor([len(found) for found, _, _ in lines])
        ratio = torch.tensor([len(found) / before for found, _, before in lines])
        return Output(logits, lengths, None, spans, ratio)

    def side_by_side(self, lines: int) -> bool:
        """Whether so many lines are read a thread to each."""
        return self.threads > 1 and lines >= 2 * self.threads

    def _read_all(self, grays: list[Floats]) -> list[tuple[Tensor, Tensor, int]]:
        """A few lines one after the other, all threads at one; many side by side, a thread to each."""
        if not self.side_by_side(len(grays)):
            self.library.use_threads(min(self.threads, MOST_A_LINE))
            return [self.read(gray) for gray in grays]
        self.library.use_threads(1)
        if self._pool is None or self._pool[0] != os.getpid():  # a forked child has none of its parent's threads
            # kept, since each of its threads keeps its memory
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "spikehtr-engine")
        order = sorted(range(len(grays)), key=lambda row: -grays[row].shape[1])  # no long one is left alone at the end
        found = dict(zip(order, self._pool[1].map(self.read, [grays[row] for row in order]), strict=True))
        return [found[row] for row in range(len(grays))]

    def read(self, gray: Floats) -> tuple[Tensor, Tensor, int]:
        """One line [H, w] -> logits [l, V], spans [l, 2], and its tokens before reduction."""
        run = self._products()
        tokens = self.encode(run, gray)
        before = tokens.width
        x, spans = self.reduce(run, tokens)
        return torch.from_numpy(self.decode(run, x).copy()), spans, before

    def encoder_tokens(self, gray: Floats) -> Tensor:
        """What the network's encoder makes of one line: [H, w] -> [T, L0, d]"""
        self.library.use_threads(min(self.threads, MOST_A_LINE))
        z = self.encoder(self._products(), np.ascontiguousarray(gray, np.float32))
        assert z.dense is not None
        return torch.from_numpy(z.dense.reshape(z.steps, z.width, z.channels).copy())

    def encode(self, run: Products, gray: Floats) -> Map:
        """`SpikeHTR.encode` of one line: [H, w] -> tokens [T, 1, L0, d]"""
        return self._positions(run, self.encoder(run, np.ascontiguousarray(gray, np.float32)))

    def reduce(self, run: Products, z: Map) -> tuple[Map, Tensor]:
        """`SpikeHTR.reduce` of one line: tokens [T, 1, l, d], spans [l, 2]"""
        assert z.dense is not None
        tokens = z.dense.reshape(z.steps, z.width, z.channels)
        reduced, spans = reduce_line(tokens, self._classify(run, z, self.fuse_pre), self.net.config.reducer)
        x = run.map("x1", (z.steps, 1, len(spans), z.channels))
        assert x.dense is not None
        x.dense.reshape(reduced.shape)[:] = reduced
        return x, torch.from_numpy(spans)

    def decode(self, run: Products, x: Map) -> Floats:
        """`SpikeHTR.decode` of one line, without its auxiliary logits: [l, V]"""
        for block in self.blocks:
            block(run, x)
        return self._classify(run, x, self.fuse_post)

    def _positions(self, run: Products, z: Map) -> Map:
        """Z + P_abs + CPE(Z)."""
        near = depthwise(run, z, self.cpe_taps, (1, len(self.cpe_taps)), "near")
        last = len(self.table) - 1
        shrink = np.float32(min(last / max(z.width - 1, 1), 1.0))
        place = np.minimum(np.arange(z.width, dtype=np.float32) * shrink, np.float32(last))
        low = place.astype(np.int64)
        part = (place - low)[:, None]
        absolute = self.table[low] * (1 - part) + self.table[np.minimum(low + 1, last)] * part  # [L0, d]
        assert z.dense is not None
        assert near.dense is not None
        shape = (z.steps, z.width, z.channels)
        out = z.dense.reshape(shape)
        out += absolute
        out += near.dense.reshape(shape)
        out += self.cpe_bias
        return z

    def _classify(self, run: Products, x: Map, share: Floats) -> Floats:
        """Fuse over time, then the head: [T, L, d] -> [L, V]."""
        assert x.dense is not None
        fused = run.map("fused", (1, 1, x.width, x.channels))
        assert fused.dense is not None
        fused.dense[:] = np.tensordot(share, x.dense.reshape(x.steps, -1), 1) if x.steps > 1 else x.dense
        normed = self.head_norm(run, fused, run.map("normed", (1, 1, x.width, x.channels), self.head, dense=False))
        out, _ = run.product(self.head, normed, "logits")
        assert out.dense is not None
        return out.dense.reshape(x.width, -1)
