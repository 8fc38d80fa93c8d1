"""Normalisation in ONNX graphs. It takes some fifty of PyTorch's operations, and a network has it up to eighty times:
to trace them would be most of the time that a file takes. Here it is one operation, translated to those of ONNX."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.baselines.common import Columns
from spikehtr.baselines.norms import ColumnNorm
from spikehtr.export.tracing import need

Net = TypeVar("Net", bound=nn.Module)


def with_graph_norms(net: Net) -> Net:
    """A network whose `ColumnNorm`s are one operation each; itself where it has none."""
    if not any(isinstance(module, ColumnNorm) for module in net.modules()):
        return net
    net = copy.deepcopy(net)
    for parent in list(net.modules()):
        for name, child in parent.named_children():
            if isinstance(child, ColumnNorm):
                setattr(parent, name, GraphNorm(child))
    return net


@torch.library.custom_op("spikehtr::column_norm", mutates_args=())
def column_norm(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    """[B, C, H, W], each line's own columns [B], [C], [C] -> [B, C, H, W]"""
    return ops.group_norm(x[None], widths, weight, bias, ops.Norm(groups, eps))[0].clone()


@column_norm.register_fake
def _(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    return torch.empty_like(x)


class GraphNorm(nn.Module):
    def __init__(self, source: ColumnNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.numbers = source.weight, source.bias, source.numbers

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        widths = own.widths_at(x.shape[-1])
        return own(column_norm(x, widths, self.weight, self.bias, self.numbers.groups, self.numbers.eps))


def translation(op: Any) -> Any:
    """`column_norm` by the operators of ONNX: `ops.plain.group_norm`, step by step."""
    (onnx,) = need("onnx")
    double = onnx.TensorProto.DOUBLE

    def numbers(*values: int) -> Any:
        return op.Constant(value_ints=list(values))

    def number(value: float) -> Any:
        return op.Constant(value=onnx.helper.make_tensor("value", double, [], [value]))

    def onnx_norm(x: Any, widths: Any, weight: Any, bias: Any, groups: int, eps: float) -> Any:
        shape, spread = op.Shape(x), int(weight.shape[0]) // groups
        height, width = (op.Gather(shape, op.Constant(value_int=axis)) for axis in (2, 3))
        place = op.Range(op.Constant(value_int=0), width, op.Constant(value_int=1))
        inside = op.CastLike(op.Less(place, op.Unsqueeze(widths, numbers(1))), x)  # [B, W]
        grouped = op.Reshape(op.Mul(x, op.Unsqueeze(inside, numbers(1, 2))), numbers(0, groups, -1))
        each = op.Unsqueeze(op.Mul(widths, op.Mul(height, op.Constant(value_int=spread))), numbers(1, 2))
        count = op.Cast(each, to=double)  # [B, 1, 1]
        mean = op.Div(op.ReduceSum(op.Cast(grouped, to=double), numbers(2)), count)  # [B, G, 1]
        square = op.Div(op.ReduceSum(op.Cast(op.Mul(grouped, grouped), to=double), numbers(2)), count)
        variance = op.Max(op.Sub(square, op.Mul(mean, mean)), number(0.0))
        rstd = op.Reciprocal(op.Sqrt(op.Add(variance, number(eps))))
        gain, offset = (op.Reshape(op.Cast(value, to=double), numbers(groups, spread)) for value in (weight, bias))
        scale = op.Mul(rstd, gain)  # [B, G, C/G]
        shift = op.Sub(offset, op.Mul(mean, scale))
        scale, shift = (op.CastLike(op.Reshape(value, numbers(0, -1, 1, 1)), x) for value in (scale, shift))
        return op.Add(op.Mul(x, scale), shift)

    return onnx_norm
