"""Lists of spikes hold what the same neurons write as numbers: any size, at the threshold too, and nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.readers.cpu.library import LIF, library

try:
    library()
except SpikeHTRError as error:
    pytest.skip(str(error), allow_module_level=True)

UNTOUCHED = 60000


def fire(raw, scale, shift, burst, burst_step, lists):
    """The spikes [T, P, C] of neurons driven by raw * scale + shift, by way of lists or not."""
    steps, positions, channels = raw.shape
    out = np.zeros(raw.shape, np.float32)
    fired = np.full(raw.size * burst + 64, UNTOUCHED, np.uint16)
    counts = np.zeros((steps, positions), np.int32)
    library().call(
        "fire",
        raw=raw.ctypes.data,
        scale=scale.ctypes.data,
        shift=shift.ctypes.data,
        out=None if lists else out.ctypes.data,
        fired=fired.ctypes.data if lists else None,
        counts=counts.ctypes.data,
        steps=steps,
        positions=positions,
        channels=channels,
        neuron=LIF,
        burst=burst,
        decay=0.5,
        threshold=1.0,
        burst_step=burst_step,
        alpha=0.0,
    )
    if lists:
        assert (fired[raw.size * burst :] == UNTOUCHED).all()
        room = fired[: raw.size * burst].reshape(steps, positions, channels * burst)
        for at in np.ndindex(steps, positions):
            np.add.at(out[at], room[at][: counts[at]], 1)
    return out


@settings(max_examples=60, deadline=None)
@given(
    steps=st.sampled_from([1, 1, 2]),
    positions=st.integers(1, 200),
    channels=st.integers(1, 130),
    burst=st.sampled_from([1, 2, 8]),
    burst_step=st.sampled_from([0.5, 3 / 64, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_lists_hold_the_spikes(steps, positions, channels, burst, burst_step, seed):
    rng = np.random.default_rng(seed)
    scale, shift = rng.normal(size=(2, steps, channels)).astype(np.float32)
    raw = rng.normal(scale=4, size=(steps, positions, channels)).astype(np.float32)
    # Every third channel is driven to one of its thresholds, but for the last digits.
    thresholds = 1 + rng.integers(0, burst, raw.shape) * burst_step
    close = (thresholds - shift[:, None]) / scale[:, None] * (1 + rng.integers(-2, 3, raw.shape) * 1e-7)
    raw[..., ::3] = close[..., ::3].astype(np.float32)
    numbers, listed = (fire(raw, scale, shift, burst, burst_step, lists) for lists in (False, True))
    assert np.array_equal(numbers, listed)
    assert numbers.max() <= burst
