from pathlib import Path

import pytest

from spikehtr.pages import origins
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.origins import FILE, Origins
from spikehtr.pages.result_names import ResultNames
from spikehtr.results.page import Page


def scan(file: Path, content: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    return file


def test_what_was_noted_holds_for_the_next_run_whatever_a_kill_left(tmp_path: Path) -> None:
    one, other = scan(tmp_path / "x" / "a\tb\udcff.png", "1"), scan(tmp_path / "y" / "a.png", "2")
    Origins(tmp_path).note("A", one)
    with (tmp_path / FILE).open("a") as file:
        file.write('\n["c"]\n7\n["b", "/half')  # as a kill leaves it
    again = Origins(tmp_path)
    again.note("q", one)
    again.note("a", one)
    assert len((tmp_path / FILE).read_text().splitlines()) == 6, "noted once"
    for name in ("a.txt", "b.txt", "q.txt"):
        (tmp_path / name).touch()
    again = Origins(tmp_path)
    assert again.another("a", other)
    assert again.another("q", other)
    assert again.owns("a", one)
    assert not again.another("a", one)
    assert not again.another("b", other)
    (tmp_path / "a.txt").unlink()
    assert not again.another("a", other), "a note without a result keeps no name"


def test_a_source_is_known_by_its_path_or_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    file = scan(tmp_path / "x" / "a.png", "1")
    Origins(tmp_path).note("a", file)
    scan(file, "scanned again")
    assert Origins(tmp_path).owns("a", file)
    file.unlink()
    assert Origins(tmp_path).owns("a", scan(tmp_path / "moved" / "a.png", "1"))
    assert Origins(tmp_path).another("a", scan(tmp_path / "next" / "a.png", "2")), (
        "the first is gone, and this is not it"
    )


def test_a_source_keeps_the_name_it_got(tmp_path: Path) -> None:
    boxes = [scan(tmp_path / box / "1.png", box) for box in ("x", "y", "z")]

    def names(*files: Path) -> list[str]:
        origins = Origins(tmp_path)
        found, taken = find_sources(map(str, files)).sources, ResultNames(origins)
        given = [taken._take(source.place.stem, source.origin) for source in found]
        for name, file in zip(given, files, strict=True):
            (tmp_path / f"{name}.txt").touch()
            origins.note(name, file)
        return given

    assert names(boxes[0]) == ["1"]
    assert names(boxes[1]) == ["1~2"]
    assert names(boxes[1], boxes[0]) == ["1~2", "1"]
    boxes[0].unlink()
    assert names(boxes[1]) == ["1~2"]
    assert names(boxes[2]) == ["1~3"]


@pytest.mark.parametrize("same", [True, False])
def test_a_page_file_is_the_page_it_names(same: bool, tmp_path: Path) -> None:
    """Lines are found, mended beside a copy of the scan, and read: one page all the way."""
    image = scan(tmp_path / "scans" / "a.png", "pixels")
    (tmp_path / "a.xml").touch()
    Origins(tmp_path).note("a", image)
    scan(tmp_path / "mended" / "a.png", "pixels" if same else "others")
    (tmp_path / "mended" / "a.xml").write_text(Page("a.png", 40, 30, ()).to_page(), encoding="utf-8")
    (source,), _, _ = find_sources([str(tmp_path / "mended" / "a.xml")])
    assert source.origin == tmp_path / "mended" / "a.png"
    assert ResultNames(Origins(tmp_path))._take("a", source.origin) == ("a" if same else "a~2")


def test_without_a_folder_nothing_is_noted_and_trouble_ends_nothing(tmp_path: Path) -> None:
    origins = Origins(None)
    origins.note("a", tmp_path / "a.png")
    assert not origins.another("a", tmp_path / "b.png")
    (tmp_path / FILE).mkdir()  # cannot be written
    origins = Origins(tmp_path)
    origins.note("a", tmp_path / "a.png")
    assert origins.trouble is not None
    assert FILE in origins.trouble


def test_what_fails_in_a_folder_that_cannot_be_locked_is_told_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise NotImplementedError("no locks on this disk")

    monkeypatch.setattr(origins.FileLock, "acquire", refused)
    kept = origins.Origins(tmp_path)
    with pytest.raises(ValueError, match="mine") as caught, kept.lock():
        raise ValueError("mine")
    assert caught.value.__context__ is None
    assert "no locks on this disk" in str(kept.trouble)
