"""The cache must never serve the lines of files that have changed since."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from spikehtr.data.compiling import compile_store, open_lines
from spikehtr.data.fingerprint import fingerprint
from spikehtr.data.formats.machine import list_read
from spikehtr.data.formats.written import digest_of
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.origins import Origins

PAGE = (
    '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15">'
    '<Page imageFilename="{image}" imageWidth="100" imageHeight="60"><TextRegion id="r"><TextLine id="l">'
    '<Coords points="10,10 90,10 90,30 10,30"/><TextEquiv><Unicode>ink</Unicode></TextEquiv>'
    "</TextLine></TextRegion></Page></PcGts>"
)
ALTO = (
    '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><sourceImageInformation>'
    "<fileName>{image}</fileName></sourceImageInformation></Description><Layout><Page><PrintSpace><TextBlock>"
    '<TextLine ID="l" HPOS="10" VPOS="10" WIDTH="80" HEIGHT="20"><String CONTENT="ink"/></TextLine>'
    "</TextBlock></PrintSpace></Page></Layout></alto>"
)


def draw(path, size=(100, 60), shade=220):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, shade).save(path)
    return path


def line(folder, text="before"):
    """x.png with x.txt; the text's path."""
    draw(folder / "x.png")
    (folder / "x.txt").write_text(text)
    return folder / "x.txt"


def texts(spec):
    store = open_lines([spec])
    return [store.text(row) for row in range(len(store))]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The home and working folder, with a cache beside it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize("spec", ["~/data", "folder:~/data", "folder:data", "linked", "holder"])
def test_a_changed_text_is_seen_however_its_folder_is_named(place, spec):
    text = line(place / "data")
    (place / "linked").symlink_to("data")
    (place / "holder").mkdir()
    (place / "holder" / "inner").symlink_to(place / "data")
    assert texts(spec) == ["before"]
    text.write_text("after")
    assert texts(spec) == ["after"]


def test_an_edit_of_the_same_length_is_seen_though_the_time_is_set_back(place):
    text = line(place / "data", "before")
    assert texts("data") == ["before"]
    times = text.stat()
    text.write_text("behind")
    os.utime(text, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert texts("data") == ["behind"]


def test_a_list_of_what_was_read_is_part_of_its_pages(place):
    draw(place / "set" / "sub" / "p.png")
    (place / "set" / "sub" / "p.xml").write_text(PAGE.format(image="p.png"))
    assert texts("set") == ["ink"]
    list_read(place / "set", "p.png", [("l", "ink")])
    with pytest.raises(SpikeHTRError, match="the line is as the model read it"):
        texts("set")


def test_what_transcribe_notes_of_texts_is_seen(place):
    text = line(place / "set" / "sub")
    assert texts("set") == ["before"]
    Origins(place / "set").note_written("sub/x.txt", digest_of(text.read_bytes()))
    with pytest.raises(SpikeHTRError, match="the line is as the model read it"):
        texts("set")
    text.write_text("after!")
    assert texts("set") == ["after!"]


def test_a_link_named_like_a_split_is_another_source(place):
    line(place / "data")
    (place / "test").symlink_to("data")
    assert set(open_lines(["data"]).splits) != {"test"}
    assert set(open_lines(["test"]).splits) == {"test"}


@pytest.mark.parametrize("folder", ["lines", ".", "../elsewhere"])
def test_a_list_stands_for_the_files_it_names(place, folder):
    text = line(place / "set" / folder)
    name = "x.png" if folder == "lines" else f"{folder}/x.png"
    (place / "set" / "train.ln").write_text(f"{name}\n")
    draw(place / "set" / "lines" / "other.png")
    assert texts("set/train.ln") == ["before"]
    text.write_text("after")
    assert texts("set/train.ln") == ["after"]


@pytest.mark.parametrize("kind", [PAGE, ALTO])
@pytest.mark.parametrize("image", ["xml/p.png", "images/p.png", "scans/p.png"])
@pytest.mark.parametrize("spec", ["set/xml/p.xml", "set/xml"])
def test_a_page_stands_for_its_image(place, kind, image, spec):
    picture = draw(place / "set" / image)
    stated = "../scans/p.png" if "scans" in image else "p.png"
    (place / "set" / "xml").mkdir(exist_ok=True)
    (place / "set" / "xml" / "p.xml").write_text(kind.format(image=stated))
    assert open_lines([spec]).line(0).max() == 220
    draw(picture, shade=90)
    assert open_lines([spec]).line(0).max() == 90


def test_a_parquet_file_stands_for_the_images_it_names(place):
    picture = draw(place / "set" / "x.png")
    images = [{"bytes": None, "path": "x.png"}, {"bytes": picture.read_bytes(), "path": "y.png"}, None]
    pq.write_table(pa.table({"text": ["ink"] * 3, "image": images}), place / "set" / "train.parquet")
    assert open_lines(["set/train.parquet"]).line(0).max() == 220
    draw(picture, shade=90)
    assert open_lines(["set/train.parquet"]).line(0).max() == 90


def test_a_stopped_run_into_the_source_folder_goes_on(place, monkeypatch):
    line(place / "data")
    target = place / "data" / "lines.arrow"

    def killed(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_store(["data"], target, progress=killed)
    monkeypatch.setattr("spikehtr.data.compiling.line_image", lambda sample: pytest.fail("decoded again"))
    assert len(compile_store(["data"], target)[0]) == 1


def test_a_cache_within_the_source_is_found_again(place, monkeypatch):
    line(place / "data")
    monkeypatch.setenv("SPIKEHTR_CACHE", str(place / "data" / "cache"))
    assert open_lines(["data"]).path == open_lines(["data"]).path


def test_a_store_in_the_home_folder_is_opened_as_it_is(place):
    line(place / "data")
    compile_store(["data"], place / "lines.arrow")
    assert open_lines(["store:~/lines.arrow"]).path == place / "lines.arrow"


def test_what_cannot_be_looked_at_is_no_error(place):
    line(place / "data")
    (place / "data" / "gone.png").symlink_to("nowhere.png")
    (place / "data" / "broken.parquet").write_text("PAR1")
    pq.write_table(pa.table({"text": ["ink"], "image": [b"bytes"]}), place / "data" / "plain.parquet")
    (place / "data" / "broken.xml").write_text("<PcGts><Page")
    (place / "data" / os.fsdecode(b"caf\xe9.png")).write_bytes(b"")
    assert fingerprint(["data"], "") == fingerprint([place / "data"], "")
    assert fingerprint(["data"], "") != fingerprint(["data"], "64")
