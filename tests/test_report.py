import base64
from pathlib import Path

import pytest
from lxml import html as parser
from matplotlib.figure import Figure
from PIL import Image

from spikehtr import __version__, version
from spikehtr.errors import SpikeHTRError
from spikehtr.report import Fragment, HtmlReport, environment, marked
from spikehtr.version import code_digest, training_digest

HOSTILE = "<script>alert(\"1\")</script> & 'x'"


def read(report):
    return parser.fromstring(report.html())


def full():
    report = HtmlReport(HOSTILE)
    report.heading(HOSTILE)
    report.text(HOSTILE)
    report.code(HOSTILE)
    report.table([HOSTILE, "n"], [[HOSTILE, 1.5], ["b", None]], "lr")
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([1, 2])
    report.figure(figure, HOSTILE, HOSTILE)
    with report.details(HOSTILE):
        report.text(marked(HOSTILE, [0, 1]))
    report.foot({HOSTILE: HOSTILE})
    return report


def test_everything_is_escaped_and_nothing_comes_from_outside():
    text = full().html()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 12  # title and foot twice, each other place once; the marked one is cut
    addresses = [value for element in read(full()).iter() for name, value in element.items() if name in ("src", "href")]
    assert len(addresses) == 1
    assert addresses[0].startswith("data:image/png;")
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_has_what_was_put_in_it_in_order():
    page = read(full())
    body = [element.tag for element in page.body]
    assert body == ["h1", "h2", "p", "pre", "div", "figure", "details", "footer"]
    assert page.find(".//h2").text == HOSTILE
    rows = [[cell.text for cell in row] for row in page.iterfind(".//tr")]
    assert rows[1][1:] == ["1.5"]
    assert rows[2] == ["b", "None"]
    assert [cell.get("class") for cell in page.iterfind(".//td")] == [None, "r", None, "r"]
    assert page.find(".//details/summary") is not None
    assert page.find(".//details/p//mark") is not None
    assert page.find(".//meta[@name='viewport']") is not None
    assert "prefers-color-scheme: dark" in page.find(".//style").text


def test_pictures_are_in_the_page(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "dot.png")
    png = (tmp_path / "dot.png").read_bytes()
    report = HtmlReport("one")
    report.figure(png, 'a "dot"', "below")
    image = read(report).find(".//img")
    assert base64.b64decode(image.get("src").removeprefix("data:image/png;base64,")) == png
    assert image.get("alt") == 'a "dot"'
    assert read(report).find(".//figcaption").text == "below"


def test_details_close_also_after_an_error():
    report = HtmlReport("one")
    with pytest.raises(ValueError, match="inside"), report.details("more"):
        raise ValueError("inside")
    report.text("after")
    assert [element.tag for element in read(report).body] == ["h1", "details", "p"]


@pytest.mark.parametrize(
    ("text", "places", "shown"),
    [
        ("abc", [], "abc"),
        ("abc", [1], "a<mark>b</mark>c"),
        ("abcd", [0, 1, 3], "<mark>ab</mark>c<mark>d</mark>"),
        ("a b <", [1, 4], "a<mark>\u2423</mark>b <mark>&lt;</mark>"),
        ("ab", [1, 2, 7], "a<mark>b</mark>"),  # beyond the end there is nothing to mark
        ("", [0], ""),
    ],
)
def test_marks(text, places, shown):
    made = marked(text, places)
    assert isinstance(made, Fragment)
    assert made == f'<span class="mono" dir="auto">{shown}</span>'


def test_saved_whole_or_an_error_that_names_the_file(tmp_path):
    full().save(tmp_path / "r.html")
    assert parser.parse(str(tmp_path / "r.html")).find(".//h1") is not None
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    odd = HtmlReport("a lone surrogate: \ud800")
    odd.save(tmp_path / "r.html")
    assert "a lone surrogate: \\ud800" in (tmp_path / "r.html").read_text()
    with pytest.raises(SpikeHTRError, match=r"no/r\.html: cannot be written"):
        full().save(tmp_path / "no" / "r.html")


def test_environment_names_program_and_device():
    facts = environment("cpu")
    assert facts["spikehtr"] == __version__
    assert facts["code"] == code_digest()
    assert facts.keys() == {"spikehtr", "code", "python", "torch", "platform", "device"}
    assert all(isinstance(value, str) and value for value in facts.values())


def test_the_digest_is_of_the_code_and_of_nothing_else(tmp_path):
    def written(name, text):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        code_digest.cache_clear()
        return code_digest(tmp_path)

    first = written("a.py", "x = 1\n")
    assert len(first) == 12
    assert written("notes.txt", "no code") == first
    seen = {first, written("sub/b.yaml", "x: 1"), written("sub/b.yaml", "x: 2"), written("a.py", "x = 2\n")}
    assert len(seen) == 4
    before = code_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "c.py")
    code_digest.cache_clear()
    assert code_digest(tmp_path) != before, "a name counts"


def test_the_digest_of_training_is_of_what_trainings_follow_from(tmp_path):
    def written(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        training_digest.cache_clear()
        return training_digest(tmp_path)

    first = written("model/a.py", "x = 1\n")
    assert written("serve/app.py", "y = 1\n") == first
    assert written("config/presets.py", "p = 1\n") == first, "settings are recorded with each run"
    seen = {first, written("training/b.py", ""), written("model/a.py", "x = 2\n"), written("text.py", "z = 1\n")}
    assert len(seen) == 4
    assert training_digest() != code_digest()
    package = Path(version.__file__).parent
    assert all((package / name).exists() for name in (*version._TRAINING, *version._TRAINING_FILES, version._PRESETS))
