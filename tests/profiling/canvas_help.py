"""The paper's way of counting, by the profiler's hooks: a second opinion on `counts`."""

import numpy as np
import torch

from spikehtr.assets import SAMPLE_LINE
from spikehtr.data.geometry import fit_line, paper_level
from spikehtr.data.images import load_line
from spikehtr.profiling.ledger import Ledger
from spikehtr.profiling.record_activity import Measured, recording


@torch.no_grad()
def measure_canvas(net, width, ratio):
    """The sample line on a canvas of `width`, a given ratio of its tokens mixed: the paper's way of counting.

    As `counts.run`: which tokens are merged shall not hang on training.
    """
    line = fit_line(load_line(SAMPLE_LINE), net.config.height, width)
    canvas = np.full((net.config.height, width), paper_level(line), np.uint8)
    canvas[:, : line.shape[1]] = line
    device = next(net.parameters()).device
    images = torch.from_numpy(canvas.astype(np.float32) / 255)[None, None].to(device)
    with recording(net) as record:
        z, lengths = net.encoder(*net.prepare(images))
        z = net.positions(z, lengths)
        net.reduce(z, lengths)
        mixed = max(1, round(ratio * z.shape[2]))
        record.extent.tokens = torch.tensor([mixed], device=device)
        net.decode(z[:, :, :mixed], record.extent.tokens)
    return Measured(list(record.firing.values()), Ledger(list(record.work.values()), 1, net.config.timesteps), [])
