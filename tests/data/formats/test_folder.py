import pytest
from formats_help import draw, gather, kinds, write

from spikehtr.data.formats import folder
from spikehtr.data.formats.helpers import MAX_TRANSCRIPT
from spikehtr.data.formats.written import NOTES, digest_of
from spikehtr.pages.origins import Origins


def pair(path, text="Hello", ending=".gt.txt"):
    draw(path.with_suffix(".png"))
    write(path.with_suffix(ending), text)


def test_images_and_texts_in_any_tree_with_splits_by_folder(tmp_path):
    root = tmp_path / "set"
    pair(root / "a")
    pair(root / "train" / "doc" / "b", ending=".txt")
    pair(root / "val" / "c")
    samples, report = gather(folder.read, root)
    assert [(s.id, s.split, s.document) for s in samples] == [
        ("a", None, "set"),
        ("train/doc/b", "train", "doc"),
        ("val/c", "validation", None),
    ]
    assert samples[0].text == "Hello"
    assert samples[0].image == root / "a.png"
    assert not report.counts


def test_gt_txt_goes_before_txt(tmp_path):
    pair(tmp_path / "a", "right")
    write(tmp_path / "a.txt", "wrong")
    samples, report = gather(folder.read, tmp_path)
    assert [sample.text for sample in samples] == ["right"]
    assert not report.counts


def test_a_text_is_the_models_for_as_long_as_it_is_what_transcribe_wrote(tmp_path):
    root = tmp_path / "lines"
    for name in ("read", "mended", "sub/read"):
        pair(root / name, "as read\n", ending=".txt")
    pair(root / "theirs", "theirs", ending=".txt")
    pair(root / "truth", "as read\n", ending=".gt.txt")
    origins = Origins(root)
    for name in ("read", "mended", "sub/read", "truth.gt"):
        origins.note_written(f"{name}.txt", digest_of(b"another reading before"))
        origins.note_written(f"{name}.txt", digest_of(b"as read\n"))
    write(root / "mended.txt", "as written\n")
    samples, _ = gather(folder.read, root)
    machines = {"read": True, "mended": False, "sub/read": True, "theirs": False, "truth": False}
    assert {sample.id: sample.machine for sample in samples} == machines
    (root / NOTES).write_text("half a row\n[1]\n{}")
    assert not any(sample.machine for sample in gather(folder.read, root)[0])


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfHello", b"Hello\n", b"Hello\r\n\r\n", b"\nHello"])
def test_byte_order_marks_and_line_ends_are_no_part_of_the_text(tmp_path, text):
    pair(tmp_path / "a", text)
    samples, _ = gather(folder.read, tmp_path)
    assert [sample.text for sample in samples] == ["Hello"]


def test_control_characters_are_passed_on_for_the_check_to_flag(tmp_path):
    text = "bell\x07 feed\x0c nul\x00 line\u2028 over\u202e"
    pair(tmp_path / "a", text)
    samples, report = gather(folder.read, tmp_path)
    assert [sample.text for sample in samples] == [text]
    assert not report.counts


def test_a_text_that_is_not_utf8_is_named_with_its_byte(tmp_path):
    pair(tmp_path / "a", "été".encode("latin-1"))
    samples, report = gather(folder.read, tmp_path)
    assert not samples
    assert kinds(report) == {"wrong encoding": 1}
    assert report.problems[0].where == str(tmp_path / "a.gt.txt")
    assert "0xe9 at position 0" in report.problems[0].message


def test_a_text_of_several_lines_is_left_out_with_a_remedy(tmp_path):
    pair(tmp_path / "a", "one\ntwo\n")
    samples, report = gather(folder.read, tmp_path)
    assert not samples
    assert kinds(report) == {"several lines": 1}
    assert "cut the image" in report.problems[0].remedy


def test_whatever_has_no_partner_is_counted(tmp_path):
    pair(tmp_path / "good")
    pair(tmp_path / "empty", "")
    draw(tmp_path / "alone.png")
    write(tmp_path / "alone2.gt.txt", "text")
    write(tmp_path / "readme.txt", "text")
    samples, report = gather(folder.read, tmp_path)
    assert [sample.id for sample in samples] == ["good"]
    assert report.counts == {
        ("warning", "no text"): 1,
        ("error", "text missing"): 1,
        ("error", "image missing"): 1,
        ("warning", "text without image"): 1,
    }


def test_an_archive_named_txt_is_not_read_into_memory(tmp_path):
    pair(tmp_path / "a", b"x" * (MAX_TRANSCRIPT + 1))
    samples, report = gather(folder.read, tmp_path)
    assert not samples
    assert kinds(report) == {"unreadable text": 1}


def test_two_images_of_one_text_get_two_ids(tmp_path):
    pair(tmp_path / "a")
    draw(tmp_path / "a.jpg")
    samples, report = gather(folder.read, tmp_path)
    assert [sample.id for sample in samples] == ["a", "a~2"]
    assert kinds(report) == {"name used twice": 1}


def test_hidden_files_are_left_aside_and_loops_of_links_end(tmp_path):
    pair(tmp_path / "a")
    pair(tmp_path / ".cache" / "b")
    write(tmp_path / "._a.png")
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    samples, report = gather(folder.read, tmp_path)
    assert [sample.id for sample in samples] == ["a"]
    assert not report.counts


def test_recognised_only_with_an_image_and_its_text(tmp_path):
    draw(tmp_path / "a.png")
    assert not folder.recognises(tmp_path)
    assert not folder.recognises(tmp_path / "a.png")
    write(tmp_path / "a.txt", "x")
    assert folder.recognises(tmp_path)
