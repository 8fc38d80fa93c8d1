from formats_help import draw, gather, page_line, page_xml, write

from spikehtr.data.formats import page_xml as reader


def make(root, part, images, pages, name):
    draw(root / part / images / f"{name}.JPG", (100, 200))
    write(root / part / pages / f"{name}.xml", page_xml(page_line(), image=f"{name}.JPG"))


def test_the_archives_as_they_unpack(tmp_path):
    root = tmp_path / "read"
    make(root, "PublicData/Training", "Images", "page", "Seite0001")
    make(root, "PublicData/Validation", "Images/Images", "page/page", "Seite0002")
    make(root, "Test-ICFHR-2016", "", "page", "Seite0003")
    assert reader.recognises_read2016(root)
    samples, report = gather(reader.read, root)
    assert {sample.id: (sample.split, sample.document) for sample in samples} == {
        "Seite0001/l1": ("train", "Seite0001"),
        "Seite0002/l1": ("validation", "Seite0002"),
        "Seite0003/l1": ("test", "Seite0003"),
    }
    assert not report.counts


def test_the_nearest_folder_gives_the_split(tmp_path):
    make(tmp_path, "Train-And-Val-ICFHR-2016/PublicData/Validation", "Images", "page", "a")
    samples, _ = gather(reader.read, tmp_path)
    assert [sample.split for sample in samples] == ["validation"]


def test_page_files_outside_such_folders_are_not_taken_for_it(tmp_path):
    make(tmp_path, "letters", "Images", "page", "a")
    assert not reader.recognises_read2016(tmp_path)
