"""What the CPU engine takes, it gives back or uses again: nothing grows with the number of lines, threads or calls."""

import ctypes
import gc
import threading
from itertools import pairwise

import pytest
import torch
from engine_help import batch, network

from spikehtr.readers.cpu.engine import Engine


class Counts(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    NAMES = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


try:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Counts
except (AttributeError, OSError, TypeError):
    pytest.skip("the C library here does not count what is allocated", allow_module_level=True)

SLACK = 64 << 10  # bytes: what Python itself keeps and lets go as it pleases


def in_use():
    """Bytes that were allocated and not freed, by all threads."""
    gc.collect()
    counts = mallinfo()
    return counts.uordblks + counts.hblkhd  # from the heaps, and in maps of their own


def growth(act, rounds=7):
    """Bytes that go with every `rounds` rounds, the least of three times: what leaks does so each time, while a thread
    that gets its first line late takes memory for it once."""
    act()
    levels = [in_use()]
    for _ in range(3):
        for _ in range(rounds):
            act()
        levels.append(in_use())
    return min(after - before for before, after in pairwise(levels))


@pytest.mark.slow
@pytest.mark.parametrize("events", ["never", "always"])
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_many_calls_take_no_more_than_a_few(threads, events):
    """Three lines are read one after the other, four on two threads side by side."""
    engine = Engine(network(), events=events, threads=threads)
    few, many = batch(60, 97, 33), batch(97, 97, 97, 97)
    assert growth(lambda: (engine(*few), engine(*many))) < SLACK


def test_threads_that_end_leave_nothing_behind():
    engine = Engine(network(), threads=1)
    images, widths = batch(97)

    def act():
        thread = threading.Thread(target=engine, args=(images, widths))
        thread.start()
        thread.join()

    assert growth(act) < SLACK


def test_another_number_of_threads_leaves_nothing_behind():
    """Those of before are stopped, and new ones started."""
    net = network()
    engines = [Engine(net, threads=threads) for threads in (2, 3)]
    lines = batch(97)
    assert growth(lambda: [engine(*lines) for engine in engines]) < SLACK


def test_only_a_wider_line_than_all_before_takes_more():
    engine = Engine(network(), threads=1)
    widest = batch(200)
    engine(*widest)
    kept = {name: buffer.nbytes for name, buffer in engine._products().memory._buffers.items()}
    assert growth(lambda: [engine(*batch(width)) for width in (30, 200, 111, 7)], 2) < SLACK
    assert {name: buffer.nbytes for name, buffer in engine._products().memory._buffers.items()} == kept
    assert torch.equal(engine(*widest).logits, Engine(network(), threads=1)(*widest).logits)
