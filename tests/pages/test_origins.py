from pathlib import Path

import pytest

from spikehtr.pages.origins import FILE, Origins


def test_what_was_noted_holds_for_the_next_run_whatever_a_kill_left(tmp_path: Path) -> None:
    one, other = tmp_path / "x" / "a\tb\udcff.png", tmp_path / "y" / "a.png"
    for file in (one, other):
        file.parent.mkdir()
        file.touch()
    Origins(tmp_path).note("A", one)
    with (tmp_path / FILE).open("a") as file:
        file.write('["b", "/half\n["c"]\n7\n')
    again = Origins(tmp_path)
    assert again.another("a", other)
    assert not again.another("a", one)
    assert not again.another("b", other)
    again.note("a", one)
    assert len((tmp_path / FILE).read_text().splitlines()) == 4, "noted once"
    again.note("a", other)  # who writes it anyway has it from then on
    assert Origins(tmp_path).another("a", one)
    one.unlink()
    assert not Origins(tmp_path).another("a", other)
    other.rename(tmp_path / "a.png")
    assert not Origins(tmp_path).another("a", tmp_path / "a.png"), "moved"


@pytest.mark.parametrize(("name", "another"), [("a.xml", False), ("a.png", False), ("a.tif", True), ("b.xml", True)])
def test_an_image_and_the_xml_file_of_its_name_are_one_page(name: str, another: bool, tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    Origins(tmp_path).note("a", tmp_path / "a.png")
    assert Origins(tmp_path).another("a", tmp_path / name) is another


def test_without_a_folder_nothing_is_noted(tmp_path: Path) -> None:
    origins = Origins(None)
    origins.note("a", tmp_path / "a.png")
    assert not origins.another("a", tmp_path / "b.png")
