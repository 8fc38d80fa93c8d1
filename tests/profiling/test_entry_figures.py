import pytest
import torch

from conftest import draw_line, micro
from spikehtr.config import Config
from spikehtr.model.entry import Entry
from spikehtr.profiling.entry_figures import CODES, ink_figure, streams, streams_figure, trace_line

LINE = draw_line("streams", 32)


def figure_of(line, steps):
    config = Config().with_overrides({"model.timesteps": steps}).model
    trace = trace_line(line, config)
    return trace, ink_figure(trace, config.beta, "a title with $ and \u6f22")


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_every_panel_is_there_and_shows_its_map(steps):
    trace, figure = figure_of(draw_line("panels", 64), steps)
    panels = {ax.get_title(loc="left"): ax.images[0].get_array() for ax in figure.axes if ax.images}
    names = list(panels)
    assert names[:4] == [
        "grey line",
        "intensity proxy $I_{int}$",
        "edge magnitude, two scales",
        "edge proxy $I_{edge}$",
    ]
    assert (
        sum("keep mask" in name for name in names) == sum("fused evidence" in name for name in names) == min(steps, 2)
    )
    for t in range(steps):
        head = f"t = {t + 1}, $\\theta$ = {trace.theta[t]:.2f}"
        assert sum(head in name for name in names) == 1
        assert (panels[f"gate $g_{{{t + 1}}}$"] == trace.gates[t, 0, 0].numpy()).all()
    assert sum(name.startswith("novelty") for name in names) == steps
    later = panels.get("novelty $g_{2} - g_{1}$")
    if steps > 1:
        assert abs(later - (trace.gates[1] - trace.gates[0])[0, 0].numpy()).max() == 0
        assert later.min() < 0  # something closed


def test_a_narrow_line_gives_a_picture_of_sane_size():
    _, figure = figure_of(draw_line("panels", 64)[:, :2], 4)
    width, height = figure.get_size_inches()
    assert height < 20
    assert width < 30


def test_each_code_is_what_the_network_is_fed():
    config = micro(timesteps=3).model
    found = streams(LINE, config)
    assert list(found) == list(CODES)
    dark = 1 - torch.tensor(LINE) / 255
    assert all(torch.allclose(step, dark, atol=1e-6) for step in found["repeat"])
    low, high = 0.35 * dark, dark  # beta where the gate is shut, 1 where it is open
    for drive in found.values():
        assert drive.shape == (3, *LINE.shape)
        assert (drive >= low - 1e-6).all()
        assert (drive <= high + 1e-6).all()
    opened = (found["ttfs"] > 0.99 * dark).sum(0)[dark > 0]
    assert (opened <= 1).all()  # latency: each pixel once
    means = found["inkcoder"].mean((1, 2))
    assert means[0] > means[1] > means[2]  # coarse to fine
    assert not torch.equal(found["poisson"][0], found["poisson"][1])


def test_a_trained_entry_brings_its_scalars():
    config = micro().model
    trained = Entry(config)
    with torch.no_grad():
        trained.beta_logit.fill_(10.0)  # beta 1: no gate matters
    found = streams(LINE, config, trained)
    assert torch.allclose(found["poisson"], found["repeat"], atol=1e-4)


def test_a_panel_for_each_code_and_step():
    found = streams(LINE, micro(timesteps=4).model)
    figure = streams_figure(LINE, found, "a title with $ and \u6f22")
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.images]
    assert titles[0] == "grey line"
    assert [title.split(", mean")[0] for title in titles[1:]] == [
        f"{name}, t = {t}" for name in CODES.values() for t in (1, 2, 3, 4)
    ]
