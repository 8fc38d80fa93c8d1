from hypothesis import given
from hypothesis import strategies as st

from spikehtr.evaluation.confusions import confusions
from spikehtr.evaluation.rates import character_edits, total


def counted(found, kind):
    return [(c["reference"], c["read"], c["count"]) for c in found["confusions"][kind]]


def test_confusions_by_hand():
    found = confusions([("rnan", "rnau"), ("nun", "uun"), ("cat", "ca"), ("ox", "oxe"), ("bat", "but"), ("on", "on")])
    assert counted(found, "substitutions") == [("n", "u", 2), ("a", "u", 1)]
    assert counted(found, "deletions") == [("t", None, 1)]
    assert counted(found, "insertions") == [(None, "e", 1)]
    assert found["errors"] == {"all": 5, "substitutions": 3, "deletions": 1, "insertions": 1}
    assert found["confusions"]["substitutions"][0]["share"] == 2 / 5
    assert found["characters"][0] == {"character": "n", "count": 5, "errors": 2, "rate": 0.4}
    assert [(c["character"], c["errors"]) for c in found["characters"][1:4]] == [("a", 1), ("t", 1), ("b", 0)]
    assert "e" not in [c["character"] for c in found["characters"]]  # it was only ever inserted


def test_lengths_come_in_bins():
    lines = [("", "x"), ("a" * 19, "a" * 19), ("a" * 20, "a" * 19), ("a" * 100, "a" * 98 + "bb")]
    found = [tuple(b.values()) for b in confusions(lines)["lengths"]]
    assert found == [(0, 19, 2, 1, 19, 1 / 19), (20, 39, 1, 1, 20, 1 / 20), (80, None, 1, 2, 100, 2 / 100)]
    assert confusions([("", "x")])["lengths"][0]["rate"] is None


def test_no_lines_no_confusions():
    found = confusions([])
    assert found["errors"]["all"] == 0
    assert not any(found["confusions"].values())
    assert found["characters"] == found["lengths"] == []


@given(st.lists(st.tuples(st.text("abé ", max_size=30), st.text("abé ", max_size=30)), max_size=6))
def test_confusions_add_up_to_the_edits(pairs):
    edits = total(character_edits(*pair) for pair in pairs)
    found = confusions(pairs)
    for kind in ("substitutions", "deletions", "insertions"):
        counts = [c["count"] for c in found["confusions"][kind]]
        assert sum(counts) == found["errors"][kind] == getattr(edits, kind)
        assert counts == sorted(counts, reverse=True)
    assert sum(c["errors"] for c in found["characters"]) == edits.substitutions + edits.deletions
    assert sum(c["count"] for c in found["characters"]) == edits.length
    assert sum(b["lines"] for b in found["lengths"]) == len(pairs)
    assert sum(b["errors"] for b in found["lengths"]) == edits.errors
