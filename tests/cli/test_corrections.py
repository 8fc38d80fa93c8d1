"""The loop an archivist lives in, through the command line: read, correct some lines, fine-tune, read the rest."""

import json
import os
import re
import shutil

import pytest
from cli_help import run

from pages_help import TEXTS, save_random, simple_page

HOW = ("--device", "cpu", "--segmenter", "rules")
SHORT = ("--max-steps", 2, "-s", "data.workers=0", "-s", "training.batch_size=4", "--device", "cpu", "--worst", 0)
LINE = re.compile(r"<TextLine .*?</TextLine>|<TextLine .*?/>", re.DOTALL)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two pages of eleven lines, and a third of the rest; what a small model reads on the two, by format."""
    made = tmp_path_factory.mktemp("drawn")
    save_random(made / "model.safetensors")
    for folder, names in (("scans", ("p1", "p2")), ("rest", ("p3",))):
        (made / folder).mkdir()
        for number, name in enumerate(names):
            simple_page(11, size=(1000, 1200), seed=number)[0].save(made / folder / f"{name}.png")
    for form in ("page", "alto"):
        shutil.copytree(made / "scans", made / form)
        transcribe(made, form, form)
    return made


@pytest.fixture
def place(drawn, tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    shutil.copytree(drawn, tmp_path / "place")
    return tmp_path / "place"


def results(place, form):
    """The two pages that were read, with their scans, as the folder `scans`."""
    shutil.rmtree(place / "scans")
    (place / form).rename(place / "scans")
    return sorted((place / "scans").glob("*.xml"))


def transcribe(place, form, folder, model="model.safetensors"):
    done = run("transcribe", place / folder, "-m", place / model, "-f", form, "-o", place / folder, *HOW)
    assert done.returncode == 0, done.stderr
    return sorted((place / folder).glob("*.xml"))


def read_again(place, form, model, written):
    """The very command that wrote the results which a person has corrected since: it leaves each, and says so."""
    scans = sorted((place / "scans").glob("*.png"))
    done = run("transcribe", *scans, "-m", place / model, "-f", form, "-o", place / "scans", *HOW)
    assert done.returncode == 1, done.stderr
    named = "".join(f"\n  {file}" for file in written)
    assert re.search(rf"2 results left alone, changed since written \(.*\):{re.escape(named)}\n", done.stderr)
    assert {file: file.read_bytes() for file in written} == written


def edit(file, changes, only_words=False):
    """As in a text editor that sets the time of the last change back: the text of some lines, by their number."""
    times, text = file.stat(), file.read_text(encoding="utf-8")
    lines = LINE.findall(text)
    for number, wanted in changes.items():
        old = lines[number]
        if "<alto" in text:  # the first string holds the line, the others go
            kept = re.sub(r'(<String [^>]*CONTENT=")[^"]*(")', rf"\g<1>{wanted}\g<2>", old, count=1)
            first, rest = (
                re.split(r"(?<=</String>)|(?<=/>)(?=\s*<SP)", kept, maxsplit=1) if "<SP" in kept else (kept, "")
            )
            new = first + re.sub(r"<SP.*(?=</TextLine>)", "", rest, flags=re.DOTALL)
        else:
            spot = old.rfind("<Unicode>", 0, old.find("</Word>") if only_words else len(old))
            new = old[:spot] + re.sub(r"<Unicode>[^<]*<", f"<Unicode>{wanted}<", old[spot:], count=1)
        assert new != old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def correct(files):
    for file in files:
        edit(file, {number: TEXTS[number % 4] for number in range(5)})


def train(place, *more):
    return run(
        "train", "-d", place / "scans", "--from", place / "model.safetensors", "-o", place / "run", *SHORT, *more
    )


@pytest.mark.parametrize("form", ["page", "alto"])
def test_corrected_lines_are_learned_from_and_the_others_left_out(place, form):
    files = results(place, form)
    assert len(files) == 2
    nothing = train(place)
    assert nothing.returncode == 2
    assert "all 22 lines are as the model read them, so that none is left: correct some, or confirm" in nothing.stderr
    correct(files)
    written = {file: file.read_bytes() for file in files}
    read_again(place, form, "model.safetensors", written)
    told = "12 of 22 lines are as the model read them: left out; --machine-lines takes them"
    checked = run("data", "check", place / "scans", "--from", place / "model.safetensors")
    assert told in checked.stdout.splitlines()
    done = train(place)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout.splitlines()
    assert "all 10 are trained on, too few to hold any out to validate: no score will be given" in done.stdout
    assert "10 lines to train on, 0 to validate" in done.stdout
    assert "all 10 lines were trained on, so there is no score" in done.stdout
    data = json.loads((place / "run" / "data.json").read_text())
    assert (data["trained_on"], data["validated_on"], data["left_out_as_machine_read"]) == (10, 0, 12)
    assert set("".join(TEXTS)) <= set(data["characters"])
    judged = run("evaluate", place / "run" / "best.safetensors", "-d", place / "scans", "--split", "all", "--json")
    read = json.loads(judged.stdout)["predictions"]
    assert sorted(line["reference"] for line in read) == sorted(2 * [*TEXTS, TEXTS[0]])
    (rest,) = transcribe(place, form, "rest", "run/best.safetensors")
    assert len(LINE.findall(rest.read_text(encoding="utf-8"))) == 11
    read_again(place, form, "run/best.safetensors", written)


def test_machine_lines_are_taken_on_demand_and_never_validated_on(place):
    correct(results(place, "page"))
    done = train(place, "--machine-lines")
    assert done.returncode == 0, done.stderr
    assert "all 22 are trained on; the 10 that are not a model's: too few to hold any out" in done.stdout
    assert json.loads((place / "run" / "job.json").read_text())["machine_lines"] is True
    again = run("train", "-o", place / "run", "--resume", "--device", "cpu")
    assert again.returncode == 0, again.stderr
    assert "22 lines to train on, 0 to validate" in again.stdout
    kept = run("data", "compile", place / "scans", "-o", place / "all.arrow", "--machine-lines")
    assert "22 lines (22 none)" in kept.stdout
    kept = run("data", "compile", place / "scans", "-o", place / "some.arrow")
    assert kept.returncode == 0
    assert "12 of 22 lines are as the model read them: left out; --machine-lines takes them" in kept.stdout


def test_a_word_corrected_while_its_line_was_not_is_told(place):
    files = results(place, "page")
    correct(files)
    edit(files[0], {7: "corrected"}, only_words=True)
    done = train(place)
    assert done.returncode == 0, done.stderr
    assert "12 of 22 lines are as the model read them" in done.stdout
    told = "1 line was corrected in its words or region, but not in the line's own text, which is what counts: correct"
    assert told in done.stdout
    listed = run("data", "check", "--all", place / "scans", "--from", place / "model.safetensors").stdout
    assert "corrected elsewhere: 1 line" in listed
    assert re.search(r"its words say 'corrected\b.*', but the line itself '", listed)


def test_a_page_is_confirmed_by_a_word_in_its_file(place):
    first, _ = results(place, "page")
    text = first.read_text(encoding="utf-8")
    first.write_text(text.replace("<Page ", '<Page custom="confirmed {}" '), encoding="utf-8")
    done = run("data", "compile", place / "scans", "-o", place / "s.arrow")
    assert done.returncode == 0, done.stderr
    assert "s.arrow: 11 lines" in done.stdout
    assert "11 of 22 lines are as the model read them: left out" in done.stdout


def test_lines_with_given_ids_come_back_from_a_program_that_drops_all_notes(place):
    """Lines found by eScriptorium: their ids must stay, and it writes ids and texts alone."""
    found = run("transcribe", place / "rest", "--lines-only", "-o", place / "rest", *HOW)
    assert found.returncode == 0, found.stderr
    (page,) = (place / "rest").glob("*.xml")
    page.write_text(re.sub(r'id="r1l(\d+)"', r'id="eSc_line_\1"', page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copy(place / "rest" / "p3.png", place / "scans")
    done = run("transcribe", page, "-m", place / "model.safetensors", "-f", "page", "-o", place / "scans")
    assert done.returncode == 0, done.stderr
    (read,) = (place / "scans").glob("*.xml")
    text = read.read_text(encoding="utf-8")
    assert text.count('<TextLine id="eSc_line_') == 11
    text = re.sub(r"<!--.*?-->|<Word .*?</Word>| custom=\"[^\"]*\"", "", text, flags=re.DOTALL)
    read.write_text(re.sub("<Creator>.*</Creator>", "<Creator>escriptorium</Creator>", text), encoding="utf-8")
    edit(read, {3: "corrected"})
    kept = run("data", "compile", place / "scans", "-o", place / "s.arrow")
    assert "10 of 11 lines are as the model read them: left out; --machine-lines takes them" in kept.stdout
