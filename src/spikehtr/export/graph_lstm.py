"""LSTMs in ONNX graphs. PyTorch's own one is traced step by step, so the graph would be for lines of one length: here
an LSTM becomes one operation, which is translated to ONNX's LSTM."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


def has_lstms(net: nn.Module) -> bool:
    return any(isinstance(module, nn.LSTM) for module in net.modules())


def with_graph_lstms(net: Net) -> Net:
    """A network whose LSTMs can be traced; itself where it has none."""
    if not has_lstms(net):
        return net
    net = copy.deepcopy(net)
    for parent in list(net.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LSTM):
                setattr(parent, name, GraphLSTM(child))
    return net


@torch.library.custom_op("spikehtr::lstm", mutates_args=())
def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, hidden_size: int) -> Tensor:
    """[B, L, d] -> [B, L, h]; w [1, 4h, d], r [1, 4h, h], b [1, 8h] as ONNX has them, gates in the order i, o, f, c."""
    b_ih, b_hh = b[0].split(4 * hidden_size)
    weights = [_in_order(value, (0, 2, 3, 1)) for value in (w[0], r[0], b_ih, b_hh)]
    start = x.new_zeros(1, len(x), hidden_size)
    out: Tensor = torch._VF.lstm(x, (start, start), weights, True, 1, 0.0, False, False, True)[0]
    return out.clone()


@lstm.register_fake
def _(x: Tensor, w: Tensor, r: Tensor, b: Tensor, hidden_size: int) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], hidden_size)


def _in_order(value: Tensor, gates: tuple[int, ...]) -> Tensor:
    parts = value.chunk(4)
    return torch.cat([parts[gate] for gate in gates])


class GraphLSTM(nn.Module):
    """An LSTM of one layer and direction, over rows: [B, L, d] -> ([B, L, h], None)"""

    def __init__(self, source: nn.LSTM) -> None:
        super().__init__()
        self.hidden_size = source.hidden_size
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        # PyTorch's gates are i, f, g (ONNX: c), o.
        w, r, b_ih, b_hh = (_in_order(getattr(source, name).detach(), (0, 3, 1, 2)) for name in names)
        self.w, self.r = nn.Parameter(w[None]), nn.Parameter(r[None])
        self.b = nn.Parameter(torch.cat([b_ih, b_hh])[None])

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return lstm(x, self.w, self.r, self.b, self.hidden_size), None


def translation(op: Any) -> Any:
    """`lstm` by the operators of ONNX."""

    def onnx_lstm(x: Any, w: Any, r: Any, b: Any, hidden_size: int) -> Any:
        out, _, _ = op.LSTM(op.Transpose(x, perm=[1, 0, 2]), w, r, b, hidden_size=hidden_size)  # [L, 1, B, h]
        return op.Transpose(op.Squeeze(out, op.Constant(value_ints=[1])), perm=[1, 0, 2])

    return onnx_lstm
