import pytest

from conftest import draw_line
from spikehtr.config import Config
from spikehtr.profiling.entry_figures import ink_figure, trace_line


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
