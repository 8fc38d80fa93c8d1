from formats_help import PAGE_2013, draw, gather, page_line, write
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from spikehtr.data.formats import alto_xml, page_xml
from spikehtr.pages.given import read_given

ALTO = "http://www.loc.gov/standards/alto/ns-v4#"


def page_file(order: str, *regions: str) -> str:
    return (
        f'<PcGts xmlns="{PAGE_2013}"><Page imageFilename="p.png" imageWidth="100" imageHeight="200">'
        f"<ReadingOrder>{order}</ReadingOrder>{''.join(regions)}</Page></PcGts>"
    )


def region(name: str, *lines: str) -> str:
    lines = lines or (page_line(f"{name}-1", name), page_line(f"{name}-2", name))
    return f'<TextRegion id="{name}">{"".join(lines)}</TextRegion>'


def refs(*names: str) -> str:
    """References that stand the other way round than their indices."""
    numbered = reversed(list(enumerate(names)))
    return "".join(f'<RegionRefIndexed index="{index}" regionRef="{name}"/>' for index, name in numbered)


def names(text: str) -> list[str]:
    return [line.id for line in page_xml.parse(etree.fromstring(text)).lines]


@given(st.permutations("abcde"), st.integers(0, 5))
def test_regions_come_as_the_order_has_them_and_the_others_after_them_as_they_stand(order, named):
    first = order[:named]
    text = page_file(f'<OrderedGroup id="g">{refs(*first)}</OrderedGroup>', *map(region, "abcde"))
    expected = [*first, *(name for name in "abcde" if name not in first)]
    assert names(text) == [f"{name}-{number}" for name in expected for number in (1, 2)]


def test_groups_within_groups_are_followed():
    inner = f'<OrderedGroupIndexed id="i" index="0">{refs("c", "a")}</OrderedGroupIndexed>'
    unordered = '<UnorderedGroupIndexed id="u" index="1"><RegionRef regionRef="d"/></UnorderedGroupIndexed>'
    text = page_file(
        f'<OrderedGroup id="g"><RegionRefIndexed index="2" regionRef="b"/>{unordered}{inner}</OrderedGroup>',
        *(region(name, page_line(name)) for name in "abcd"),
    )
    assert names(text) == ["c", "a", "d", "b"]


def test_a_region_within_another_goes_with_it_unless_it_is_named():
    nested = region("x", page_line("x1"), region("y", page_line("y1")), page_line("x2"))
    regions = nested, region("z", page_line("z1"))
    assert names(page_file(f'<OrderedGroup id="g">{refs("z", "x")}</OrderedGroup>', *regions)) == [
        "z1",
        "x1",
        "y1",
        "x2",
    ]
    order = f'<OrderedGroup id="g">{refs("y", "z", "x")}</OrderedGroup>'
    assert names(page_file(order, *regions)) == ["y1", "z1", "x1", "x2"]


def test_names_of_nothing_and_an_empty_order_do_no_harm():
    regions = region("a", page_line("a1")), region("b", page_line("b1"))
    assert names(page_file("", *regions)) == ["a1", "b1"]
    assert names(page_file(f'<OrderedGroup id="g">{refs("gone", "b", "b")}</OrderedGroup>', *regions)) == ["b1", "a1"]


def test_alto_orders_blocks_and_lines():
    def line(name: str) -> str:
        return f'<TextLine ID="{name}" HPOS="1" VPOS="1" WIDTH="9" HEIGHT="9"><String CONTENT="{name}"/></TextLine>'

    text = (
        f'<alto xmlns="{ALTO}"><ReadingOrder><OrderedGroup ID="g"><ElementRef ID="e1" REF="b2"/>'
        f'<ElementRef ID="e2" REF="l2"/><ElementRef ID="e3" REF="b1"/></OrderedGroup></ReadingOrder>'
        f'<Layout><Page WIDTH="10" HEIGHT="10"><PrintSpace><TextBlock ID="b1">{line("l1")}{line("l2")}</TextBlock>'
        f'<TextBlock ID="b2">{line("l3")}</TextBlock></PrintSpace></Page></Layout></alto>'
    )
    assert [found.id for found in alto_xml.parse(etree.fromstring(text)).lines] == ["l3", "l2", "l1"]


def test_pages_are_read_and_learned_from_in_that_order(tmp_path):
    draw(tmp_path / "p.png", (100, 200))
    text = page_file(f'<OrderedGroup id="g">{refs("b", "a")}</OrderedGroup>', region("a"), region("b"))
    file = write(tmp_path / "p.xml", text)
    found = read_given(file)
    assert [(one.id, [line.id for line in one.lines]) for one in found.regions] == [
        ("b", ["b-1", "b-2"]),
        ("a", ["a-1", "a-2"]),
    ]
    samples, _ = gather(page_xml.read, file)
    assert [sample.text for sample in samples] == ["b", "b", "a", "a"]
