import pytest

from spikehtr.data.origins import source_finder


@pytest.mark.parametrize(
    ("sources", "origin", "found"),
    [
        (["lines/a", "lines/b"], "lines/a/test.parquet, row 3", "lines/a"),
        (["lines/a", "lines/b"], "lines/b, row 3", "lines/b"),
        (["lines/a", "lines/ab"], "lines/ab/x.png", "lines/ab"),
        (["lines/a", "lines/b"], "lines/abc/x.png", "other"),
        (["lines", "lines/b"], "lines/b/x.png", "lines/b"),  # the innermost
        (["lines", "lines/b"], "lines/c/x.png", "lines"),
        (["./lines/", "b"], "lines/x.png", "./lines/"),  # as `Path` writes it
        (["page:lines/a", "store:b"], "lines/a/0001.xml, line 2", "page:lines/a"),
        ([".", "/data/b"], "x/1.png", "."),
        ([".", "/data/b"], "/data/b/1.png", "/data/b"),
        (["a.arrow", "b.arrow"], "lines/a/1.png", "other"),  # compiled from stores: the origins are older
        (["anything"], "lines/a/1.png", "anything"),
    ],
)
def test_a_line_is_of_the_source_its_origin_begins_with(sources, origin, found):
    assert source_finder(sources, "other")(origin) == found
