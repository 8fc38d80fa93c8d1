import torch

from conftest import draw_line, micro
from spikehtr.model.entry import Entry
from spikehtr.profiling.streams import CODES, streams, streams_figure

LINE = draw_line("streams", 32)


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
