"""Training augmentation (Table 10): affine, width stretch, elastic warp, noise or sharpen, stroke jitter, inversion.

Whole batches at once, on the device they are on, with nothing read back to the host. All randomness is a fixed number
of uniform draws for each line: the smooth field of the warp and the grain of the noise are functions of these and of
the pixel's place in its own line, so neither padding nor the other lines of a batch change what a line becomes.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.config import AugmentConfig

# One uniform number a line for each of these. The list is fixed, whatever the configuration switches off.
_NAMES = (
    *("affine", "rotate", "shear", "scale", "shift", "stretch", "stretch_by", "elastic", "elastic_by"),
    *("detail", "noise_or_sharpen", "detail_by", "grain", "stroke", "stroke_by", "thicken", "invert"),
)
_WAVES = 3  # plane waves that add up to the elastic field, for each of its two axes
_DRAWS = len(_NAMES) + 2 * _WAVES * 3  # a wave has a direction, a length and a phase
_PEN = 21  # pixels, wider than any stroke
_STARTS, _ROW = 1 << 19, 8192  # places a window of the noise tape can start at, and how far apart its rows lie


def _warps(config: AugmentConfig) -> bool:
    changes = (config.rotate, config.shear, config.scale, config.shift, config.stretch, config.elastic)
    return config.probability > 0 and any(changes)


def augmented_columns(columns: int, config: AugmentConfig, max_width: int | None = None) -> int:
    """How wide a canvas of `columns` is when its lines are changed: ceil(W (1 + stretch)), or the widest ever read."""
    if not _warps(config):
        return columns
    wide = math.ceil(columns * (1 + config.stretch))
    return wide if max_width is None else min(wide, max(max_width, columns))


def without_ink(images: Tensor, widths: Tensor, chosen: Tensor) -> Tensor:
    """Of the chosen lines [B] the paper alone, everywhere as bright as it is at its brightest nearby.

    images [B, C, H, W], bright paper; widths [B]: what lies right of a line is left alone, and brightens nothing.
    """
    inside = (torch.arange(images.shape[-1], device=images.device) < widths[:, None])[:, None, None]  # [B, 1, 1, W]
    across = F.max_pool2d(images.float() * inside, (1, _PEN), 1, (0, _PEN // 2))
    paper = F.max_pool2d(across, (_PEN, 1), 1, (_PEN // 2, 0))
    return torch.where(chosen[:, None, None, None] & inside, paper.to(images.dtype), images)


def augment(
    images: Tensor,
    widths: Tensor,
    config: AugmentConfig,
    generator: torch.Generator | None = None,
    min_widths: Tensor | None = None,
    max_width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Changed copies of a batch: images [B, C, H, W] in [0, 1], widths [B] -> images [B, C, H, W'], widths [B].

    W' is `augmented_columns`, and what lies right of a line is white. No line becomes narrower than `min_widths` [B],
    the width its transcript needs; one that already is narrower is not shrunk further. None becomes wider than
    `max_width`, the widest that is ever read. With every operation off the input itself comes back. The
    generator may live on the host or on the images' device.
    """
    geometry = _warps(config)
    detail = config.probability > 0 and any((config.noise, config.sharpen))
    stroke = config.probability > 0 and config.stroke > 0
    if not (geometry or detail or stroke or config.invert):
        return images, widths
    device = images.device
    numbers = torch.rand(len(images), _DRAWS, generator=generator, device=generator.device if generator else device)
    numbers = numbers.to(device, non_blocking=True)
    draws = {name: numbers[:, i, None, None, None] for i, name in enumerate(_NAMES)}  # [B, 1, 1, 1] each
    widths = widths.to(device, non_blocking=True)
    mixed = torch.amp.is_autocast_available(device.type)  # where there is mixed precision, it stays out of this
    with torch.autocast(device.type, enabled=False) if mixed else nullcontext():
        canvas = images.float()
        if geometry:
            waves = numbers[:, len(_NAMES) :].unflatten(1, (2, _WAVES, 3))
            canvas, widths = _warp(canvas, widths, config, draws, waves, min_widths, max_width)
        else:
            canvas = _repeat_edge(canvas, widths, canvas.shape[-1])
        if stroke:
            canvas = _stroke(canvas, config, draws)
        if detail:
            canvas = _detail(canvas, config, draws)
        if config.invert:
            canvas = torch.where(draws["invert"] < config.invert, 1 - canvas, canvas)
        columns = torch.arange(canvas.shape[-1], device=device)
        canvas = canvas.masked_fill(columns >= widths[:, None, None, None], 1.0)
    return canvas.to(images.dtype), widths


def _repeat_edge(images: Tensor, widths: Tensor, columns: int) -> Tensor:
    """[B, C, H, W] -> [B, C, H, columns], each line's last column repeated to the right in place of its padding."""
    places = torch.arange(columns, device=images.device).minimum((widths - 1).clamp(min=0)[:, None])  # [B, columns]
    return images.gather(3, places[:, None, None, :].expand(-1, *images.shape[1:3], -1))


def _around_zero(draw: Tensor, limit: float) -> Tensor:
    """A draw from [0, 1) as one from [-limit, limit)."""
    return (draw * 2 - 1) * limit


def _warp(
    images: Tensor,
    widths: Tensor,
    config: AugmentConfig,
    draws: dict[str, Tensor],
    waves: Tensor,
    min_widths: Tensor | None,
    max_width: int | None,
) -> tuple[Tensor, Tensor]:
    """Affine, stretch and elastic as one resampling. Lines that meet none of them keep their pixels as they are."""
    height, columns = images.shape[2], augmented_columns(images.shape[3], config, max_width)
    affine, stretch, elastic = (draws[name] < config.probability for name in ("affine", "stretch", "elastic"))
    by = 1 + _around_zero(draws["stretch_by"], config.stretch) * stretch  # [B, 1, 1, 1]
    widened = (widths * by.flatten()).round().to(widths.dtype).clamp(max=columns)
    floor = (
        widths.minimum(min_widths.to(widths, non_blocking=True)) if min_widths is not None else torch.ones_like(widths)
    )
    widened = widened.maximum(floor).clamp(min=1)

    canvas = _repeat_edge(images, widths, columns)  # so that no rounding below can reach into the padding
    width, wide = (w.clamp(min=1).to(canvas.dtype)[:, None, None] for w in (widths, widened))  # [B, 1, 1]
    x = torch.arange(columns, device=canvas.device, dtype=canvas.dtype)
    y = torch.arange(height, device=canvas.device, dtype=canvas.dtype)[:, None]
    across = (x + 0.5) * (width / wide) - width / 2  # from the line's own centre, source pixels, [B, 1, W']
    down = y + 0.5 - height / 2  # [H, 1]
    (xx, xy), (yx, yy) = _matrix(width, height, config, draws, affine)
    shift = (_around_zero(draws["shift"], config.shift * height) * affine)[:, 0]
    # Coordinates as grid_sample counts them, -1 to 1 over the canvas: scaling factors here saves whole maps below.
    unit_x, unit_y = 2 / max(columns - 1, 1), 2 / max(height - 1, 1)
    grid_x = (xx * across + (width - 1) / 2) * unit_x - 1 + xy * down * unit_x  # [B, H, W']
    grid_y = yx * across * unit_y + ((yy * down + (height - 1) / 2 - shift) * unit_y - 1)
    if config.elastic:
        strength = (draws["elastic_by"] * 0.5 + 0.5) * config.elastic * elastic  # [B, 1, 1, 1]
        column, row = _smooth_field(across + width / 2, y, waves, max(height / 2, 8 * config.elastic))
        column = column * strength
        grid_x = torch.baddbmm(grid_x, column[:, 0] * unit_x, row[:, 0])
        grid_y = torch.baddbmm(grid_y, column[:, 1] * unit_y, row[:, 1])
    grid = torch.empty(*grid_x.shape, 2, device=canvas.device, dtype=canvas.dtype)
    torch.clamp(grid_x, torch.full_like(width, -1), (width - 1) * unit_x - 1, out=grid[..., 0])
    torch.clamp(grid_y, -1, 1, out=grid[..., 1])
    warped = F.grid_sample(canvas, grid, mode="bilinear", padding_mode="border", align_corners=True)
    return torch.where(affine | stretch | elastic, warped, canvas), widened


def _matrix(
    width: Tensor, height: int, config: AugmentConfig, draws: dict[str, Tensor], affine: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The matrix from output to source offsets, both counted from the line's centre; four entries, each [B, 1, 1].

    A long line is turned less, so that its ends move by an eighth of the height at most; and a slanted line is drawn
    a little narrower, so that the middle half of its height stays inside the width it has.
    """
    end = torch.atan(height / 4 / width)  # the angle at which the ends move by an eighth of the height
    angle = _around_zero(draws["rotate"], math.radians(config.rotate))[:, 0].minimum(end).maximum(-end)
    slant = _around_zero(draws["shear"], config.shear)[:, 0]
    tall = 1 / (1 + _around_zero(draws["scale"], config.scale)[:, 0])
    room = 1 + slant.abs() * height / 2 / width
    angle, slant, tall, room = (
        torch.where(affine[:, 0], v, n) for v, n in ((angle, 0), (slant, 0), (tall, 1), (room, 1))
    )
    cos, sin = angle.cos(), angle.sin()
    return (cos * room, (slant * cos - sin) * tall), (sin * room, (slant * sin + cos) * tall)


def _smooth_field(x: Tensor, y: Tensor, waves: Tensor, shortest: float) -> tuple[Tensor, Tensor]:
    """A smooth displacement within [-1, 1] on two axes, as factors: column [B, 2, H, 2K] @ row [B, 2, 2K, W].

    x [B, 1, W], y [H, 1], waves [B, 2, K, 3] in [0, 1). A sum of K plane waves between `shortest` and four times as
    long. By the sine of a sum each wave is a product of a row and a column, so the field is a small matrix product.
    """
    direction, length, phase = (waves * (2 * math.pi)).unbind(-1)  # [B, 2, K]
    frequency = 2 * math.pi / (shortest * 4 ** (length / (2 * math.pi)))
    along_x = (frequency * direction.cos())[..., None] * x[:, :, None] + phase[..., None]  # [B, 2, K, W]
    along_y = (frequency * direction.sin())[..., None] * y.squeeze(1)  # [B, 2, K, H]
    row = torch.cat((along_x.sin(), along_x.cos()), dim=2)  # [B, 2, 2K, W]
    column = torch.cat((along_y.cos(), along_y.sin()), dim=2)  # [B, 2, 2K, H]
    return column.mT / waves.shape[2], row


def _stroke(images: Tensor, config: AugmentConfig, draws: dict[str, Tensor]) -> Tensor:
    """Thinner or thicker ink: the lightest or darkest of each 3 x 3 neighbourhood, blended in."""
    weight = draws["stroke_by"] * config.stroke * (draws["stroke"] < config.probability)
    sign = 1 - 2 * (draws["thicken"] < 0.5).to(images.dtype)  # the minimum is the maximum of the negative
    signed = F.pad(images * sign, (1, 1, 1, 1), mode="replicate")
    rows = signed[..., :-2].maximum(signed[..., 1:-1]).maximum(signed[..., 2:])  # far faster than pooling on a CPU
    most = rows[..., :-2, :].maximum(rows[..., 1:-1, :]).maximum(rows[..., 2:, :])
    return images + (most * sign - images) * weight


def _detail(images: Tensor, config: AugmentConfig, draws: dict[str, Tensor]) -> Tensor:
    """Noise or sharpening, one of the two."""
    either = 0.5 if config.noise and config.sharpen else float(config.noise > 0)
    noisy = draws["noise_or_sharpen"] < either
    weight = draws["detail_by"] * (draws["detail"] < config.probability)
    change = torch.zeros_like(images)
    if config.sharpen:
        padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
        rows = padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]
        mean = (rows[..., :-2, :] + rows[..., 1:-1, :] + rows[..., 2:, :]) / 9
        change = (images - mean) * (config.sharpen * weight * ~noisy)
    if config.noise:
        change = change + _grain(draws["grain"], *images.shape[2:]) * (config.noise * weight * noisy)
    return (images + change).clamp(0, 1)


def _grain(seeds: Tensor, height: int, width: int) -> Tensor:
    """White noise of deviation 1 from one draw a line: [B, 1, 1, 1] -> [B, 1, H, W].

    A window of one long fixed tape, from a place of the line's own: a generator's numbers for a line would depend on
    how wide the batch is. Row y starts y * _ROW further on, so that a narrow window is part of a wider one.
    """
    needed = _STARTS + height * _ROW + width
    tape = _noise_tape(seeds.device, max(1 << 21, 1 << (needed - 1).bit_length()))
    windows = tape.as_strided((_STARTS, height, width), (1, _ROW, 1))  # a view: nothing is copied yet
    return windows.index_select(0, (seeds.flatten() * _STARTS).long())[:, None]


@lru_cache(maxsize=4)
def _noise_tape(device: torch.device, size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(device)
