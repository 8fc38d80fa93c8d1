from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spikehtr.files import take_free_name
from spikehtr.pages.digests import sealed
from spikehtr.pages.origins import FILE, Origins
from spikehtr.pages.protected_results import FileState, LeftAsItIs, ProtectedResults


def results(folder: Path, overwrite: bool = False) -> ProtectedResults:
    """As another run has them, with nothing in memory."""
    return ProtectedResults(folder, Origins(folder), overwrite)


def write(at: ProtectedResults, name: str, content: bytes) -> None:
    with at.writing(at.folder / name) as temporary:
        temporary.write_bytes(content)


def test_what_stands_there(tmp_path: Path) -> None:
    (tmp_path / "theirs.txt").write_text("theirs")
    (tmp_path / "a.xml").write_bytes(sealed("<PcGts/>\n", "page") + b" ")
    write(results(tmp_path), "ours.txt", b"ours")
    write(results(tmp_path), "changed.txt", b"ours")
    (tmp_path / "changed.txt").write_bytes(b"our")
    names = ("none.txt", "ours.txt", "changed.txt", "theirs.txt", "a.xml")
    states = [results(tmp_path).state(tmp_path / name) for name in names]
    assert states == [FileState.FREE, FileState.OURS, FileState.CHANGED, FileState.FOREIGN, FileState.CHANGED]
    (tmp_path / "ours.txt").chmod(0o400)
    assert results(tmp_path).state(tmp_path / "ours.txt") is FileState.READ_ONLY
    os.mkfifo(tmp_path / "pipe.txt")
    assert results(tmp_path).state(tmp_path / "pipe.txt") is FileState.FOREIGN
    with pytest.raises(IsADirectoryError):
        results(tmp_path.parent).state(tmp_path)


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(results(tmp_path), "a.txt", b"")
    assert results(tmp_path).state(tmp_path / "a.txt") is FileState.OURS
    (tmp_path / "a.txt").write_text("by hand")
    known = results(tmp_path)

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # a superuser reads whatever the modes say
    assert known.state(tmp_path / "a.txt") is FileState.CHANGED


@pytest.mark.parametrize("name", ["a.txt", "a.xml"])
def test_an_earlier_result_that_somebody_put_back_is_theirs(name: str, tmp_path: Path) -> None:
    form = "text" if name == "a.txt" else "page"
    first, second = (sealed(f"<a>{number}</a>\n", form) for number in (1, 2))  # type: ignore[arg-type]
    for content in (first, second):
        write(results(tmp_path), name, content)
    assert results(tmp_path).state(tmp_path / name) is FileState.OURS
    (tmp_path / name).write_bytes(first)
    with pytest.raises(LeftAsItIs, match="changed"):
        write(results(tmp_path), name, second)
    assert (tmp_path / name).read_bytes() == first


def test_a_seal_makes_up_for_a_lost_note(tmp_path: Path) -> None:
    """A kill, or a full disk, between the result and its note."""
    first, second = (sealed(f"<a>{number}</a>\n", "page") for number in (1, 2))
    write(results(tmp_path), "a.xml", first)
    notes = (tmp_path / FILE).read_bytes()
    write(results(tmp_path), "a.xml", second)
    (tmp_path / FILE).write_bytes(notes + b'\n{"file": "a.xml", "dig')
    assert results(tmp_path).state(tmp_path / "a.xml") is FileState.OURS
    (tmp_path / "a.xml").write_bytes(second.replace(b"2", b"3"))
    assert results(tmp_path).state(tmp_path / "a.xml") is FileState.CHANGED


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_disk_without_hard_links_will_do(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", none)
    for content in (b"1", b"2"):
        write(results(tmp_path), "a.txt", content)
    (tmp_path / "a.txt").write_bytes(b"by hand")
    with pytest.raises(LeftAsItIs):
        write(results(tmp_path), "a.txt", b"3")
    write(results(tmp_path, overwrite=True), "a.txt", b"4")
    assert [(tmp_path / name).read_bytes() for name in ("a.txt", "a.txt.bak")] == [b"4", b"by hand"]
    with pytest.raises(FileExistsError):
        take_free_name(tmp_path / "a.txt", tmp_path / "a.txt.bak")


def test_another_error_of_a_link_is_no_leave_to_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(results(tmp_path), "a.txt", b"1")
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        write(results(tmp_path), "a.txt", b"2")
    monkeypatch.undo()
    assert (tmp_path / "a.txt").read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["a.txt"]


def test_the_longest_names_can_be_kept_too(tmp_path: Path) -> None:
    name = "ä" * 125 + ".txt"  # 254 bytes
    for content in (b"1", b"2"):
        write(results(tmp_path), name, content)
    (tmp_path / name).write_bytes(b"by hand")
    at = results(tmp_path, overwrite=True)
    write(at, name, b"3")
    ((path, backup),) = at.backups
    assert path.name == name
    assert backup.read_bytes() == b"by hand"


def test_two_runs_see_what_each_other_noted(tmp_path: Path) -> None:
    one, other = results(tmp_path), results(tmp_path)
    for at, content in ((one, b"1"), (other, b"2"), (one, b"3")):
        write(at, "a.txt", content)
    assert (tmp_path / "a.txt").read_bytes() == b"3"
    (tmp_path / "a.txt").write_bytes(b"2")
    for at in (one, other):
        with pytest.raises(LeftAsItIs):
            write(at, "a.txt", b"4")
