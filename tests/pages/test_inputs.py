from __future__ import annotations

import errno
import os
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from types import SimpleNamespace

import pytest
from PIL import Image

from spikehtr.data.images import ImageError, image_size
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.page_source import Source, count_pages, load_page
from spikehtr.pages.result_names import ResultNames
from spikehtr.results.page import Page


def picture(path: Path, size: tuple[int, int] = (40, 30), shade: int = 200) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, shade).save(path)
    return path


def names_of(inputs: list[object]) -> list[str]:
    sources, failures, _ = find_sources(map(str, inputs))
    assert not failures
    names = ResultNames()
    return [job.name for source in sources for job in names.jobs(source)]


def test_files_folders_and_globs_in_the_order_given_each_once(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.jpg", "b/deep/3.tif", "a.png", "c1.webp", "c2.webp", "b/notes.txt", "b/.hidden.png"):
        if name.endswith("txt"):
            (tmp_path / name).write_text("x")
        else:
            picture(tmp_path / name)
    inputs = [tmp_path / "c*.webp", tmp_path / "b", tmp_path / "a.png", tmp_path / "b" / "1.jpg"]
    assert names_of(inputs) == ["c1", "c2", "1", "2", "deep/3", "a"]


def test_an_image_that_an_xml_file_names_goes_with_it(tmp_path: Path) -> None:
    picture(tmp_path / "p1.jpg")
    picture(tmp_path / "p2.jpg")
    (tmp_path / "one.xml").write_text('<PcGts><Page imageFilename="p1.jpg" imageWidth="40" imageHeight="30"/></PcGts>')
    (tmp_path / "mets.xml").write_text("<mets/>")
    sources, failures, _ = find_sources([str(tmp_path)])
    assert not failures
    assert [(source.path.name, source.kind) for source in sources] == [("one.xml", "xml"), ("p2.jpg", "image")]


@pytest.mark.parametrize(
    ("frames", "names"),
    [
        ([2], ["book-0001", "book-0003"]),
        ([1, 2, 3], []),
        ([None], ["book-0002", "book-0003"]),  # the first is taken
        ([9], ["book-0001", "book-0002", "book-0003"]),
    ],
)
def test_of_an_image_of_several_pages_those_that_xml_files_name_go_with_them(
    frames: list[int | None], names: list[str], tmp_path: Path
) -> None:
    images = [Image.new("L", (40, 30), 255) for _ in range(3)]
    images[0].save(tmp_path / "book.tif", save_all=True, append_images=images[1:])
    for number, frame in enumerate(frames):
        (tmp_path / f"p{number}.xml").write_text(Page("book.tif", 40, 30, (), frame=frame).to_page(), encoding="utf-8")
    assert names_of([tmp_path]) == names + [f"p{number}" for number in range(len(frames))]


def test_what_was_written_of_a_pdf_beside_it_is_no_input(tmp_path: Path) -> None:
    """Otherwise its pages would be read anew under other names, each time."""
    pytest.importorskip("pypdfium2")
    pages = [Image.new("L", (40, 30), 255)] * 2
    pages[0].save(tmp_path / "d.pdf", save_all=True, append_images=pages[1:], resolution=72)
    for number in (1, 2):
        text = Page("d.pdf", 40, 30, (), frame=number).to_page()
        (tmp_path / f"d-000{number}.xml").write_text(text, encoding="utf-8")
    assert names_of([tmp_path]) == ["d-0001", "d-0002"]
    sources, _, remarks = find_sources([str(tmp_path)])
    assert [source.kind for source in sources] == ["pdf"]
    assert remarks == [f"{tmp_path / 'd.pdf'}: it is read itself; PAGE or ALTO files of its pages are passed over: 2"]
    alone, _, _ = find_sources([str(tmp_path / "d-0001.xml")])
    assert [source.kind for source in alone] == ["xml"], "who names it alone is told why it cannot be read"


def test_results_never_share_a_name(tmp_path: Path) -> None:
    files = [picture(tmp_path / name) for name in ("x/p.png", "y/p.png", "y/p.jpg", "y/P~2.png")]
    assert names_of(list(files)) == ["p", "p~2", "p~3", "P~2~2"]


def test_pages_of_one_file(tmp_path: Path) -> None:
    frames = [Image.new("L", (30 + number, 20), 50 * number) for number in range(3)]
    frames[0].save(tmp_path / "many.tiff", save_all=True, append_images=frames[1:])
    assert names_of([tmp_path / "many.tiff"]) == ["many-0001", "many-0002", "many-0003"]
    (source,), _, _ = find_sources([str(tmp_path / "many.tiff")])
    assert [load_page(source, index, 300).size for index in range(3)] == [(30, 20), (31, 20), (32, 20)]


@pytest.mark.parametrize("form", ["MPO", "GIF", "WEBP", "PNG"])
def test_only_a_tiff_has_pages(form: str, tmp_path: Path) -> None:
    """Phones write a photo and its preview, or its depth, into one .jpg: that is MPO."""
    photo, other = Image.new("RGB", (60, 40), "white"), Image.new("RGB", (60, 40), "black")
    photo.save(tmp_path / "photo.jpg", form, save_all=True, append_images=[other])
    with Image.open(tmp_path / "photo.jpg") as image:
        assert image.n_frames == 2  # type: ignore[attr-defined]
    assert names_of([tmp_path / "photo.jpg"]) == ["photo"]
    (source,), _, _ = find_sources([str(tmp_path / "photo.jpg")])
    assert load_page(source, 0, 300).getextrema() == (255, 255)


@pytest.mark.parametrize("error", [TypeError, IndexError, KeyError, OverflowError, struct.error, AssertionError])
def test_whatever_pillow_runs_into_the_image_is_damaged(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("of all things")

    picture(tmp_path / "p.tif")
    (source,), _, _ = find_sources([str(tmp_path / "p.tif")])
    monkeypatch.setattr("PIL.TiffImagePlugin.TiffImageFile.n_frames", property(fail))
    monkeypatch.setattr("PIL.TiffImagePlugin.TiffImageFile.load", fail)
    with pytest.raises(ImageError, match=r"damaged image .*of all things"):
        count_pages(source)
    with pytest.raises(ImageError, match=r"damaged image .*of all things"):
        load_page(source, 0, 300)


def test_a_photo_is_turned_as_the_camera_noted(tmp_path: Path) -> None:
    image = Image.new("L", (40, 20), 255)
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "photo.jpg", exif=exif)
    (source,), _, _ = find_sources([str(tmp_path / "photo.jpg")])
    assert load_page(source, 0, 300).size == (20, 40)


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_every_page_of_a_scan_is_turned(compression: str | None, tmp_path: Path) -> None:
    pages = [Image.linear_gradient("L").resize(size) for size in ((40, 20), (60, 25))]
    file = tmp_path / "scan.tif"
    pages[0].save(file, save_all=True, append_images=pages[1:], tiffinfo={0x0112: 6}, compression=compression)
    (source,), _, _ = find_sources([str(file)])
    for index, page in enumerate(pages):
        turned = page.transpose(Image.Transpose.ROTATE_270)
        assert load_page(source, index, 300).tobytes() == turned.tobytes()
        assert image_size(file, index + 1) == turned.size


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    sources, failures, _ = find_sources([str(tmp_path / "no.png"), str(tmp_path / "no*.png"), str(tmp_path / "empty")])
    assert not sources
    assert [failure.reason for failure in failures] == [
        "nothing of this name is there",
        "nothing of this name is there",
        "the folder holds no image, PDF, PAGE or ALTO file",
    ]


def test_a_dead_link_does_not_hide_what_else_a_pattern_names(tmp_path: Path) -> None:
    (tmp_path / "a.png").symlink_to("gone.png")
    picture(tmp_path / "b.png")
    sources, failures, _ = find_sources([str(tmp_path / "*.png")])
    assert [source.path.name for source in sources] == ["b.png"]
    assert [(one.title, one.reason) for one in failures] == [(str(tmp_path / "a.png"), "a link to what is not there")]


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "in" / "a.png")
    picture(tmp_path / "in" / "locked" / "b.png")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "locked":  # a superuser may list any folder, so modes would not do
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for folder, names in ((tmp_path / "in", ["a.png"]), (tmp_path / "in" / "locked", [])):
        sources, failures, _ = find_sources([str(folder)])
        assert [source.path.name for source in sources] == names
        assert [(failure.title, failure.reason) for failure in failures] == [
            (str(tmp_path / "in" / "locked"), "cannot be listed (Permission denied)")
        ]


def test_results_within_a_folder_are_no_inputs_of_it(tmp_path: Path) -> None:
    for name in ("a.png", "a.overlay.png", "out/a.overlay.png", "out/b.png", "outer/c.png"):
        picture(tmp_path / name)
    for folder, output, names in (
        (tmp_path, tmp_path / "out", ["a", "outer/c"]),
        (tmp_path, tmp_path, ["a", "out/b", "outer/c"]),
        (tmp_path / "out", tmp_path, ["b"]),
        (tmp_path, None, ["a", "out/b", "outer/c"]),
    ):
        sources, _, _ = find_sources([str(folder)], output)
        assert [source.place.with_suffix("").as_posix() for source in sources] == names
    (named,), _, _ = find_sources([str(tmp_path / "out" / "a.overlay.png")], tmp_path / "out")
    assert named.path.name == "a.overlay.png"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.png", b"", "empty"),
        ("text.jpg", b"not an image at all", "not an image"),
        ("bomb.png", b"", "more than"),
    ],
)
def test_files_that_are_no_pages(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    if name == "bomb.png":
        Image.new("1", (1, 1)).save(file)
        whole = bytearray(file.read_bytes())
        whole[16:24] = (60_000).to_bytes(4, "big") * 2
        import zlib

        whole[29:33] = zlib.crc32(bytes(whole[12:29])).to_bytes(4, "big")
        file.write_bytes(bytes(whole))
    (source,), _, _ = find_sources([str(file)])
    with pytest.raises(ImageError, match=message):
        count_pages(source)


def test_pdf(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    pages = [Image.new("L", (300, 400), 255), Image.new("L", (200, 100), 0)]
    pages[0].save(tmp_path / "d.pdf", save_all=True, append_images=pages[1:], resolution=72)
    assert names_of([tmp_path / "d.pdf"]) == ["d-0001", "d-0002"]
    (source,), _, _ = find_sources([str(tmp_path / "d.pdf")])
    assert load_page(source, 0, 72).size == (300, 400)
    assert load_page(source, 1, 144).size == (400, 200)
    assert load_page(source, 1, 72).getextrema()[1] < 20
    (tmp_path / "bad.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (source,), _, _ = find_sources([str(tmp_path / "bad.pdf")])
    with pytest.raises(ImageError, match="not a PDF"):
        count_pages(source)


class CountingPdf:
    """Stands for a PDF library: an open document that notes how many others were open with it."""

    opened = most = 0

    def __init__(self, path: Path) -> None:
        CountingPdf.opened += 1
        CountingPdf.most = max(CountingPdf.most, CountingPdf.opened)
        time.sleep(0.01)

    def __enter__(self) -> CountingPdf:
        return self

    def __exit__(self, *_: object) -> None:
        CountingPdf.opened -= 1

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> CountingPdf:
        return self

    def get_width(self) -> float:
        return 30.0

    get_height = get_width

    def render(self, **_: object) -> CountingPdf:
        return self

    def to_pil(self) -> Image.Image:
        return Image.new("L", (30, 30))


def test_one_thread_at_a_time_is_in_the_pdf_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", SimpleNamespace(PdfDocument=CountingPdf, PdfiumError=RuntimeError))
    source = Source(tmp_path / "d.pdf", "pdf", PurePath("d.pdf"))
    with ThreadPoolExecutor(4) as threads:
        counts = [threads.submit(count_pages, source) for _ in range(4)]
        sheets = [threads.submit(load_page, source, index, 72) for index in range(4)]
    assert [count.result() for count in counts] == [3] * 4
    assert [sheet.result().size for sheet in sheets] == [(30, 30)] * 4
    assert CountingPdf.most == 1


def test_without_pypdfium2_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    (tmp_path / "d.pdf").write_bytes(b"%PDF")
    (source,), _, _ = find_sources([str(tmp_path / "d.pdf")])
    with pytest.raises(SpikeHTRError, match=r"spikehtr\[pdf\]"):
        count_pages(source)
