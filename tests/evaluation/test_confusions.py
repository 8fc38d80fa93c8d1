import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.confusions import CharacterErrors, LengthBin, confusions
from spikehtr.evaluation.rates import Edits, character_edits, total


def test_confusions_by_hand():
    found = confusions([("rnan", "rnau"), ("nun", "uun"), ("cat", "ca"), ("ox", "oxe"), ("bat", "but"), ("on", "on")])
    assert list(found.substitutions.items()) == [(("n", "u"), 2), (("a", "u"), 1)]
    assert found.deletions == {"t": 1}
    assert found.insertions == {"e": 1}
    assert found.characters[:4] == (
        CharacterErrors("n", 2, 5),
        CharacterErrors("a", 1, 3),
        CharacterErrors("t", 1, 2),
        CharacterErrors("b", 0, 1),
    )
    assert found.characters[0].rate == 0.4
    assert "e" not in [c.character for c in found.characters]  # it was only ever inserted


def test_length_bins():
    lines = [("", "x"), ("abc", "abc"), ("abcd", "abc"), ("a" * 30, "a" * 28 + "bb")]
    assert confusions(lines, (4, 8, 16)).lengths == (
        LengthBin(0, 3, 2, Edits(0, 0, 1, 3)),
        LengthBin(4, 7, 1, Edits(0, 1, 0, 4)),
        LengthBin(16, None, 1, Edits(2, 0, 0, 30)),
    )
    assert confusions(lines, ()).lengths == (LengthBin(0, None, 4, Edits(2, 1, 1, 37)),)


@pytest.mark.parametrize("bins", [(0, 10), (20, 10), (10, 10)])
def test_length_bins_must_rise(bins):
    with pytest.raises(SpikeHTRError, match="length bins must start above 0 and rise"):
        confusions([], bins)


def test_no_lines_no_confusions():
    found = confusions([])
    assert (found.substitutions, found.deletions, found.insertions) == ({}, {}, {})
    assert found.characters == found.lengths == ()


@given(st.lists(st.tuples(st.text("abé ", max_size=12), st.text("abé ", max_size=12)), max_size=6))
def test_confusions_add_up_to_the_edits(pairs):
    edits = total(character_edits(*pair) for pair in pairs)
    found = confusions(pairs, (3, 6))
    assert sum(found.substitutions.values()) == edits.substitutions
    assert sum(found.deletions.values()) == edits.deletions
    assert sum(found.insertions.values()) == edits.insertions
    assert sum(c.errors for c in found.characters) == edits.substitutions + edits.deletions
    assert sum(c.count for c in found.characters) == edits.length
    assert total(b.edits for b in found.lengths) == edits
    for counts in (found.substitutions, found.deletions, found.insertions):
        assert list(counts.values()) == sorted(counts.values(), reverse=True)
