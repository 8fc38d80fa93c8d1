"""The compiled functions of `native`, as Python calls them: one structure for each, as in the C files.

They are built when the package is installed, where a C compiler is at hand; without them `library` says why not and
the recogniser reads with the reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, Structure, byref, c_float, c_int, c_void_p
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from numpy.typing import NDArray

from spikehtr.errors import SpikeHTRError

BLOCK = 96  # positions whose sums are taken together, as in common.h
DENSE, TILES, EVENTS = range(3)  # product.h
NO_NEURON, LIF, SILU = range(3)  # maps.c
GATE_KEYS, SCALE, LARGE_KERNEL, NUDGE, COPY = range(5)  # tokens.c


def _structure(name: str, pointers: str, integers: str = "", floats: str = "") -> type[Structure]:
    """A structure of pointers, then ints, then floats: the order all of ours have."""
    fields: list[tuple[str, Any]] = [(field, c_void_p) for field in pointers.split()]
    fields += [(field, c_int) for field in integers.split()]
    fields += [(field, c_float) for field in floats.split()]
    return type(name, (Structure,), {"_fields_": fields})


class Weights(Structure):
    _fields_: ClassVar[Any] = [
        *[(name, c_int) for name in ("k", "n")],
        *[(name, c_void_p) for name in ("panels", "tiles", "rows", "bias")],
    ]


Source = _structure(
    "Source",
    "dense half fired counts",
    "steps height width channels kernel_h kernel_w stride_h stride_w burst",
)
Fire = _structure(
    "Fire",
    "raw scale shift residual out half fired counts sums",
    "steps positions channels neuron burst",
    "decay threshold burst_step alpha",
)
Depthwise = _structure("Depthwise", "x weight out sums", "steps height width channels kernel_h kernel_w")
Inject = _structure("Inject", "features gates out", "steps positions channels", "beta")
Fuse = _structure("Fuse", "detail gate f3", "steps height width channels stride_h stride_w", "rho")
AttendRows = _structure(
    "AttendRows", "f hidden readout attended largest", "steps height width channels hidden_channels"
)
TokenFire = _structure(
    "TokenFire",
    "raw weight bias residual out half fired counts",
    "steps length channels neuron burst",
    "eps decay threshold burst_step",
)
Attention = _structure("Attention", "qkv out", "steps length heads depth")
LeakyScan = _structure("LeakyScan", "driven out", "steps length channels")
Elementwise = _structure("Elementwise", "a b c out half", "kind rows channels heads lda")
Ink = _structure(
    "Ink",
    "gray gates memory theta sharpness weight",
    "steps height width stride_h stride_w blur density edge_scale",
    "q_low q_high q_edge kappa_int tau_int kappa_edge tau_edge kappa_density tau_density gamma_density",
)
Stem = _structure("Stem", "gray weight out sums", "height width channels kernel_h kernel_w stride_h stride_w")
Beam = _structure(
    "Beam",
    "log_probs labels lengths tokens first_arc backoff_state to arc_label arc_log_prob backoff settings "
    "texts text_lengths scores spans log_weights frame_labels frame_log_probs chosen confidences other_counts "
    "other_labels other_shares",
    "lines frames candidates beam best sums start reach",
)

_CALLS = {
    "fire": Fire,
    "depthwise": Depthwise,
    "inject": Inject,
    "fuse": Fuse,
    "attend_rows": AttendRows,
    "token_fire": TokenFire,
    "attention": Attention,
    "elementwise": Elementwise,
    "leaky_scan": LeakyScan,
    "ink": Ink,
    "stem": Stem,
    "beam": Beam,
}


class Library:
    """The functions, each taking its structure: `library().call("fire", raw=..., steps=1, ...)`."""

    def __init__(self, path: Path) -> None:
        dll = ctypes.CDLL(str(path))
        for name, structure in (_CALLS | {"weights": Weights, "source": Source}).items():
            last = getattr(structure, structure._fields_[-1][0])  # the end, not the size: that may be padded
            if getattr(dll, f"spikehtr_end_of_{name}")() != last.offset + last.size:
                raise AttributeError(f"{name} is laid out otherwise")
        self._functions = {}
        for name, structure in _CALLS.items():
            function = getattr(dll, f"spikehtr_{name}")
            function.argtypes, function.restype = [POINTER(structure)], None
            self._functions[name] = (function, structure)
        self._product = dll.spikehtr_product
        self._product.argtypes = [POINTER(Weights), POINTER(Source), c_int, c_void_p, c_void_p, c_int]
        self._product.restype = None
        self.norm = dll.spikehtr_norm
        self.norm.argtypes = [c_void_p, *[c_int] * 5, c_float, *[c_void_p] * 4]
        self.norm.restype = None
        self._threads = dll.spikehtr_threads
        self._threads.argtypes, self._threads.restype = [c_int], None
        self.tiles = bool(dll.spikehtr_tiles())  # a tile unit (AMX) that this process may use
        self.strip = int(dll.spikehtr_strip())  # columns of weights that lie side by side (product.h)
        self.threads, self._lock = 1, Lock()

    def call(self, name: str, **fields: Any) -> None:
        function, structure = self._functions[name]
        function(byref(structure(**fields)))

    def prepare(self, name: str, arrays: Mapping[str, NDArray[Any]], **fields: Any) -> Callable[[], None]:
        """What `call` would do with the arrays' addresses, for later; they are kept for it."""
        function, structure = self._functions[name]
        addresses = {field: values.ctypes.data for field, values in arrays.items()}
        return partial(_later, function, structure(**addresses, **fields), arrays)

    def product(self, weights: Weights, source: Structure, mode: int, out: int, sums: int | None) -> None:
        self._product(byref(weights), byref(source), mode, out, sums, self.threads)

    def use_threads(self, count: int) -> None:
        if count != self.threads:
            with self._lock:
                self._threads(count)
                self.threads = count


def _later(function: Callable[[Any], None], values: Structure, kept: object) -> None:
    function(byref(values))


@cache
def library() -> Library:
    """The compiled functions, or an error that says what is missing."""
    folder = Path(__file__).parent
    found = sorted(folder.glob("_native*.so")) + sorted(folder.glob("_native*.pyd"))
    if not found:
        raise SpikeHTRError(
            "the native kernels were not built: install the package where a C compiler (gcc) is at hand"
        )
    try:
        return Library(found[0])
    except OSError as error:
        raise SpikeHTRError(f"{found[0].name} cannot be used: {error}") from None
    except AttributeError as error:
        raise SpikeHTRError(f"{found[0].name} is of other sources ({error}): install the package again") from None
