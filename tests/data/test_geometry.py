import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import real_lines
from spikehtr.assets import SAMPLE_LINE
from spikehtr.data.batching import to_batch
from spikehtr.data.geometry import fit_line, paper_level
from spikehtr.data.images import load_line
from spikehtr.errors import SpikeHTRError


@given(st.integers(1, 300), st.integers(1, 900), st.sampled_from([64, 32]), st.sampled_from([512, 100]))
def test_height_is_met_width_is_bounded_and_aspect_kept(height, width, wanted, most):
    line = fit_line(Image.new("L", (width, height), 200), wanted, most)
    natural = width * wanted / height
    assert line.shape[0] == wanted
    assert 1 <= line.shape[1] <= most
    assert abs(line.shape[1] - min(natural, most)) <= 1
    assert (line == 200).all()  # the canvas around a shrunk line has the paper's level


def test_a_long_line_is_shrunk_whole_and_centred():
    image = Image.new("L", (2048, 64), 250)
    image.paste(0, (1000, 0, 1048, 64))  # a bar over the whole height, in the middle
    line = fit_line(image, 64, 512)
    assert line.shape == (64, 512)
    rows = np.flatnonzero(line[:, 256] < 100)
    assert (rows[0], rows[-1]) == (24, 39)  # 16 rows of ink, centred


def test_bicubic_enlargement():
    line = fit_line(Image.fromarray(np.array([[0, 255], [0, 255]], np.uint8)), 64, 512)
    assert line.shape == (64, 64)
    assert line[0, 0] == 0
    assert line[0, -1] == 255
    assert len(np.unique(line)) > 10


def test_real_lines_keep_their_pixels_when_they_fit():
    for image, _ in real_lines("fondue-fr18", "validation", 8):
        line = fit_line(image, 64, 4096)
        assert (line == np.asarray(image.convert("L"))).all()


def test_batch_pads_right_with_white():
    lines = [np.zeros((8, 3), np.uint8), np.full((8, 5), 51, np.uint8)]
    images, widths = to_batch(lines)
    assert images.shape == (2, 1, 8, 5)
    assert widths.tolist() == [3, 5]
    assert images[0, 0, :, 3:].eq(1).all()
    assert images[0, 0, :, :3].eq(0).all()
    assert torch.allclose(images[1], torch.tensor(0.2))


def test_paper_level_is_the_background():
    line = np.asarray(load_line(SAMPLE_LINE))
    assert 205 < paper_level(line) < 230


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "1", "I;16"])
def test_any_colour_mode_loads(mode, tmp_path):
    path = tmp_path / "line.png"
    Image.new(mode, (20, 10)).save(path)
    assert load_line(path).mode == "L"


def test_bad_files_are_named(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "cut.png").write_bytes(SAMPLE_LINE.read_bytes()[:3000])
    for name, says in [
        ("nowhere.png", "no such file"),
        ("empty.png", "empty"),
        ("text.png", "not an image"),
        ("cut.png", "damaged"),
    ]:
        with pytest.raises(SpikeHTRError, match=rf"{name}: .*{says}"):
            load_line(tmp_path / name)
