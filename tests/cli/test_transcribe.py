from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pages_help import save_random, simple_page
from spikehtr.cli import app
from spikehtr.data.formats.xml import sniff
from spikehtr.data.geometry import cut_line
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.pages import origins
from spikehtr.readers.torch import TorchReader
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page
from spikehtr.version import __version__
from spikehtr.weights import update_notes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("model") / "random.safetensors")


def run(model: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["transcribe", "--device", "cpu", "-m", str(model), *map(str, arguments)])


def make(folder: Path, names: list[str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        simple_page(1, seed=number, size=(700, 300))[0].save(folder / name)
    return [folder / name for name in names]


def files_in(folder: Path) -> list[str]:
    notes = (origins.FILE, origins.LOCK)
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in notes)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def test_a_mixture_with_bad_files_among_it(model: Path, tmp_path: Path) -> None:
    make(tmp_path / "in", ["a.png", "b.jpg", "sub.tif"])
    line = simple_page(1)[0].crop((80, 70, 680, 150))
    line.save(tmp_path / "in" / "line.webp")
    (tmp_path / "in" / "empty.png").touch()
    (tmp_path / "in" / "words.jpg").write_text("no image")
    (tmp_path / "in" / "cut.png").write_bytes((tmp_path / "in" / "a.png").read_bytes()[:2000])
    (tmp_path / "in" / "broken.xml").write_text("<PcGts><Page")
    result = run(model, tmp_path / "in", tmp_path / "nowhere.png", "-o", tmp_path / "out", "--workers", 1)
    assert result.exit_code == 1, result.output
    assert files_in(tmp_path / "out") == ["a.txt", "b.txt", "line.txt", "sub.txt"]
    assert "4 pages" in result.stderr
    assert "5 could not be done" in result.stderr
    for name, reason in (("empty.png", "empty"), ("words.jpg", "not an image"), ("cut.png", "damaged")):
        assert any(name in row and reason in row for row in result.stderr.splitlines())
    assert "nowhere.png" in result.stderr
    assert "broken.xml" in result.stderr
    recognizer = Recognizer.load(model)
    for name in ("a.png", "b.jpg"):
        expected = recognizer.transcribe_page(tmp_path / "in" / name).to_text()
        assert (tmp_path / "out" / name).with_suffix(".txt").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize(
    ("form", "suffix", "start"),
    [
        ("json", ".json", '{\n "format": "spikehtr-page-1"'),
        ("page", ".xml", "<?xml"),
        ("alto", ".alto.xml", "<?xml"),
        ("hocr", ".html", "<?xml"),
    ],
)
def test_formats(form: str, suffix: str, start: str, model: Path, tmp_path: Path) -> None:
    make(tmp_path, ["a.png"])
    assert run(model, tmp_path / "a.png", "-o", tmp_path / "out", "-f", form, "--overlay").exit_code == 0
    assert (tmp_path / "out" / f"a{suffix}").read_text(encoding="utf-8").startswith(start)
    with Image.open(tmp_path / "out" / "a.overlay.png") as overlay:
        assert overlay.size == (1400, 300)
        colours = overlay.convert("RGB").getcolors(1 << 20)
        assert colours is not None
        assert any(red > green + 60 for _, (red, green, _) in colours)  # a network that knows nothing: drawn in red


def test_without_a_folder_results_are_printed_in_order(model: Path, tmp_path: Path) -> None:
    files = make(tmp_path, ["z.png", "a.png"])
    recognizer = Recognizer.load(model)
    texts = [recognizer.transcribe_page(file).to_text() for file in files]
    assert run(model, *files).stdout == f"==> z <==\n{texts[0]}==> a <==\n{texts[1]}"
    assert run(model, files[0]).stdout == texts[0]
    rows = run(model, *files, "-f", "json").stdout.splitlines()
    assert [Page.from_json(row).to_text() for row in rows] == texts
    assert [json.loads(row)["image"] for row in rows] == ["z.png", "a.png"]


def test_resume_reads_only_what_is_missing_and_ends_the_same(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    make(tmp_path / "in", ["1.png", "2.png", "3.png"])
    make(tmp_path / "in" / "x", ["1.png"])
    assert run(model, tmp_path / "in", "-o", tmp_path / "whole", "-f", "page").exit_code == 0
    assert run(model, tmp_path / "in" / "2.png", "-o", tmp_path / "part", "-f", "page").exit_code == 0
    before = (tmp_path / "part" / "2.xml").stat().st_mtime_ns
    again = run(model, tmp_path / "in", "-o", tmp_path / "part", "-f", "page", "--resume")
    assert again.exit_code == 0
    assert "3 pages" in again.stderr
    assert "1 page there already" in again.stderr
    assert (tmp_path / "part" / "2.xml").stat().st_mtime_ns == before
    assert files_in(tmp_path / "part") == files_in(tmp_path / "whole") == ["1.xml", "2.xml", "3.xml", "x/1.xml"]
    for name in files_in(tmp_path / "whole"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("output", ["out", "."])
def test_resume_with_the_results_among_the_inputs(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, ["a.png", "b.png"])
    monkeypatch.chdir(tmp_path)
    arguments = (".", "--lines-only", "--overlay", "-o", output)
    assert bare(*arguments).exit_code == 0
    (tmp_path / output / "b.xml").unlink()
    before = files_in(tmp_path)
    again = bare(*arguments, "--resume")
    assert again.exit_code == 0, again.exception
    assert "1 page, " in again.stderr
    assert "1 page there already" in again.stderr
    assert files_in(tmp_path) == sorted([*before, (Path(output) / "b.xml").as_posix()])


def test_resume_takes_no_result_of_another_format_for_one(tmp_path: Path) -> None:
    (file,) = make(tmp_path, ["a.png"])
    for form, known in (("page", False), ("page", True), ("alto", False), ("alto", True), ("page", True)):
        result = bare(file, "--lines-only", "-f", form, "-o", tmp_path / "out", "--resume")
        assert result.exit_code == 0
        assert ("1 page there already" in result.stderr) is known
    assert sniff(tmp_path / "out" / "a.xml") == "PcGts"
    assert sniff(tmp_path / "out" / "a.alto.xml") == "alto"


@pytest.mark.parametrize(
    ("form", "name", "content"),
    [
        ("page", "a.xml", "<alto/>"),  # as earlier versions named it
        ("alto", "a.alto.xml", "<PcGts/>"),
        ("hocr", "a.html", "<html><body>a page of the web</body></html>"),
        ("json", "a.json", '{"format": "another"}'),
    ],
)
def test_resume_takes_no_file_of_another_kind_for_a_result(form: str, name: str, content: str, tmp_path: Path) -> None:
    (file,) = make(tmp_path, ["a.png"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(content)
    result = bare(file, "--lines-only", "-f", form, "-o", tmp_path / "out", "--resume")
    assert result.exit_code == 1
    assert "there already" not in result.stderr
    assert "1 file left alone, not known as ours" in result.stderr
    assert (tmp_path / "out" / name).read_text() == content


def test_a_model_without_calibration_reads_with_its_own_confidences(model: Path, tmp_path: Path) -> None:
    """As at temperature 1; where a file notes another, that changes how sure it is and not what it reads."""
    make(tmp_path, ["a.png"])
    pages = {}
    for temperature in (None, 1.0, 2.5):
        file = tmp_path / f"{temperature}.safetensors"
        file.write_bytes(model.read_bytes())
        if temperature is not None:
            update_notes(file, {"temperature": temperature})
        result = run(file, tmp_path / "a.png", "-f", "json", "--precision", "fp32")
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        pages[temperature] = Page.from_json(result.stdout)
    bare, same, calibrated = ([(line.text, line.confidence) for line in page.lines] for page in pages.values())
    assert bare == same
    assert bare
    assert all(0 < confidence <= 1 for _, confidence in bare)
    assert [text for text, _ in bare] == [text for text, _ in calibrated]
    assert all(before > after for (_, before), (_, after) in zip(bare, calibrated, strict=True))


@pytest.mark.parametrize("used", ["fp32", "bf16"])
def test_bf16_is_told_once_unless_it_was_asked_for(
    used: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader(net: Network, precision: str) -> TorchReader:
        made = TorchReader(net)
        made.precision = used
        return made

    monkeypatch.setattr("spikehtr.recognizer.make_reader", reader)
    files = make(tmp_path, ["a.png", "b.png"])
    said = "reading in bf16, which is faster here; --precision fp32 rounds less"
    result = run(model, *files, "-o", tmp_path / "out", "-f", "json")
    assert result.stderr.count(said) == (used == "bf16")
    assert said not in result.stdout
    assert json.loads((tmp_path / "out" / "a.json").read_text())["precision"] == used
    assert said not in run(model, *files, "--precision", "fp32").stderr


def test_what_was_read_says_by_which_model_and_version(model: Path, tmp_path: Path) -> None:
    (file,) = make(tmp_path, ["a.png"])
    for precision in ("fp32", "fp64"):
        page = json.loads(run(model, file, "-f", "json", "--precision", precision).stdout)
        assert (page["model"], page["precision"], page["version"]) == (model.name, precision, __version__)


def test_doubtful_words(model: Path, tmp_path: Path) -> None:
    (file,) = make(tmp_path, ["a.png"])
    words = run(model, file, "--min-confidence", "1").stdout.split()
    assert words
    assert all(word.endswith("[?]") for word in words)


def test_confidences_stand_before_their_lines(model: Path, tmp_path: Path) -> None:
    files = make(tmp_path, ["a.png", "b.png"])
    plain, shown = run(model, *files).stdout, run(model, *files, "--confidences").stdout
    lines = [line.split("\t") for line in shown.splitlines() if not line.startswith("==>")]
    assert [text for _, text in lines] == [line for line in plain.splitlines() if not line.startswith("==>")]
    assert all(0 <= float(confidence) <= 1 for confidence, _ in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "page"], "add --output"),
        (["-f", "json", "--confidences"], "leave it out"),
        (["-f", "json", "--glyphs"], "json holds them anyway"),
        (["--glyphs"], "text has no element for a character"),
        (["--images"], "add --output"),
        (["--resume"], "add --output"),
        (["--overlay"], "add --output"),
        (["--overwrite"], "add --output"),
        (["-o", "a.png"], "name a folder"),
        (["-m", "no.safetensors"], "no such file"),
    ],
)
def test_wrong_use(
    arguments: list[str], message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, ["a.png"])
    monkeypatch.chdir(tmp_path)
    result = run(model, "a.png", *arguments)
    assert isinstance(result.exception, SpikeHTRError)
    assert message in str(result.exception)


def bare(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["transcribe", *map(str, arguments)])


def test_without_a_model_the_bundled_one_is_asked_for(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = make(tmp_path, ["a.png"])
    monkeypatch.setattr("spikehtr.weights.MODEL", tmp_path / "none")
    assert "--model FILE" in str(bare(file).exception)
    monkeypatch.setattr("spikehtr.weights.MODEL", model)
    assert bare(file, "--device", "cpu").stdout == run(model, file).stdout != ""


def test_nothing_to_read(model: Path, tmp_path: Path) -> None:
    assert "nothing to read" in str(run(model, tmp_path / "no.png").exception)


@pytest.mark.parametrize("form", [None, "page", "alto", "hocr", "json"])
def test_lines_only_needs_no_model_and_writes_the_lines_without_text(
    form: str | None, model: Path, tmp_path: Path
) -> None:
    files = make(tmp_path, ["a.png", "b.png"])
    wanted = ["-f", form] if form else []
    result = bare(*files, "--lines-only", "--overlay", "-o", tmp_path / "out", *wanted)
    assert result.exit_code == 0, result.output
    suffix = {"hocr": ".html", "json": ".json", "alto": ".alto.xml"}.get(form or "", ".xml")
    named = [tmp_path / "out" / f"{name}{end}" for name in "ab" for end in (suffix, ".overlay.png")]
    assert f"wrote {', '.join(map(str, named))}" in result.stderr
    assert files_in(tmp_path / "out") == sorted(path.name for path in named)
    with Image.open(tmp_path / "out" / "a.overlay.png") as overlay:
        assert overlay.size == (700, 300)  # nothing was read, so nothing stands beside the page
    read = Recognizer.load(model).transcribe_page(files[0])
    written = (tmp_path / "out" / f"a{suffix}").read_text(encoding="utf-8")
    if form == "json":
        page = Page.from_json(written)
        assert [line.polygon for line in page.lines] == [line.polygon for line in read.lines]
        assert not any(line.words for line in page.lines)
    elif form != "hocr":  # read by others' programs, and by ours: the same lines, then with text
        (tmp_path / "out" / "a.png").write_bytes(files[0].read_bytes())
        again = Recognizer.load(model).transcribe_page(tmp_path / "out" / f"a{suffix}")
        # Ids of lines that were read when they got them hold a digest of the text as well.
        assert [line.id for line in again.lines] == [line.id.split("_m")[0] for line in read.lines]
        assert all(line.words for line in again.lines)


UNUSED = [["--min-confidence", "0.5"], ["-m", "x.safetensors"], ["--no-straighten"], ["--precision", "fp32"]]
UNUSED += [["--batch-size", "4"]]


@pytest.mark.parametrize("arguments", [["-f", "text"], *UNUSED, []])
def test_lines_only_and_what_makes_no_sense_with_it(arguments: list[str], tmp_path: Path) -> None:
    (file,) = make(tmp_path, ["a.png"])
    error = bare(file, "--lines-only", *arguments, *(["-o", tmp_path / "out"] if arguments else [])).exception
    assert isinstance(error, SpikeHTRError)
    assert ("reads nothing" if arguments else "add --output") in str(error)


def test_inputs_are_never_overwritten(model: Path, tmp_path: Path) -> None:
    make(tmp_path, ["a.png"])
    assert run(model, tmp_path / "a.png", "-o", tmp_path, "-f", "page").exit_code == 0
    written = (tmp_path / "a.xml").read_bytes()
    for options in ([], ["--overwrite"]):
        result = run(model, tmp_path / "a.xml", "-o", tmp_path, "-f", "page", *options)
        assert result.exit_code == 1
        told = f"{tmp_path / 'a.xml'}: its result would replace it, which is left as it is: give another folder"
        assert told in result.stderr
        assert (tmp_path / "a.xml").read_bytes() == written


@pytest.mark.parametrize("form", ["page", "alto"])
def test_pages_of_one_file_are_read_back_from_their_own_page(form: str, model: Path, tmp_path: Path) -> None:
    first, second = (simple_page(count, seed=count, size=(700, 200 + 100 * count))[0] for count in (1, 2))
    first.save(tmp_path / "book.tif", save_all=True, append_images=[second])
    assert bare(tmp_path / "book.tif", "--lines-only", "-f", form, "-o", tmp_path).exit_code == 0
    (tmp_path / f"book-0001{origins.SUFFIX['alto' if form == 'alto' else 'page']}").unlink()
    result = run(model, tmp_path, "-f", "json")
    assert result.exit_code == 0
    assert "remarks" not in result.stderr
    again = {page.frame: page for page in map(Page.from_json, result.stdout.splitlines())}
    assert sorted((frame or 0, page.image) for frame, page in again.items()) == [(1, "book.tif"), (2, "book.tif")]
    recognizer = Recognizer.load(model)
    for frame, image in ((1, first), (2, second)):
        expected = [recognizer.transcribe(cut_line(image, line.polygon)).text for line in again[frame].lines]
        assert [line.text for line in again[frame].lines] == [" ".join(text.split()) for text in expected]
        assert len(expected) == frame
        assert (again[frame].width, again[frame].height) == image.size


PAGE_XML = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
<Page imageFilename="{image}" imageWidth="{width}" imageHeight="300"><TextRegion id="r">{lines}</TextRegion></Page>
</PcGts>"""
GOOD_LINE = '<TextLine id="good"><Coords points="90,70 650,70 650,150 90,150"/></TextLine>'


def page_xml(file: Path, image: str, lines: str, width: int = 700) -> Path:
    file.write_text(PAGE_XML.format(image=image, width=width, lines=lines), encoding="utf-8")
    return file


def test_lines_that_cannot_be_read_are_listed_and_the_others_read(model: Path, tmp_path: Path) -> None:
    make(tmp_path, ["a.png"])
    shapes = {"point": "9,9 9,9 9,9", "flat": "9,50 99,50", "none": "", "words": "a,b c,d", "off": "-9,-9 -2,-9 -2,-2"}
    lines = "".join(f'<TextLine id="{name}"><Coords points="{shape}"/></TextLine>' for name, shape in shapes.items())
    file = page_xml(tmp_path / "a.xml", "a.png", lines + GOOD_LINE)
    result = run(model, file, "-f", "json")
    assert result.exit_code == 1
    assert [line.id for line in Page.from_json(result.stdout).lines] == ["good"]
    assert "5 lines left out:" in result.stderr
    for name in shapes:
        (told,) = (row for row in result.stderr.splitlines() if f"line {name}:" in row)
        assert told.count("a.xml") == 1


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_scans_of_one_name_in_two_folders_keep_their_results(
    resume: tuple[str, ...], model: Path, tmp_path: Path
) -> None:
    make(tmp_path / "box1", ["1.png", "2.png"])
    for name in ("1.png", "3.png"):
        (tmp_path / "box2").mkdir(exist_ok=True)
        simple_page(3, seed=5, size=(700, 600))[0].save(tmp_path / "box2" / name)
    out = tmp_path / "out"
    assert run(model, tmp_path / "box1", "-o", out, *resume).exit_code == 0
    first = (out / "1.txt").read_text()
    for told in ("2 pages", "2 pages there already" if resume else "2 pages"):  # the second time, under the same names
        result = run(model, tmp_path / "box2", "-o", out, *resume)
        assert told in result.stderr
        assert f"{tmp_path / 'box2' / '1.png'}: written as 1~2, the name was taken" in result.stderr
        assert files_in(out) == ["1.txt", "1~2.txt", "2.txt", "3.txt"]
    assert (out / "1.txt").read_text() == first
    (tmp_path / "box1").rename(tmp_path / "moved")  # the same scans elsewhere: no others
    result = run(model, tmp_path / "moved", "-o", out, "--resume")
    assert "2 pages there already" in result.stderr
    assert "remark" not in result.stderr


def test_what_is_odd_is_remarked_and_no_failure(model: Path, tmp_path: Path) -> None:
    make(tmp_path / "x", ["a.png"])
    make(tmp_path / "y", ["a.png"])
    Image.new("L", (700, 900), 250).save(tmp_path / "blank.png")
    scaled = page_xml(tmp_path / "x" / "b.xml", "a.png", GOOD_LINE, width=1400)
    (tmp_path / "x" / "b.png").write_bytes((tmp_path / "x" / "a.png").read_bytes())
    result = run(model, tmp_path / "y", tmp_path / "x" / "a.png", tmp_path / "blank.png", "-o", tmp_path / "out")
    assert result.exit_code == 0
    assert files_in(tmp_path / "out") == ["a.txt", "a~2.txt", "blank.txt"]
    assert "2 remarks:" in result.stderr
    assert f"{tmp_path / 'x' / 'a.png'}: written as a~2, the name was taken" in result.stderr
    assert f"{tmp_path / 'blank.png'}: no line was found" in result.stderr
    result = run(model, scaled, "-f", "json")
    assert result.exit_code == 0
    assert "made for an image of 1400 x 300 pixels" in result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.xml", "its image 'gone.jpg' was not found"),
        ("mets.xml", "neither PAGE nor ALTO: its root element is <mets>"),
        ("header.tif", "not an image that Pillow can read"),
        ("cut.tif", "page 2: damaged image"),
        ("half.tif", "half.tif: damaged image"),
        ("pipe.png", "not an ordinary file"),
        ("link.png", "a link to what is not there"),
        ("notes.txt", "not an image that Pillow can read"),
        ("", "an empty name"),
        ("no*.jpg", "nothing of this name is there"),
        ("empty", "the folder holds no image, PDF, PAGE or ALTO file"),
    ],
)
def test_what_an_archivist_may_give_it(
    name: str, says: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (good,) = make(tmp_path, ["good.png"])
    page_xml(tmp_path / "gone.xml", "gone.jpg", GOOD_LINE)
    (tmp_path / "mets.xml").write_text("<mets/>")
    (tmp_path / "header.tif").write_bytes(b"II*\0\x08\0\0\0")
    with Image.open(good) as image:
        image.save(tmp_path / "two.tif", save_all=True, append_images=[image.transpose(Image.Transpose.ROTATE_180)])
    whole = (tmp_path / "two.tif").read_bytes()
    (tmp_path / "cut.tif").write_bytes(whole[: int(0.7 * len(whole))])
    with Image.open(good) as image:
        image.save(tmp_path / "three.tif", save_all=True, append_images=[image, image])
    whole = (tmp_path / "three.tif").read_bytes()
    (tmp_path / "half.tif").write_bytes(whole[: len(whole) // 2])  # the list of page 2 is cut: pages cannot be counted
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to("nowhere.png")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "empty").mkdir()
    result = run(model, "good.png", name, "-o", "out")
    assert result.exit_code == 1
    assert "1 could not be done:" in result.stderr
    assert says in result.stderr
    assert "good.txt" in files_in(tmp_path / "out")


def test_a_result_that_cannot_be_written_is_one_failure(model: Path, tmp_path: Path) -> None:
    files = make(tmp_path, ["a.png", "b.png"])
    (tmp_path / "out" / "a.txt").mkdir(parents=True)
    result = run(model, *files, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert f"cannot be written as {tmp_path / 'out' / 'a.txt'} (a folder has this name)" in result.stderr
    assert files_in(tmp_path / "out") == ["b.txt"]


def test_a_full_disk_stops_the_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, ["a.png", "b.png"])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spikehtr.pages.protected_results.whole_file", full)
    error = run(model, *files, "-o", tmp_path / "out").exception
    assert isinstance(error, SpikeHTRError)
    assert "No space left on device; make room, then go on with --resume" in str(error)


def test_a_name_that_is_no_unicode(model: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"p\xff.png")
    try:
        make(tmp_path, [odd, "q.png"])
    except OSError:
        pytest.skip("this disk takes no such names")
    for form in ("text", "json", "page", "alto", "hocr"):
        assert run(model, tmp_path / odd, "-o", tmp_path / form, "-f", form).exit_code == 0
        assert len(files_in(tmp_path / form)) == 1
    assert "==> p\ufffd <==" in run(model, tmp_path / odd, tmp_path / "q.png").stdout
