from hypothesis import given
from hypothesis import strategies as st

from spikehtr.data.formats.helpers import UniqueNames, rows
from spikehtr.data.samples import ImportReport


@given(st.lists(st.sampled_from(["a", "a~2", "a~2~2", "b", ""]) | st.text(max_size=2)))
def test_names_come_out_unique_and_every_change_is_reported(names):
    report, unique = ImportReport(), UniqueNames()
    given_names = [unique.take(name, "x", report) for name in names]
    assert len(set(given_names)) == len(names)
    assert report.count("warning") == sum(a != b for a, b in zip(names, given_names, strict=True))


def test_one_name_a_hundred_thousand_times_is_quick():
    unique = UniqueNames()
    report = ImportReport(keep=1)
    assert [unique.take("a", "x", report) for _ in range(100_000)][-1] == "a~100000"


def test_rows_pass_over_blanks_and_comments_and_name_what_they_cannot_decode(tmp_path):
    (tmp_path / "list").write_bytes(b"# no\n\na\r\n\xff\nb")
    report = ImportReport()
    assert list(rows(tmp_path / "list", report)) == [(3, "a"), (5, "b")]
    assert report.problems[0].where.endswith("list, row 4")


def test_a_row_without_end_is_not_held_whole(tmp_path):
    (tmp_path / "list").write_bytes(b"x" * 300_000)
    assert max(len(row) for _, row in rows(tmp_path / "list", ImportReport())) < 70_000


def test_a_missing_list_is_reported(tmp_path):
    report = ImportReport()
    assert not list(rows(tmp_path / "none", report))
    assert report.count("error") == 1
