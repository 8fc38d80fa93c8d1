"""Image files in every state, opened one by one and through `data check`."""

import io
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

import numpy as np
import pytest
from PIL import Image, ImageOps

from spikehtr.config import Config
from spikehtr.data.check import check_data
from spikehtr.data.compiling import compile_store
from spikehtr.data.geometry import cut_line, fit_line, paper_level
from spikehtr.data.images import ImageError, image_size, line_image, load_line, open_gray
from spikehtr.data.samples import Sample
from spikehtr.pages.page_source import Source, load_page


def bomb(path, side=50_000):
    """A PNG of some hundred bytes whose header claims 2.5 thousand million pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def hostile_folder(folder):
    """One good line and five that are not, each with a text."""
    folder.mkdir()
    good = np.tile(np.linspace(0, 255, 200).astype(np.uint8), (64, 1))
    Image.fromarray(good).save(folder / "good.png")
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:90])
    (folder / "empty.png").write_bytes(b"")
    (folder / "words.jpg").write_text("this is no image")
    bomb(folder / "bomb.png")
    Image.new("L", (60_000, 64), 200).save(folder / "wide.png")
    for image in list(folder.iterdir()):
        image.with_suffix(".gt.txt").write_text("text")
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cut.png", "damaged"),
        ("empty.png", "0 bytes"),
        ("words.jpg", "not an image"),
        ("bomb.png", "claims more than 178,956,970 pixels"),
        ("nowhere.png", "no such file"),
    ],
)
def test_bad_files_are_refused_with_a_reason(name, says, tmp_path):
    folder = hostile_folder(tmp_path / "d")
    with pytest.raises(ImageError, match=says):
        open_gray(folder / name)
    with pytest.raises(ImageError, match=name):
        load_line(folder / name)


def test_a_very_wide_line_is_fitted(tmp_path):
    line = load_line(hostile_folder(tmp_path / "d") / "wide.png")
    assert fit_line(line, 64, 512).shape == (64, 512)


def test_check_and_compile_name_every_bad_file_and_keep_the_good(tmp_path):
    folder = hostile_folder(tmp_path / "d")
    found = check_data([folder], Config())
    bad = {p.where.split("/")[-1] for p in found.report.problems if p.kind == "unreadable image"}
    assert {name.split(",")[0] for name in bad} == {"cut.png", "empty.png", "words.jpg", "bomb.png"}
    assert [p.kind for p in found.report.problems if "wide" in p.where] == ["odd shape"]
    store, report = compile_store([folder], tmp_path / "s.arrow")
    assert len(store) == 2
    assert report.count("error") == 4


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("held", range(1, 9))
def test_photographs_are_turned_upright(held, suffix, tmp_path):
    """As Pillow's own function turns them, whichever way they come in; the header alone gives the same size."""
    pixels = np.full((40, 60), 230, np.uint8)
    pixels[:10, :15] = 20  # one dark corner
    exif = Image.Exif()
    exif[0x0112] = held
    path = tmp_path / f"photo.{suffix}"
    Image.fromarray(pixels).save(path, exif=exif)
    with path.open("rb") as file, Image.open(file) as image:
        expected = ImageOps.exif_transpose(image).convert("L")
    assert (expected.size == (40, 60)) == (held >= 5)
    page = load_page(Source(path, "image", PurePath("photo")), 0, 300)
    for gray in (open_gray(path), open_gray(path.read_bytes()), page):
        assert gray.size == expected.size
        assert np.array_equal(np.asarray(gray), np.asarray(expected))
    assert image_size(path) == expected.size


def test_a_damaged_note_on_how_it_was_held_does_no_harm(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    noted = exif.tobytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(noted)
        for place in rng.integers(6, len(noted), 3):
            broken[place] = rng.integers(256)
        stream = io.BytesIO()
        Image.new("L", (60, 40)).save(stream, "JPEG", exif=bytes(broken))
        assert sorted(open_gray(stream.getvalue()).size) == [40, 60]


def test_threads_that_open_images_leave_the_warnings_as_they_were(tmp_path):
    """Their filters are one list for all threads: who puts back what another had set would silence all for good."""
    Image.new("L", (60, 40)).save(tmp_path / "x.png")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: (open_gray(tmp_path / "x.png"), image_size(tmp_path / "x.png")), range(400)))
    assert list(warnings.filters) == before


def test_sixteen_bit_and_transparent_images_are_not_clipped(tmp_path):
    ramp = np.linspace(0, 65535, 64).astype(np.uint16)
    Image.fromarray(np.tile(ramp, (8, 1))).save(tmp_path / "deep.png")
    deep = np.asarray(load_line(tmp_path / "deep.png"))
    assert (deep[0, 0], deep[0, -1]) == (0, 255)
    assert len(np.unique(deep)) > 50
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (np.asarray(load_line(tmp_path / "clear.png")) == 255).all()


def test_lines_are_cut_along_their_polygon():
    page = np.full((100, 100), 220, np.uint8)
    page[40:60, 20:80] = 30  # a bar of ink
    page[70:80, :] = 0  # the next line
    outline = [(10, 30), (90, 30), (90, 66), (50, 75), (10, 66)]
    line = np.asarray(cut_line(Image.fromarray(page), outline))
    assert line.shape == (48, 83)  # with a margin of a pixel
    assert (line[11:31, 11:71] == 30).all()
    assert line[-1, 0] == 220  # outside the polygon: paper, though the page is black there
    assert paper_level(line) == 220
    boxed = np.asarray(cut_line(Image.fromarray(page), None, (20, 40, 80, 60)))
    assert boxed.shape == (20, 60)
    assert (boxed == 30).all()


@pytest.mark.parametrize("outline", [[(200, 200), (300, 200), (300, 300)], [(-50, -50), (-10, -50), (-10, -10)]])
def test_an_outline_off_the_page_is_an_error(outline, tmp_path):
    Image.new("L", (100, 100)).save(tmp_path / "page.png")
    sample = Sample("x", "text", tmp_path / "page.png", "here", polygon=tuple(outline))
    with pytest.raises(ImageError, match="outside the page"):
        line_image(sample)


def test_an_outline_partly_off_the_page_is_cut_to_it(tmp_path):
    Image.new("L", (100, 100), 9).save(tmp_path / "page.png")
    polygon = ((80.0, 80.0), (150.0, 80.0), (150.0, 150.0), (80.0, 150.0))
    line = line_image(Sample("x", "text", tmp_path / "page.png", "here", polygon=polygon))
    assert line.size == (21, 21)


@pytest.mark.parametrize("values", [[7], [1, 2], [5, 5, 9], [0, 255, 255], list(range(256))])
def test_paper_level_is_the_lower_median(values):
    gray = np.array([values], np.uint8)
    assert paper_level(gray) == sorted(values)[(len(values) - 1) // 2]
