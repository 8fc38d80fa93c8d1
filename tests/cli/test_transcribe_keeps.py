"""What a person wrote stays, through the command line: read, corrected, read again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pages_help import save_random, simple_page
from spikehtr.cli import app
from spikehtr.data.formats.xml import sniff
from spikehtr.pages.origins import FILE, SUFFIX, Format
from spikehtr.results.page import Page

FORMS: list[Format] = list(SUFFIX)
SEALED = [form for form in FORMS if form != "text"]
QUICK = ("page", "text")  # the other formats are slow


def some(forms: list[Format]) -> list[Any]:
    return [form if form in QUICK else pytest.param(form, marks=pytest.mark.slow) for form in forms]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random(tmp_path_factory.mktemp("model") / "random.safetensors")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    (tmp_path / "scans").mkdir()
    for seed, name in enumerate("ab"):
        simple_page(1, seed=seed, size=(700, 300))[0].save(tmp_path / "scans" / f"{name}.png")
    return tmp_path / "scans"


def lines(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["transcribe", "--lines-only", *map(str, arguments)])


def edit(path: Path, old: bytes = b"", new: bytes = b" ") -> bytes:
    """As an editor that keeps every time stamp; returns what the file holds then."""
    stamps, before = path.stat(), path.read_bytes()
    after = before.replace(old, new, 1) if old else before + new
    assert after != before
    path.write_bytes(after)
    os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert path.stat().st_mtime_ns == stamps.st_mtime_ns
    return after


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("form", some(FORMS))
def test_a_corrected_result_is_left_named_and_counted(form: Format, beside: bool, model: Path, scans: Path) -> None:
    out = scans if beside else scans.parent / "out"
    arguments = ["transcribe", *map(str, sorted(scans.glob("*.png"))), "-f", form, "-o", str(out)]
    arguments += ["--device", "cpu", "-m", str(model)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    corrected, other = (out / f"{name}{SUFFIX[form]}" for name in "ab")
    edited = edit(corrected, new=b"by hand\n")
    unread = other.stat().st_ino
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1
    assert corrected.read_bytes() == edited
    assert other.stat().st_ino != unread, "what nobody changed is read again"
    assert "1 page, " in again.stderr
    title = "1 result left alone, changed since written (--overwrite replaces such files and keeps a backup):"
    assert f"{title}\n  {corrected}\n" in again.stderr
    resumed = CliRunner().invoke(app, [*arguments, "--resume"])
    assert resumed.exit_code == 0, "to leave what is there is what was asked for"
    assert "2 pages there already, 1 of them changed since written" in resumed.stderr
    forced = CliRunner().invoke(app, [*arguments, "--overwrite"])
    assert forced.exit_code == 0
    backup = corrected.with_name(f"{corrected.name}.bak")
    assert f"{corrected}: replaced; what stood there is kept as {backup}" in forced.stderr
    assert backup.read_bytes() == edited != corrected.read_bytes()
    assert sorted(path.name for path in out.glob("*.bak*")) == [backup.name], "what is ours needs no backup"


@pytest.mark.parametrize("form", some(SEALED))
def test_an_edit_is_known_in_a_moved_or_copied_folder_and_without_the_notes(
    form: Format, model: Path, scans: Path
) -> None:
    def read(pages: Path, folder: Path) -> Result:
        how = ["-m", model, "--device", "cpu"] if form == "iiif" else ["--lines-only"]  # which has no text to give
        return CliRunner().invoke(app, ["transcribe", *map(str, [pages, "-f", form, "-o", folder, *how])])

    out, suffix = scans.parent / "out", SUFFIX[form]
    assert read(scans, out).exit_code == 0
    edited = edit(out / f"a{suffix}", b"spikehtr", b"spikeHTR")
    shutil.copytree(out, scans.parent / "copy")
    shutil.copytree(out, scans.parent / "bare", ignore=shutil.ignore_patterns(".*"))
    out.rename(scans.parent / "moved")
    scans.rename(scans.parent / "pages")
    for place in ("copy", "bare", "moved"):
        folder = scans.parent / place
        ours = (folder / f"b{suffix}").stat().st_ino
        result = read(scans.parent / "pages", folder)
        assert result.exit_code == 1
        assert "1 result left alone, changed since written" in result.stderr
        assert (folder / f"a{suffix}").read_bytes() == edited
        assert (folder / f"b{suffix}").stat().st_ino != ours


def test_plain_text_without_its_notes_counts_as_not_ours(model: Path, scans: Path) -> None:
    out = scans.parent / "out"
    arguments = ["transcribe", str(scans), "-o", str(out), "-m", str(model), "--device", "cpu"]
    assert CliRunner().invoke(app, arguments).exit_code == CliRunner().invoke(app, arguments).exit_code == 0
    (out / FILE).unlink()
    kept = {path: path.read_bytes() for path in out.glob("*.txt")}
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert (
        f"2 files left alone, not known as ours: by another program or an earlier version, or {FILE}" in result.stderr
    )
    assert {path: path.read_bytes() for path in out.glob("*.txt")} == kept


@pytest.mark.parametrize(("form", "content"), [("page", "<PcGts/>"), ("alto", "<alto/>"), ("json", "{}"), ("hocr", "")])
@pytest.mark.parametrize("beside", [True, False])
def test_a_file_of_others_is_left(form: Format, content: str, beside: bool, scans: Path) -> None:
    out = scans if beside else scans.parent / "out"
    out.mkdir(exist_ok=True)
    theirs = out / f"a{SUFFIX[form]}"
    theirs.write_text(content)
    images = sorted(scans.glob("*.png"))
    result = lines(*images, "-f", form, "-o", out)
    assert result.exit_code == 1
    assert "1 file left alone, not known as ours" in result.stderr
    assert theirs.read_text() == content
    assert (out / f"b{SUFFIX[form]}").is_file()
    assert lines(*images, "-f", form, "-o", out, "--overwrite").exit_code == 0
    assert theirs.with_name(f"{theirs.name}.bak").read_text() == content


def test_what_earlier_versions_wrote_is_left(scans: Path) -> None:
    """PAGE and ALTO had the same name, and neither bore a seal."""
    out = scans.parent / "out"
    out.mkdir()
    (out / "a.xml").write_text(Page("a.png", 700, 300, ()).to_alto())
    (out / "b.xml").write_text(Page("b.png", 700, 300, ()).to_page())
    before = {path: path.read_bytes() for path in out.glob("*.xml")}
    result = lines(scans, "-f", "page", "-o", out)
    assert result.exit_code == 1
    assert "2 files left alone, not known as ours" in result.stderr
    assert {path: path.read_bytes() for path in out.glob("*.xml")} == before


def test_page_and_alto_lie_in_one_folder_and_a_page_is_read_once(scans: Path) -> None:
    for form in ("page", "alto"):
        assert lines(*sorted(scans.glob("*.png")), "-f", form, "-o", scans).exit_code == 0
    assert [sniff(scans / name) for name in ("a.xml", "a.alto.xml")] == ["PcGts", "alto"]
    result = lines(scans, "-f", "json", "-o", scans.parent / "out")
    assert result.exit_code == 0
    assert "2 pages, 2 lines" in result.stderr
    remark = f"{scans / 'a.alto.xml'}: passed over, a.xml is of the same page; name it alone to read it"
    assert remark in result.stderr
    assert sorted(path.name for path in (scans.parent / "out").glob("*.json")) == ["a.json", "b.json"]
    assert lines(scans / "a.alto.xml", "-f", "page", "-o", scans.parent / "pages").exit_code == 0
    assert sniff(scans.parent / "pages" / "a.xml") == "PcGts"
    (scans / "a.xml").rename(scans / "mine.xml")
    result = lines(scans, "-f", "json", "-o", scans.parent / "again")
    both = f"{scans / 'mine.xml'}, {scans / 'a.alto.xml'}"
    assert f"{both}: of the same page, which is read by each of them" in result.stderr


def test_a_backup_is_never_replaced(scans: Path) -> None:
    out = scans.parent / "out"
    arguments = (scans / "a.png", "-o", out, "--overwrite")
    kept = []
    for _ in range(3):
        assert lines(*arguments).exit_code == 0
        kept.append(edit(out / "a.xml"))
    assert lines(*arguments).exit_code == 0
    assert [(out / f"a.xml.bak{number}").read_bytes() for number in ("", 2, 3)] == kept


def test_a_read_only_file_is_left_even_with_overwrite(scans: Path) -> None:
    out = scans.parent / "out"
    assert lines(scans, "-o", out).exit_code == 0
    (out / "a.xml").chmod(0o444)
    before = (out / "a.xml").read_bytes()
    for options in ([], ["--overwrite"]):
        result = lines(scans, "-o", out, *options)
        assert result.exit_code == 1
        title = "1 file left alone, read-only (make it writable, or give another folder):"
        assert f"{title}\n  {out / 'a.xml'}" in result.stderr
        assert (out / "a.xml").read_bytes() == before
        assert not list(out.glob("*.bak*"))


@pytest.mark.parametrize("call", ["touch", "replace"])
def test_without_room_for_a_backup_nothing_is_replaced(call: str, scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = scans.parent / "out"
    assert lines(scans, "-o", out).exit_code == 0
    edited = edit(out / "a.xml")
    real = getattr(Path, call)

    def full(path: Path, *arguments: object, **options: object) -> object:
        if any(".bak" in str(one) for one in (path, *arguments)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, call, full)
    result = lines(scans / "a.png", "-o", out, "--overwrite")
    assert result.exit_code == 1
    assert (
        f"no backup of {out / 'a.xml'} can be made (No space left on device), so it was left as it is" in result.stderr
    )
    assert (out / "a.xml").read_bytes() == edited
    assert not list(out.glob("*.bak*"))


def test_a_full_disk_while_the_new_result_is_written_leaves_the_old_one(
    scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = scans.parent / "out"
    assert lines(scans, "-o", out).exit_code == 0
    edited = edit(out / "a.xml")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    error = lines(scans / "a.png", "-o", out, "--overwrite").exception
    assert "No space left on device; make room, then run it again" in str(error)
    assert (out / "a.xml").read_bytes() == edited
    assert sorted(path.name for path in out.glob("[!.]*")) == ["a.xml", "b.xml"]
    assert not list(out.glob(".*.tmp"))


def test_an_overlay_of_others_is_left_and_the_page_read_all_the_same(scans: Path) -> None:
    out = scans.parent / "out"
    out.mkdir()
    (out / "a.overlay.png").write_bytes(b"a drawing")
    result = lines(scans, "-o", out, "--overlay")
    assert result.exit_code == 1
    assert "1 file left alone, not known as ours" in result.stderr
    assert (out / "a.overlay.png").read_bytes() == b"a drawing"
    assert (out / "a.xml").is_file()
    with Image.open(out / "b.overlay.png") as drawn:
        before = drawn.size
    (out / "a.overlay.png").unlink()
    assert lines(scans, "-o", out, "--overlay").exit_code == 0, "our own are replaced"
    with Image.open(out / "b.overlay.png") as drawn:
        assert drawn.size == before


def test_a_link_is_followed_and_what_it_leads_to_is_kept(scans: Path) -> None:
    out, real = scans.parent / "out", scans.parent / "real.xml"
    out.mkdir()
    real.write_text("by hand")
    (out / "a.xml").symlink_to(real)
    assert lines(scans / "a.png", "-o", out).exit_code == 1
    assert real.read_text() == "by hand"
    result = lines(scans / "a.png", "-o", out, "--overwrite")
    assert result.exit_code == 0
    assert (out / "a.xml").is_symlink()
    assert sniff(real) == "PcGts"
    assert (scans.parent / "real.xml.bak").read_text() == "by hand"
    assert f"kept as {scans.parent / 'real.xml.bak'}" in result.stderr


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "spikehtr", "transcribe", "--lines-only", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_runs_at_once_and_a_person_at_work(tmp_path: Path) -> None:
    """Two boxes whose scans have the same names, one folder of results, read again and again, and an editor in it."""
    out, rounds = tmp_path / "out", 4
    for box in ("x", "y"):
        (tmp_path / box).mkdir()
        for number in range(8):
            page = simple_page(1, seed=number + 100 * (box == "y"), size=(400, 200))[0]
            page.save(tmp_path / box / f"{number}.png")
    written: dict[Path, bytes] = {}
    over = threading.Event()

    def work() -> None:
        count = 0
        while not over.wait(0.01):
            files = sorted(out.glob("*.xml"))
            file = files[count % len(files)] if files else None
            if file is None or file in written or count % 3 == 0:
                count += 1
                continue
            swap = tmp_path / "swap"
            written[file] = f"by hand {count}".encode()
            swap.write_bytes(written[file])
            swap.replace(file)
            count += 1
            time.sleep(0.3)

    editor = threading.Thread(target=work)
    editor.start()
    try:
        for _ in range(rounds):
            both = [start(tmp_path / box, "-o", out) for box in ("x", "y")]
            for process in both:
                _, told = process.communicate(timeout=300)
                assert process.returncode in (0, 1), told
    finally:
        over.set()
        editor.join()
    assert written, "nobody wrote anything"
    for file, content in written.items():
        assert file.read_bytes() == content
    names = {path.name for path in out.glob("*.xml")}
    assert names == {f"{number}{again}.xml" for number in range(8) for again in ("", "~2")}, "a result for each scan"
    for row in filter(None, (out / FILE).read_text().splitlines()):
        json.loads(row)
