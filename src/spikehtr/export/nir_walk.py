"""The steps of a network for NIR: `model/` walked through, module by module. Names are those of its modules.

Numbers worked out here (a sigmoid of a learned logit, say) are worked out in float64.
"""

from __future__ import annotations

import copy
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from spikehtr.errors import SpikeHTRError
from spikehtr.export.nir_builder import NirBuilder
from spikehtr.model.encoder import ConvMix2d, DualResolutionFusion, Encoder, HeightPool, SpikingConv2d, Stage
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import MaskedGroupNorm, TokenNorm
from spikehtr.model.mixer import Branch, LargeKernel, LinearAttention, MixerBlock, QKMix, SpikingLinear, SpikingMLP
from spikehtr.model.recurrence import SpikingRecurrence
from spikehtr.model.spike_htr import CTCHead, Positions, SpikeHTR, TemporalFusion


def describe_network(net: SpikeHTR, width: int) -> NirBuilder:
    """Image to logits, for lines up to `width` pixels."""
    c = net.config
    plan = NirBuilder(c.timesteps)
    plan.shapes["image"] = (c.in_channels, c.height, width)
    length = width // net.stride
    z = _positions(plan, net.positions, _encoder(plan, net.encoder), length)
    _decode(plan, net, _reduce(plan, net, z), length)
    return plan


def _reduce(plan: NirBuilder, net: SpikeHTR, z: str) -> str:
    c = net.config
    preview = _head(plan, "preview", net.head, _fuse(plan, "fuse_pre", net.fuse_pre, z, c.timesteps))
    rules = c.reducer.model_dump(exclude={"preview_gradient"})
    return plan.host("reducer", "reduce", [z, preview], plan.shapes[z], **rules)


def _decode(plan: NirBuilder, net: SpikeHTR, x: str, length: int) -> str:
    for number, block in enumerate(net.mixer.blocks):
        x = _mixer_block(plan, f"mixer.blocks.{number}", cast(MixerBlock, block), x, length)
    return _head(plan, "head", net.head, _fuse(plan, "fuse_post", net.fuse_post, x, net.config.timesteps))


def _encoder(plan: NirBuilder, e: Encoder) -> str:
    down, right = e.stem.conv.stride
    x = plan.part("image", ("encoder.stem.conv", plan.conv2d(e.stem.conv, plan.shapes["image"])))
    x = _group_norm(plan, "encoder.stem.norm", e.stem.norm, x)
    s = plan.host("encoder.stem", "silu", [x], plan.shapes[x])
    gates = _gates(plan, e)
    if (down, right) != (1, 1):
        gates = plan.host("encoder.entry.pool", "mean_pool", [gates], (1, *plan.shapes[s][1:]), size=[down, right])
    x = plan.host(
        "encoder.entry", "inject", [s, gates], plan.shapes[s], beta=torch.sigmoid(e.entry.beta_logit.double())
    )
    maps = []
    for name, stage in (("stage1", e.stage1), ("stage2", e.stage2), ("stage3", e.stage3)):
        x = _stage(plan, f"encoder.{name}", stage, x)
        maps.append(x)
    if e.fusion is not None:
        x = _fusion(plan, "encoder.fusion", e.fusion, maps[1], maps[2])
    return _height_pool(plan, "encoder.pool", e.pool, x)


def _gates(plan: NirBuilder, e: Encoder) -> str:
    shape = (1, *plan.shapes["image"][1:])
    name, entry = "encoder.entry.gates", e.entry
    if entry.inkcoder is None:
        return plan.host(name, f"{entry.kind}_gates", ["image"], shape, timesteps=entry.timesteps)
    theta, sharpness, weight = copy.deepcopy(entry.inkcoder).double().schedules()
    schedules = {
        "theta": theta,
        "sharpness": sharpness * entry.inkcoder.s_alpha.double() + entry.inkcoder.b_alpha.double(),
        "edge_weight": weight,
    }
    constants = entry.inkcoder.config.model_dump(exclude={"evidence", "theta", "theta_min", "theta_max", "gamma_theta"})
    for used_up in ("a0", "eta_a", "s_w", "b_w"):  # in the schedules
        del constants[used_up]
    return plan.host(name, "inkcoder_gates", ["image"], shape, **schedules, **constants)


def _stage(plan: NirBuilder, name: str, stage: Stage, x: str) -> str:
    x = _spiking_conv(plan, f"{name}.conv", stage.conv, x)
    for number, block in enumerate(stage.blocks):
        x = _conv_mix(plan, f"{name}.blocks.{number}", cast(ConvMix2d, block), x)
    return x


def _conv_mix(plan: NirBuilder, name: str, block: ConvMix2d, x: str) -> str:
    y = _spiking_conv(plan, f"{name}.dw", block.dw, x)
    x = plan.host(f"{name}.mixed", "sum", [x, y], plan.shapes[x], factors=[1.0, 1.0])
    y = x if block.norm is None else _group_norm(plan, f"{name}.norm", block.norm, x)
    if block.pw1.first:
        y = _spiking_conv(plan, f"{name}.pw1", block.pw1, y)
        y = _spiking_conv(plan, f"{name}.pw2", block.pw2, y)
    else:  # PW2 reads PW1's spikes and nothing else, so the two are one part
        h = plan.part(y, (f"{name}.pw1.conv", plan.conv2d(block.pw1.conv, plan.shapes[y])))
        h = _group_norm(plan, f"{name}.pw1.norm", block.pw1.norm, h)
        conv = (f"{name}.pw2.conv", plan.conv2d(block.pw2.conv, plan.shapes[h]))
        h = _fires(plan, f"{name}.pw1.neuron", block.pw1.neuron, h, conv)
        y = _norm_and_fire(plan, f"{name}.pw2", block.pw2, h)
    return plan.host(name, "sum", [x, y], plan.shapes[x], factors=[1.0, 1.0])


def _spiking_conv(plan: NirBuilder, name: str, module: SpikingConv2d, x: str) -> str:
    shape = plan.shapes[x]
    conv = (f"{name}.conv", plan.conv2d(module.conv, shape))
    if not module.first:
        return _norm_and_fire(plan, name, module, plan.part(x, conv))
    if module.drive is not None:
        x = _group_norm(plan, f"{name}.drive", module.drive, x)
    if module.conv.groups > 1:
        h = plan.part(_fires(plan, f"{name}.neuron", module.neuron, x), conv)
    else:
        h = _fires(plan, f"{name}.neuron", module.neuron, x, conv)
    return _group_norm(plan, f"{name}.norm", module.norm, h)


def _fires(plan: NirBuilder, name: str, neuron: nn.Module, x: str, *reader: tuple[str, object]) -> str:
    """A neuron and what alone reads its spikes, where given: one part. Where a network has no neuron, x goes on."""
    if isinstance(neuron, nn.Identity):
        assert not reader
        return x
    assert isinstance(neuron, MultiStepLIF)
    return plan.part(x, (name, plan.neuron(neuron.config, plan.shapes[x], neuron.burst)), *reader)


def _norm_and_fire(plan: NirBuilder, name: str, module: SpikingConv2d, h: str) -> str:
    """What follows the convolution: norm, neuron, and the membrane shortcut."""
    h = _group_norm(plan, f"{name}.norm", module.norm, h)
    fired = _fires(plan, f"{name}.neuron", module.neuron, h)
    if module.alpha is None:
        return fired
    return plan.host(name, "sum", [fired, h], plan.shapes[h], factors=[1.0, module.alpha.item()])


def _fusion(plan: NirBuilder, name: str, fusion: DualResolutionFusion, f2: str, f3: str) -> str:
    detail = _group_norm(plan, f"{name}.norm_detail", fusion.norm_detail, f2)
    detail = plan.part(detail, (f"{name}.proj", plan.conv2d(fusion.proj, plan.shapes[detail])))
    size = fusion.down.stride
    if size != (1, 1):
        sides = np.array(size), np.array(size), np.array((0, 0))
        average = plan.part(detail, (f"{name}.average", plan.nir.AvgPool2d(*sides)))
        logit = fusion.down.rho_logit
        rho = fusion.down.rho if logit is None else torch.sigmoid(logit.double())
        reads, shape = [detail, average], plan.shapes[average]
        detail = plan.host(f"{name}.down", "mix_maximum", reads, shape, size=list(size), rho=rho)
    gate = _group_norm(plan, f"{name}.norm_gate", fusion.norm_gate, f3)
    gate = plan.part(gate, (f"{name}.gate", plan.conv2d(fusion.gate, plan.shapes[gate])))
    return plan.host(name, "gated_sum", [f3, gate, detail], plan.shapes[f3])


def _height_pool(plan: NirBuilder, name: str, pool: HeightPool, f: str) -> str:
    dim = (plan.shapes[f][0],)
    f = plan.host(f"{name}.turned", "turn", [f], dim)
    first, last = cast(nn.Linear, pool.score[0]), cast(nn.Linear, pool.score[2])
    score = plan.part(f, (f"{name}.score.0", plan.linear(first)))
    score = plan.host(f"{name}.score.1", "silu", [score], plan.shapes[score])
    score = plan.part(score, (f"{name}.score.2", plan.linear(last)))
    attended = plan.host(f"{name}.attended", "attend_height", [f, score], dim)
    nudge = plan.part(attended, (f"{name}.nudge", plan.linear(pool.nudge)))
    return plan.host(name, "nudge_height", [f, attended, nudge], dim)


def _positions(plan: NirBuilder, module: Positions, z: str, length: int) -> str:
    dim, size = plan.shapes[z], len(module.table)
    share = plan.host("positions.share", "position_share", [z], (size,), size=size)
    table = nn.Linear(size, dim[0], bias=False)
    table.weight = nn.Parameter(module.table.detach().T)
    absolute = plan.part(share, ("positions.table", plan.linear(table)))
    near = _along(plan, "positions.cpe", module.cpe, z, length)
    return plan.host("positions", "sum", [z, absolute, near], dim, factors=[1.0, 1.0, 1.0])


def _along(plan: NirBuilder, name: str, module: nn.Conv1d, x: str, length: int) -> str:
    """A convolution along the tokens."""
    dim = plan.shapes[x]
    made = plan.part(x, (name, plan.conv1d(module, length)))
    plan.shapes[made] = dim
    return made


def _fuse(plan: NirBuilder, name: str, module: TemporalFusion, z: str, timesteps: int) -> str:
    return plan.host(name, "time_sum", [z], plan.shapes[z], weights=module.logits.double()[:timesteps].softmax(0))


def _head(plan: NirBuilder, name: str, head: CTCHead, z: str) -> str:
    z = _token_norm(plan, f"{name}.norm", head.norm, z)
    return plan.part(z, (f"{name}.linear", plan.linear(head.linear)))


def _mixer_block(plan: NirBuilder, name: str, block: MixerBlock, x: str, length: int) -> str:
    dim, operator, mlp = plan.shapes[x], block.operator, f"{name}.mlp"
    y = _operator(
        plan, f"{name}.operator", operator, _token_norm(plan, f"{name}.operator.norm", operator.norm, x), length
    )
    y = _fire(plan, f"{name}.operator.out", operator.out, y)
    x = plan.host(f"{name}.mixed", "sum", [x, y], dim, factors=[1.0, 1.0])
    m: SpikingMLP = block.mlp
    h = _token_norm(plan, f"{mlp}.norm", m.norm, x)
    h = plan.part(h, (f"{mlp}.fc1.linear", plan.linear(m.fc1.linear)))
    h = _token_norm(plan, f"{mlp}.fc1.norm", m.fc1.norm, h)
    h = _fires(plan, f"{mlp}.fc1.neuron", m.fc1.neuron, h, (f"{mlp}.fc2.linear", plan.linear(m.fc2.linear)))
    return plan.host(name, "sum", [x, _fire(plan, f"{mlp}.fc2", m.fc2, h)], dim, factors=[1.0, 1.0])


def _operator(plan: NirBuilder, name: str, operator: Branch, x: str, length: int) -> str:
    """Normed tokens to the drive of the operator's last neuron, before its norm."""
    dim = plan.shapes[x]
    if isinstance(operator, LinearAttention):
        qkv = _spiking_linear(plan, f"{name}.qkv", operator.qkv, x)
        y = plan.host(f"{name}.mean", "matched_mean", [qkv], dim, heads=operator.heads)
        return plan.part(y, (f"{name}.out.linear", plan.linear(operator.out.linear)))
    if isinstance(operator, QKMix):
        qk = _spiking_linear(plan, f"{name}.qk", operator.qk, x)
        gate = plan.part(x, (f"{name}.gate", plan.linear(operator.gate)))
        y = plan.host(f"{name}.passed", "pass_keys", [qk], dim, heads=operator.heads)
        y = plan.part(y, (f"{name}.out.linear", plan.linear(operator.out.linear)))
        return plan.host(f"{name}.scaled", "scale_by_sigmoid", [y, gate], dim)
    if isinstance(operator, SpikingRecurrence):
        driven = plan.part(x, (f"{name}.inp", plan.linear(operator.inp)))
        u = _token_norm(
            plan, f"{name}.state_norm", operator.state_norm, plan.host(f"{name}.state", "leaky_scan", [driven], dim)
        )
        return _fires(
            plan,
            f"{name}.state_neuron",
            operator.state_neuron,
            u,
            (f"{name}.out.linear", plan.linear(operator.out.linear)),
        )
    if not isinstance(operator, LargeKernel):
        raise SpikeHTRError(f"{name} is a {type(operator).__name__}, which the NIR export cannot describe yet")
    uvg = plan.part(x, (f"{name}.inp", plan.linear(operator.inp)))
    wide = (plan.shapes[uvg][0] // 3,)
    u, v, g = (plan.host(f"{name}.{key}", "third", [uvg], wide, number=i) for i, key in enumerate("uvg"))
    near = _along(plan, f"{name}.dw", operator.dw, u, length)
    near = _token_norm(plan, f"{name}.dw_norm", operator.dw_norm, near)
    fired = _fires(plan, f"{name}.dw_neuron", operator.dw_neuron, near)
    y = plan.host(f"{name}.blend", "blend", [v, g, fired], wide)
    return plan.part(y, (f"{name}.out.linear", plan.linear(operator.out.linear)))


def _spiking_linear(plan: NirBuilder, name: str, module: SpikingLinear, x: str) -> str:
    return _fire(plan, name, module, plan.part(x, (f"{name}.linear", plan.linear(module.linear))))


def _fire(plan: NirBuilder, name: str, module: SpikingLinear, h: str) -> str:
    h = _token_norm(plan, f"{name}.norm", module.norm, h)
    return _fires(plan, f"{name}.neuron", module.neuron, h)


def _group_norm(plan: NirBuilder, name: str, norm: MaskedGroupNorm, x: str) -> str:
    numbers = {"groups": norm.groups, "eps": norm.eps, "weight": norm.weight, "bias": norm.bias}
    return plan.host(name, "group_norm", [x], plan.shapes[x], **numbers)


def _token_norm(plan: NirBuilder, name: str, norm: TokenNorm | Tensor | nn.Module, x: str) -> str:
    assert isinstance(norm, TokenNorm)
    return plan.host(name, "layer_norm", [x], plan.shapes[x], eps=norm.eps, weight=norm.weight, bias=norm.bias)
