"""Files in double precision: operations that onnxruntime has in single only, made of those that it has in double (sums
over shifted views); and weights stored as narrowly as they can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.export.tracing import need

_END = 2**31 - 1  # of a slice: as far as it goes


def narrow(model: Any) -> None:
    """Weights that half or single precision holds, as those of model files are, are stored in it and widened when the
    file is opened: the same numbers in a quarter or half of the bytes."""
    (onnx,) = need("onnx")
    graph, widened = model.graph, []
    for weight in graph.initializer:
        if weight.data_type != onnx.TensorProto.DOUBLE:
            continue
        name, stored = weight.name, _narrowest(onnx.numpy_helper.to_array(weight))
        if stored.dtype != np.float64:
            weight.CopyFrom(onnx.numpy_helper.from_array(stored, f"{name}.stored"))
            widened.append(onnx.helper.make_node("Cast", [weight.name], [name], to=onnx.TensorProto.DOUBLE))
    nodes = widened + list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)


def _narrowest(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in as few bytes as they need."""
    with np.errstate(over="ignore"):
        for kind in (np.float16, np.float32):
            if ((stored := values.astype(kind)) == values).all():
                return stored
    return values


def translations() -> dict[Any, Any]:
    """For torch.onnx. Sizes of kernels are fixed, those of maps are not."""
    onnx, script = need("onnx", "onnxscript")
    op: Any = script.opset18  # its types are too narrow for what its operators take

    def value(number: float) -> Any:
        return op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [number]))

    def number(s: float, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False) -> Any:
        """torch.onnx's own goes by way of single precision."""
        return op.Cast(value(s), to=dtype)

    def numbers(values: Sequence[int]) -> Any:
        return op.Constant(value_ints=list(values))

    def views(x: Any, kernel: Sequence[int], stride: Sequence[int]) -> Iterator[Any]:
        """What each place of a kernel sees of a map: [B, C, ...], as large as the result."""
        axes = numbers([2 + axis for axis in range(len(kernel))])
        for place in product(*map(range, kernel)):
            ends = [start - size + 1 or _END for start, size in zip(place, kernel, strict=True)]
            yield op.Slice(x, numbers(place), numbers(ends), axes, numbers(stride))

    def padded(x: Any, by: Sequence[int], mode: str = "constant") -> Any:
        return op.Pad(x, numbers([0, 0, *by, 0, 0, *by]), mode=mode) if any(by) else x

    def convolution(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        transposed: bool = False,
        output_padding: Sequence[int] = (0,),
        groups: int = 1,
    ) -> Any:
        """One group, or one for each channel. A product for all places of the kernel at once, or a sum over them."""
        out, per_group, *kernel = (int(size) for size in weight.shape)
        axes = len(kernel)
        stride, padding, dilation = (list(v) * axes if len(v) == 1 else list(v) for v in (stride, padding, dilation))
        assert not transposed
        assert set(dilation) == {1}
        assert groups == 1 or (groups == out and per_group == 1)
        seen = list(views(padded(x, padding), kernel, stride))
        channels = op.Transpose(weight, perm=[*range(2, 2 + axes), 0, 1])  # [..., O, I]
        taps = op.Reshape(channels, numbers([len(seen), out, per_group]))  # [K, O, I]
        if groups == 1:
            flat = op.Reshape(op.Transpose(taps, perm=[1, 0, 2]), numbers([out, len(seen) * per_group]))
            stacked = op.Concat(*seen, axis=1) if len(seen) > 1 else seen[0]  # [B, K I, ...]
            y = op.Einsum(flat, stacked, equation="oi,bihw->bohw" if axes == 2 else "oi,biw->bow")
        else:
            shape = numbers([out, *[1] * axes])
            each = [op.Reshape(op.Gather(taps, numbers([k])), shape) for k in range(len(seen))]
            y = op.Sum(*(op.Mul(view, factor) for view, factor in zip(seen, each, strict=True)))
        return y if bias is None else op.Add(y, op.Reshape(bias, numbers([out, *[1] * axes])))

    def plain(x: Any, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
              groups: int = 1) -> Any:  # fmt: skip
        return convolution(x, weight, bias, stride, padding, dilation, groups=groups)

    def average(
        x: Any,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        assert not ceil_mode
        assert divisor_override is None
        assert not any(padding)
        kernel, step = ([v[0], v[-1]] for v in (kernel_size, stride or kernel_size))
        return op.Div(op.Sum(*views(x, kernel, step)), value(kernel[0] * kernel[1]))

    def stretched(x: Any, times: int, axis: int) -> Any:
        """Linear, by a whole number: each result lies between two neighbours; beyond the edge stands the edge."""
        by = [int(axis == 2), int(axis == 3)]
        size = [1 + 2 * one for one in by]
        before, here, after = views(padded(x, by, "edge"), size, [1, 1])
        phases = []
        for phase in range(times):
            place = (phase + 0.5) / times - 0.5
            other = before if place < 0 else after
            between = op.Add(op.Mul(here, value(1 - abs(place))), op.Mul(other, value(abs(place))))
            phases.append(op.Unsqueeze(between, numbers([axis + 1])))
        woven = op.Concat(*phases, axis=axis + 1)  # [.., n, times, ..]
        shape = op.Shape(x)
        sizes = [op.Slice(shape, numbers([i]), numbers([i + 1])) for i in range(4)]
        sizes[axis] = op.Mul(sizes[axis], numbers([times]))
        return op.Reshape(woven, op.Concat(*sizes, axis=0))

    def bilinear(x: Any, output_size: Any, align_corners: bool, scale_factors: Sequence[float] | None = None) -> Any:
        assert scale_factors is not None
        assert not align_corners
        assert all(factor == int(factor) for factor in scale_factors)
        for axis, factor in zip((2, 3), scale_factors, strict=True):
            x = stretched(x, int(factor), axis)
        return x

    def token_norm(
        x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> Any:  # fmt: skip
        """ONNX's own rounds its epsilon to single precision."""
        assert len(normalized_shape) == 1
        last = numbers([-1])
        from_mean = op.Sub(x, op.ReduceMean(x, last))
        variance = op.ReduceMean(op.Mul(from_mean, from_mean), last)
        y = op.Div(from_mean, op.Sqrt(op.Add(variance, value(eps))))
        y = y if weight is None else op.Mul(y, weight)
        return y if bias is None else op.Add(y, bias)

    aten = torch.ops.aten
    return {
        aten.convolution.default: convolution,
        aten.conv2d.default: plain,
        aten.conv1d.default: plain,
        aten.avg_pool2d.default: average,
        aten.upsample_bilinear2d.vec: bilinear,
        aten.layer_norm.default: token_norm,
        aten.scalar_tensor.default: number,
    }
