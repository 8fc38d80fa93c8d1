import pytest

from spikehtr.cli.options import writable
from spikehtr.files import whole_file


@pytest.mark.parametrize(
    "name", ["short.txt", "ж" * 125 + ".txt", "🖋" * 62 + ".txt", "a" * 255], ids=["short", "cyrillic", "emoji", "latin"]
)
def test_any_name_that_a_file_may_have_can_be_written(tmp_path, name):
    """255 bytes is the most that file systems take."""
    target = writable(tmp_path / name)
    with whole_file(target) as temporary:
        temporary.write_text("old")
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_two_files_whose_names_begin_alike_are_written_at_once(tmp_path):
    one, two = tmp_path / ("a" * 100 + "1"), tmp_path / ("a" * 100 + "2")
    with whole_file(one) as first, whole_file(two) as second:
        first.write_text("1")
        second.write_text("2")
    assert (one.read_text(), two.read_text()) == ("1", "2")


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old")

    def fail():
        with whole_file(target) as temporary:
            temporary.write_text("half")
            raise EOFError

    with pytest.raises(EOFError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_whoever_may_read_other_files_may_read_these(tmp_path):
    (tmp_path / "plain").touch()
    with whole_file(tmp_path / "private") as temporary:
        temporary.touch(mode=0o600)
    assert (tmp_path / "private").stat().st_mode == (tmp_path / "plain").stat().st_mode
