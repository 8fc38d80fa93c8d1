"""`transcribe --images`: the pages of PDF and TIFF files as images that other programs and training can use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image
from typer.testing import CliRunner, Result

from pages_help import save_random, simple_page
from spikehtr.cli import app
from spikehtr.data.formats import read
from spikehtr.data.images import line_image, open_gray, open_whole
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.pages import origins
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.page_images import page_image


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("model") / "random.safetensors")


def run(model: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["transcribe", "--device", "cpu", "-m", str(model), *map(str, arguments)])


def tinted(seed: int) -> Image.Image:
    """A page of two lines on yellowish paper."""
    gray = np.asarray(simple_page(2, seed=seed, size=(800, 300))[0]).astype(np.float32)
    return Image.fromarray((gray[..., None] * [1.0, 0.95, 0.8]).astype(np.uint8))


def make(file: Path, pages: list[Image.Image]) -> Path:
    options = {"resolution": 150} if file.suffix == ".pdf" else {}
    pages[0].save(file, save_all=True, append_images=pages[1:], **options)
    return file


def results(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.parametrize("form", ["page", "alto"])
@pytest.mark.parametrize("name", ["letter.pdf", "letter.tif"])
def test_results_of_a_document_are_training_data_with_their_images(
    name: str, form: str, model: Path, tmp_path: Path
) -> None:
    if name.endswith("pdf"):
        pytest.importorskip("pypdfium2")
    pages = [tinted(0), tinted(1)]
    document = make(tmp_path / name, pages)
    out = tmp_path / "out"
    done = run(model, document, "-f", form, "-o", out, "--images", "--dpi", "150")
    assert done.exit_code == 0, done.output
    suffix = ".alto.xml" if form == "alto" else ".xml"
    names = [f"letter-000{number}" for number in (1, 2)]
    assert results(out) == sorted([f"{name}{end}" for name in names for end in (".png", suffix)])
    document.unlink()  # nothing needs it any more
    for number, page in enumerate(pages, start=1):
        text = (out / f"letter-000{number}{suffix}").read_text(encoding="utf-8")
        assert f"letter-000{number}.png" in text
        assert "frame {" not in text
        if form == "alto":
            assert 'PHYSICAL_IMG_NR="1"' in text
        with Image.open(out / f"letter-000{number}.png") as image:
            assert (image.mode, image.size) == ("RGB", page.size)
            if name.endswith("tif"):
                assert np.array_equal(np.asarray(image), np.asarray(page))
    for file in out.glob("*.xml"):
        correct(file)
    checked = CliRunner().invoke(app, ["data", "check", str(out), "--json"])
    assert checked.exit_code == 0, checked.output
    samples = list(read(out, ImportReport()))
    assert sorted(sample.text for sample in samples) == ["line 0", "line 0", "line 1", "line 1"]
    for sample in samples:
        assert isinstance(sample.image, Path)
        assert sample.image.suffix == ".png"
        assert line_image(sample).width > 300


def correct(file: Path) -> None:
    """Give every line a text of its own, as somebody would who corrects it."""
    root = etree.parse(file)
    for number, line in enumerate(root.iter("{*}TextLine")):
        for word in [*line.iter("{*}Word"), *line.iter("{*}String"), *line.iter("{*}SP")]:
            line.remove(word)
        space = line.tag.split("}")[0] + "}"
        if line.find("{*}TextEquiv") is not None:
            line.find("{*}TextEquiv/{*}Unicode").text = f"line {number}"
        else:
            place = {"HPOS": "1", "VPOS": "1", "WIDTH": "1", "HEIGHT": "1"}
            etree.SubElement(line, f"{space}String", CONTENT=f"line {number}", **place)
    root.write(file, encoding="utf-8")


def test_reading_the_image_again_gives_the_text_that_was_written(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    document = make(tmp_path / "d.pdf", [tinted(3)])
    assert run(model, document, "-o", tmp_path / "a", "--images", "--dpi", "150").exit_code == 0
    assert results(tmp_path / "a") == ["d.png", "d.txt"]
    assert run(model, tmp_path / "a" / "d.png", "-o", tmp_path / "b").exit_code == 0
    assert (tmp_path / "b" / "d.txt").read_text() == (tmp_path / "a" / "d.txt").read_text()


def test_images_beside_their_document_are_results_and_no_inputs(model: Path, tmp_path: Path) -> None:
    make(tmp_path / "d.tif", [tinted(0), tinted(1)])
    for _ in range(2):
        done = run(model, tmp_path, "-f", "json", "-o", tmp_path, "--images")
        assert done.exit_code == 0, done.output
        assert "2 pages, 4 lines" in done.stderr
    assert results(tmp_path) == ["d-0001.json", "d-0001.png", "d-0002.json", "d-0002.png", "d.tif"]
    (tmp_path / "d.tif").unlink()
    assert [source.path.name for source in find_sources([str(tmp_path)]).sources] == ["d-0001.png", "d-0002.png"]


def test_an_image_that_we_did_not_write_is_left_alone_and_its_page_too(model: Path, tmp_path: Path) -> None:
    document, out = make(tmp_path / "d.tif", [tinted(0)]), tmp_path / "out"
    out.mkdir()
    Image.new("L", (30, 30), 7).save(out / "d.png")
    before = (out / "d.png").read_bytes()
    done = run(model, document, "-f", "page", "-o", out, "--images")
    assert done.exit_code == 1
    assert str(out / "d.png") in done.stderr
    assert (out / "d.png").read_bytes() == before
    assert results(out) == ["d.png"]  # no result either: it would name that image
    assert run(model, document, "-f", "page", "-o", out, "--images", "--overwrite").exit_code == 0
    assert (out / "d.png.bak").read_bytes() == before
    assert results(out) == ["d.png", "d.png.bak", "d.xml"]


def test_an_image_that_was_changed_is_left_alone(model: Path, tmp_path: Path) -> None:
    document, out = make(tmp_path / "d.tif", [tinted(0)]), tmp_path / "out"
    assert run(model, document, "-f", "page", "-o", out, "--images").exit_code == 0
    with Image.open(out / "d.png") as image:
        changed = image.transpose(Image.Transpose.ROTATE_180)
    changed.save(out / "d.png")
    before = (out / "d.png").read_bytes()
    assert run(model, document, "-f", "page", "-o", out, "--images").exit_code == 1
    assert (out / "d.png").read_bytes() == before


def test_images_are_known_again_without_the_notes_of_the_folder(model: Path, tmp_path: Path) -> None:
    document, out = make(tmp_path / "d.tif", [tinted(0)]), tmp_path / "out"
    for _ in range(2):
        assert run(model, document, "-f", "page", "-o", out, "--images").exit_code == 0
        (out / origins.FILE).unlink()


def test_resume_makes_up_for_images_that_a_run_before_did_without(model: Path, tmp_path: Path) -> None:
    document, out = make(tmp_path / "d.tif", [tinted(0), tinted(1)]), tmp_path / "out"
    assert run(model, document, "-f", "page", "-o", out).exit_code == 0
    assert results(out) == ["d-0001.xml", "d-0002.xml"]
    done = run(model, document, "-f", "page", "-o", out, "--images", "--resume")
    assert done.exit_code == 0, done.output
    assert results(out) == ["d-0001.png", "d-0001.xml", "d-0002.png", "d-0002.xml"]
    assert "2 pages there already" in run(model, document, "-f", "page", "-o", out, "--images", "--resume").stderr


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16", "F"])
def test_tiff_of_any_mode_becomes_an_image_that_reads_the_same(mode: str, tmp_path: Path) -> None:
    gray = simple_page(1, size=(300, 120))[0]
    if mode == "I;16":
        page = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    elif mode == "F":
        page = Image.fromarray(np.asarray(gray).astype(np.float32) / 255)
    else:
        page = gray.convert("RGB").convert(mode) if mode in ("CMYK", "P") else gray.convert(mode)
    page.save(tmp_path / "p.tif")
    (tmp_path / "p.png").write_bytes(page_image(open_whole(tmp_path / "p.tif", 1), "p.tif", 1))
    one, other = (np.asarray(open_gray(tmp_path / name)).astype(int) for name in ("p.tif", "p.png"))
    assert np.abs(one - other).max() <= (1 if mode == "CMYK" else 0)


def test_images_need_a_folder_for_the_results(model: Path, tmp_path: Path) -> None:
    done = run(model, make(tmp_path / "d.tif", [tinted(0)]), "--images")
    assert isinstance(done.exception, SpikeHTRError)
    assert str(done.exception) == "--images needs a folder for the results: add --output DIR"
