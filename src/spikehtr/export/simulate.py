"""An exported network run from its .nir file and its manifest alone, one unpadded line at a time.

It is slow and plain. It shows that the two files are enough, and how they go together; the docstring of an operation is
what the manifest says of it. Parts and what stands between them are computed here; what a host does before the first
part (gates) and for the whole line (the reduction) is computed by the functions that the network itself has for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr import ops
from spikehtr.config import ReducerConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.export.tracing import need
from spikehtr.model import entry
from spikehtr.model.inkcoder import to_gray
from spikehtr.model.reducer import CTCLengthReducer

FORMAT = "spikehtr-nir-2"
Parameters = dict[str, Any]


class Simulation:
    """A file of `spikehtr export nir` and the manifest beside it, ready to read lines."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        (nir,) = need("nir")
        self.path = Path(path)
        self.manifest: dict[str, Any] = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
        if (found := self.manifest.get("format")) != FORMAT:
            raise SpikeHTRError(f"{self.path.with_suffix('.json')}: in format {found}, not {FORMAT}; export it again")
        self.parts = nir.read(path).nodes

    def __call__(self, image: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """image [C, H, W] in [0, 1], W whole tokens -> logits [L, V], and the spikes [T, ...] of every neuron by name.

        Computed in the image's precision.
        """
        m, (channels, height, width) = self.manifest, image.shape
        if height != m["height"] or width > m["width"] or width % m["stride"] or not width:
            limits = f"{m['height']} pixels high, up to {m['width']} wide, in steps of {m['stride']}"
            raise SpikeHTRError(f"{self.path} is for lines {limits}; this one is {height} high, {width} wide")
        values = {"image": image.expand(m["channels"], -1, -1) if channels == 1 else image}
        spikes: dict[str, Tensor] = {}
        for step in m["steps"]:
            inputs = [values[name] for name in step["reads"]]
            if step["on"] == "nir":
                values[step["name"]], fired = _part(self.parts[step["name"]], inputs[0], m["dt"])
                if fired:
                    spikes[step["fires"]] = torch.stack(fired).sum(0)
            else:
                values[step["name"]] = OPERATIONS[step["operation"]](step, *inputs)
        return values[m["output"]], spikes


def _part(part: Any, x: Tensor, dt: float) -> tuple[Tensor, list[Tensor]]:
    """What a part's graph makes of x, and what each of its neurons fired. Where edges meet, values are added."""
    if not hasattr(part, "nodes"):
        return _node(part, x, dt), []
    made = {"input": x}

    def made_by(name: str) -> Tensor:
        if name not in made:
            met = torch.stack([made_by(before) for before, after in part.edges if after == name]).sum(0)
            made[name] = met if name == "output" else _node(part.nodes[name], met, dt)
        return made[name]

    out = made_by("output")
    return out, [made[name] for name, node in part.nodes.items() if type(node).__name__ in ("LIF", "IF")]


def _node(node: Any, x: Tensor, dt: float) -> Tensor:
    kind = type(node).__name__
    if kind in ("LIF", "IF"):
        return _fire(node, x, dt)
    if kind == "AvgPool2d":
        return F.avg_pool2d(x, tuple(map(int, node.kernel_size)), tuple(map(int, node.stride)))
    weight = torch.from_numpy(node.weight).to(x.dtype)
    bias = torch.from_numpy(node.bias).to(x.dtype) if hasattr(node, "bias") else None
    if kind in ("Linear", "Affine"):
        return F.linear(x, weight, bias)
    groups = int(node.groups)
    if kind == "Conv2d":
        maps = x if x.dim() == 4 else x[None]
        return F.conv2d(maps, weight, bias, tuple(map(int, node.stride)), tuple(map(int, node.padding)), 1, groups)
    assert kind == "Conv1d"
    return F.conv1d(x.transpose(1, 2), weight, bias, int(node.stride), int(node.padding), 1, groups).transpose(1, 2)


def _fire(node: Any, x: Tensor, dt: float) -> Tensor:
    """The neuron of the manifest's `neuron`; a map that is narrower than the file's uses the first columns."""

    def of(name: str) -> Tensor:
        value = torch.from_numpy(getattr(node, name)).to(x.dtype)
        return value[..., : x.shape[-1]]

    leaky = hasattr(node, "tau")
    v = torch.zeros_like(x[0]) + (of("v_leak") if leaky else 0.0)
    fired = []
    for current in x:
        share = dt / of("tau") if leaky else None
        if share is None:
            v = v + dt * of("r") * current
        else:
            v = (1 - share) * v + share * (of("v_leak") + of("r") * current)
        s = v >= of("v_threshold")
        v = torch.where(s, of("v_reset"), v)
        fired.append(s.to(x.dtype))
    return torch.stack(fired)


def repeat_gates(p: Parameters, image: Tensor) -> Tensor:
    """Gates of 1 at every step. [C, H, W] -> [T, 1, H, W], as of all gates."""
    return torch.ones_like(image[:1]).expand(p["timesteps"], -1, -1, -1)


def ttfs_gates(p: Parameters, image: Tensor) -> Tensor:
    """A pixel's gate is 1 at step floor((1 - darkness) * T), counted from 0, and 0 else; darkness = 1 - grey level."""
    return entry.ttfs_gates(1 - to_gray(image[None]), p["timesteps"])[:, 0]


def poisson_gates(p: Parameters, image: Tensor) -> Tensor:
    """1 where noise < darkness (1 - grey level). The noise of (t, y, x), counted from 0: h = 73856093 t + 19349663 y +
    83492791 x + 1; three times h <- (((h >> 15) xor h) * 0x2C1B3C6D) mod 2^32; noise = (h >> 8) / 2^24."""
    return entry.poisson_gates(1 - to_gray(image[None]), p["timesteps"], training=False)[:, 0]


def inkcoder_gates(p: Parameters, image: Tensor) -> Tensor:
    """Coarse-to-fine gates. With S(a, k, m) = sigmoid(k (a - m)), box(a, n) the mean over n x n pixels, edges repeated,
    and quantiles linearly interpolated over the pixels: smooth = box(grey, blur); ink = 1 - clip((smooth - low) / (high
    - low + 1e-6), 0, 1), low and high its q_low and q_high quantiles (0 everywhere where they are within 0.001). edge =
    the larger of the Sobel magnitudes (kernels of unit gain, edges repeated, sqrt(gx^2 + gy^2 + 1e-12)) of smooth, and
    of smooth averaged over edge_scale x edge_scale cells (edges repeated where cells are cut), enlarged bilinearly with
    half-pixel centres; divided by its q_edge quantile + 1e-6 and clipped to [0, 1]; times S(ink, kappa_int, tau_int);
    times S(box(of that, density), kappa_edge, tau_edge). At step t: raw = clip((1 - edge_weight) ink + edge_weight
    edge, 0, 1); evidence = raw * S(box(raw, density), kappa_density, tau_density) ^ gamma_density; gate =
    sigmoid(sharpness (evidence - theta))."""
    theta, sharpness, weight = (
        torch.tensor(p[name], dtype=image.dtype)[:, None, None, None] for name in ("theta", "sharpness", "edge_weight")
    )
    numbers = ops.Ink(**{name: p[name] for name in ops.Ink._fields})
    width = torch.tensor([image.shape[-1]])
    evidence = ops.ink_evidence(to_gray(image[None]), width, weight.flatten(), numbers)[:, 0]  # [T, 1, H, W]
    return torch.sigmoid(sharpness * (evidence - theta))


def reduce(p: Parameters, z: Tensor, preview: Tensor) -> Tensor:
    """Fewer tokens, by the preview's logits. Label 0 is the blank. Position i is kept if its blank probability is below
    tau or the entropy of its probabilities (nats) is above eta; if fewer than ceil(gamma * L) are kept, those with the
    lowest blank probability follow, earlier ones first. Runs of the rest are cut from their first position into spans
    of k, the last maybe shorter; each becomes their mean, weighted by 1 - blank probability + 1e-6. Mode none: all are
    kept; merge-only: neither entropy nor gamma; prune-only: the rest is dropped, and if nothing is kept the first
    position is."""
    rules = ReducerConfig(**{name: p[name] for name in ReducerConfig.model_fields if name in p})
    kept: Tensor = CTCLengthReducer(rules)(z[:, None], torch.tensor([z.shape[1]]), preview[None]).tokens[:, 0]
    return kept


def group_norm(p: Parameters, x: Tensor) -> Tensor:
    """Each step and each group of C / groups neighbouring channels: (x - mean) / sqrt(variance + eps) over all its
    values, then times weight plus bias, by channel."""
    weight, bias = (torch.tensor(p[key], dtype=x.dtype) for key in ("weight", "bias"))
    return F.group_norm(x, p["groups"], weight, bias, p["eps"])


def layer_norm(p: Parameters, x: Tensor) -> Tensor:
    """Each vector: (x - mean) / sqrt(variance + eps) over its values, then times weight plus bias."""
    weight, bias = (torch.tensor(p[key], dtype=x.dtype) for key in ("weight", "bias"))
    return F.layer_norm(x, weight.shape, weight, bias, p["eps"])


def silu(p: Parameters, x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * torch.sigmoid(x)


def mean_pool(p: Parameters, x: Tensor) -> Tensor:
    """The mean over cells of `size` (height, width) pixels."""
    return F.avg_pool2d(x, tuple(p["size"]))


def inject(p: Parameters, features: Tensor, gates: Tensor) -> Tensor:
    """features * (beta + (1 - beta) * gates): one map of features for all steps, one gate for all channels."""
    beta: float = p["beta"]
    return features * (beta + (1 - beta) * gates)


def total(p: Parameters, *terms: Tensor) -> Tensor:
    """The sum of what is read, each times its factor."""
    return torch.stack([f * x for f, x in zip(p["factors"], torch.broadcast_tensors(*terms), strict=True)]).sum(0)


def mix_maximum(p: Parameters, x: Tensor, average: Tensor) -> Tensor:
    """average + rho * (maximum - average), with the maximum of the first map over cells of `size`."""
    rho: float = p["rho"]
    return average + rho * (F.max_pool2d(x, tuple(p["size"])) - average)


def gated_sum(p: Parameters, x: Tensor, gate: Tensor, detail: Tensor) -> Tensor:
    """x + sigmoid(gate) * detail."""
    return x + torch.sigmoid(gate) * detail


def turn(p: Parameters, x: Tensor) -> Tensor:
    """[T, C, H, W] -> [T, W, H, C]."""
    return x.permute(0, 3, 2, 1)


def attend_height(p: Parameters, x: Tensor, score: Tensor) -> Tensor:
    """The mean of x over the height, weighted by the softmax of the scores over it: [T, W, H, C], [T, W, H, 1] ->
    [T, W, C], which are the tokens."""
    return (score.softmax(2) * x).sum(2)


def nudge_height(p: Parameters, x: Tensor, attended: Tensor, nudge: Tensor) -> Tensor:
    """attended + sigmoid(nudge) * (the maximum of x over the height - attended)."""
    return attended + torch.sigmoid(nudge) * (x.amax(2) - attended)


def position_share(p: Parameters, z: Tensor) -> Tensor:
    """For each of the L tokens, which entries of a table of `size` it reads: place = i * min(1, (size - 1) / max(1, L -
    1)), no more than size - 1; the share of entry j is max(0, 1 - |place - j|). [L, size], the same for all steps."""
    length, last = z.shape[1], int(p["size"]) - 1
    shrink = (last / torch.tensor(max(1, length - 1), dtype=z.dtype)).clamp(max=1.0)
    place = (torch.arange(length) * shrink).clamp(max=last)
    return (1 - (place[:, None] - torch.arange(last + 1)).abs()).clamp(min=0).to(z.dtype)


def time_sum(p: Parameters, z: Tensor) -> Tensor:
    """The sum over the steps, each times its weight."""
    return torch.einsum("t,t...->...", torch.tensor(p["weights"], dtype=z.dtype), z)


def matched_mean(p: Parameters, qkv: Tensor) -> Tensor:
    """The last axis holds q, k, v one after another, each of `heads` heads. Head by head, for token i: y_i = q_i (sum
    over j of k_j v_j^T) / (1 + |q_i . sum over j of k_j|)."""
    q, k, v = qkv.unflatten(-1, (3, p["heads"], -1)).unbind(2)  # [T, L, h, d/h]
    matches = torch.einsum("tihd,tjhd->tihj", q, k)
    return (torch.einsum("tihj,tjhd->tihd", matches, v) / (1 + matches.sum(-1, keepdim=True).abs())).flatten(2)


def pass_keys(p: Parameters, qk: Tensor) -> Tensor:
    """The last axis holds q, k, each of `heads` heads: a head's k passes if its q fired at all, else it is 0."""
    heads: Tensor = qk.unflatten(-1, (2, p["heads"], -1))
    q, k = heads.unbind(2)  # [T, L, h, d/h]
    return (k * (q.sum(-1, keepdim=True) >= 0.5)).flatten(2)


def scale_by_sigmoid(p: Parameters, x: Tensor, gate: Tensor) -> Tensor:
    """x * sigmoid(gate)."""
    return x * torch.sigmoid(gate)


def third(p: Parameters, x: Tensor) -> Tensor:
    """The last axis cut into three equal parts; of them the one with this number, counted from 0."""
    return x.chunk(3, -1)[p["number"]]


def blend(p: Parameters, value: Tensor, gate: Tensor, fired: Tensor) -> Tensor:
    """value + sigmoid(gate) * (fired - value)."""
    return value + torch.sigmoid(gate) * (fired - value)


def leaky_scan(p: Parameters, driven: Tensor) -> Tensor:
    """The last axis holds values v, then leaks; f = sigmoid(leak). Along the tokens u_i = f_i u_(i-1) + (1 - f_i) v_i,
    from 0: the first half (rounded down) of the channels from the first token to the last, the others from the last to
    the first."""
    value, leak = driven.chunk(2, -1)
    kept, half = torch.sigmoid(leak), value.shape[-1] // 2
    u, behind = torch.zeros_like(value), torch.arange(value.shape[-1]) >= half
    membrane = torch.zeros_like(value[:, 0])
    for i in range(value.shape[1]):
        place = torch.where(behind, value.shape[1] - 1 - i, i)  # of each channel
        at = (slice(None), place, torch.arange(len(place)))
        membrane = kept[at] * membrane + (1 - kept[at]) * value[at]
        u[at] = membrane
    return u


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (
        *(inkcoder_gates, repeat_gates, poisson_gates, ttfs_gates, mean_pool, inject, silu, group_norm, mix_maximum),
        *(gated_sum, turn, attend_height, nudge_height, position_share, time_sum, reduce, layer_norm, matched_mean),
        *(pass_keys, scale_by_sigmoid, third, blend, leaky_scan),
    )
} | {"sum": total}
