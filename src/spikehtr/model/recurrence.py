"""SR: a spiking recurrence along the line, as token operator. Not of the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from spikehtr import ops
from spikehtr.config import ModelConfig
from spikehtr.model.lif import make_neuron
from spikehtr.model.masking import TokenNorm
from spikehtr.model.mixer import Branch, Linear, SpikingLinear, norm_and_fire


class SpikingRecurrence(Branch):
    """u_i = f_i u_{i-1} + (1 - f_i) v_i; y = W LIF(Norm(u)). Each token says what it adds (v) and how much is kept (f).

    Half of the channels go along the line, half of them back, so a token hears of the whole line. No spike goes back
    into the recurrence: all tokens are computed at once.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c, dim = config.mixer, config.dim
        self.norm = TokenNorm(dim)
        self.inp = Linear(dim, 2 * dim)
        with torch.no_grad():  # channels of either direction start with short and with long memories
            ahead, behind = dim // 2, dim - dim // 2
            # With a leak of 4 a membrane holds what some 50 tokens gave.
            self.inp.bias[dim:] = torch.cat([torch.linspace(0, 4.0, n) for n in (ahead, behind)])
        self.state_norm = TokenNorm(dim)
        self.state_neuron = make_neuron(config, self.state_norm, c.burst, c.start_bias)
        self.out = SpikingLinear(config, dim, dim, last=True)

    def drive(self, x: Tensor, mask: Tensor) -> Tensor:
        u = ops.leaky_scan(self.inp(self.norm(x)), mask)  # [T, B, L, d]
        return self.out.linear(norm_and_fire(self.state_norm, self.state_neuron, u))
