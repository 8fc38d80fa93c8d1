"""What the network computes: functions of tensors and plain numbers, at the granularity at which they can be fused.

`ops.plain` says what each means; `ops.triton` does the same in fewer passes over memory. Which is taken is decided in
one place (`ops.dispatch`), by the first tensor; `with ops.reference():` asks for the plain side. Nothing here knows a
module or a configuration.
"""

from spikehtr.ops.dispatch import dispatched, reference, reference_asked, uses_triton, using
from spikehtr.ops.masks import at_least_fp32, column_mask, shrink, valid_mask
from spikehtr.ops.plain import ctc, ink, maps, neuron, scan, tokens
from spikehtr.ops.plain.ink import InkMaps, ink_maps
from spikehtr.ops.settings import GELU, LIF, NONE, SILU, Ink, Neuron, Norm, Tap

add_branch = dispatched(tokens.add_branch)
along_tokens = dispatched(tokens.along_tokens)
conv2d = dispatched(maps.conv2d)
ctc_costs = dispatched(ctc.ctc_costs)
depthwise = dispatched(maps.depthwise)
downmix = dispatched(maps.downmix)
fire = dispatched(neuron.fire)
group_norm = dispatched(maps.group_norm)
group_norm_fork = dispatched(maps.group_norm_fork)
height_pool = dispatched(maps.height_pool)
ink_evidence = dispatched(ink.ink_evidence)
inject = dispatched(maps.inject)
interpolate = dispatched(tokens.interpolate)
leaky_scan = dispatched(scan.leaky_scan)
linear = dispatched(tokens.linear)
matched_mean = dispatched(tokens.matched_mean)
norm_neuron = dispatched(maps.norm_neuron)
pass_keys = dispatched(tokens.pass_keys)
pixels = dispatched(maps.pixels)
token_norm = dispatched(tokens.token_norm)
token_norm_neuron = dispatched(tokens.token_norm_neuron)

__all__ = [
    "GELU",
    "LIF",
    "NONE",
    "SILU",
    "Ink",
    "InkMaps",
    "Neuron",
    "Norm",
    "Tap",
    "add_branch",
    "along_tokens",
    "at_least_fp32",
    "column_mask",
    "conv2d",
    "ctc_costs",
    "depthwise",
    "downmix",
    "fire",
    "group_norm",
    "group_norm_fork",
    "height_pool",
    "inject",
    "ink_evidence",
    "ink_maps",
    "interpolate",
    "leaky_scan",
    "linear",
    "matched_mean",
    "norm_neuron",
    "pass_keys",
    "pixels",
    "reference",
    "reference_asked",
    "shrink",
    "token_norm",
    "token_norm_neuron",
    "uses_triton",
    "using",
    "valid_mask",
]
