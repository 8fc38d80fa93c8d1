import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset
from spikehtr.training.datasets import _drawn
from spikehtr.training.finetune import change_charset, starting_weights
from spikehtr.weights import Loaded

letters = st.text("abcdefgh", min_size=1)


@given(letters, st.lists(letters, min_size=1))
def test_modes_keep_extend_and_replace_the_characters(known, texts):
    charset, found = Charset.from_texts([known]), set("".join(texts))
    kept = change_charset(charset, texts, "keep")
    assert (kept.charset, kept.added, kept.dropped) == (charset, [], [])
    extended = change_charset(charset, texts, "extend")
    assert set(extended.charset.characters) == set(known) | found
    assert extended.charset.characters[: len(charset) - 1] == charset.characters  # labels of the old ones stay
    replaced = change_charset(charset, texts, "replace")
    assert set(replaced.charset.characters) == found
    assert set(replaced.added) == set(extended.added) == found - set(known)
    assert set(replaced.dropped) == set(known) - found


def test_the_message_lists_what_changes():
    said = change_charset(Charset(("a", "b")), ["bc"], "replace").message
    assert said == "2 characters; added 1: 'c' (U+0063); dropped 1: 'a' (U+0061)"
    assert change_charset(Charset(("a",)), ["a"], "extend").message == "1 characters; none added, none dropped"


@pytest.fixture(scope="module")
def loaded():
    torch.manual_seed(5)
    config = micro(timesteps=1)
    charset = Charset(("a", "b", "c"))
    return Loaded(SpikeHTR(config.model, 4), config, charset, {})


@pytest.mark.parametrize("characters", [("a", "b", "c"), ("a", "b", "c", "x"), ("c", "y", "a"), ("x",)])
def test_known_characters_keep_their_rows_and_all_else_is_the_model_s(loaded, characters):
    charset = Charset(characters)
    start, remark = starting_weights(loaded, loaded.config, charset)
    assert remark is None
    net = SpikeHTR(loaded.config.model, len(charset))
    net.load_state_dict(start)
    old = loaded.net.head.linear
    assert torch.equal(net.head.linear.weight[0], old.weight[0])  # the blank
    for label, character in enumerate(characters, start=1):
        if character in loaded.charset:
            source = loaded.charset.encode(character)[0]
            assert torch.equal(net.head.linear.weight[label], old.weight[source])
            assert torch.equal(net.head.linear.bias[label], old.bias[source])
        else:
            assert not (net.head.linear.weight[label] == old.weight[:, None]).all(-1).any()
    rest = {name: value for name, value in loaded.net.state_dict().items() if not name.startswith("head.linear")}
    assert all(torch.equal(start[name], value) for name, value in rest.items())


def test_a_network_of_another_size_is_refused(loaded):
    wider = loaded.config.with_overrides({"model.dim": 48})
    with pytest.raises(SpikeHTRError, match=r"does not fit the weights .* \d+% of the network could be kept"):
        starting_weights(loaded, wider, loaded.charset)


CHANGES = {
    "neuron": ({"model.neuron": "gelu"}, None),
    "timesteps": ({"model.timesteps": 2}, None),
    "fusion": (
        {"model.encoder.dual_resolution": False},
        "100.0% of the network's weights are those of the start; fresh: none; of the start not used: encoder.fusion",
    ),
    "block": ({"model.mixer.blocks": ["LA", "QK", "LK", "LA"]}, "fresh: mixer.blocks.3.operator.norm.weight"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_network_keeps_what_fits_and_says_so(loaded, change):
    overrides, says = CHANGES[change]
    config = loaded.config.with_overrides(overrides)
    start, remark = starting_weights(loaded, config, loaded.charset)
    net = SpikeHTR(config.model, len(loaded.charset))
    net.load_state_dict(start)
    assert (remark is None) == (says is None)
    assert says is None or says in remark
    old = loaded.net.state_dict()
    shared = [name for name in start if name in old]
    assert all(torch.equal(start[name], old[name]) for name in shared)
    assert net(torch.rand(1, 1, 32, 40)).logits.isfinite().all()


@given(st.integers(1, 40), st.integers(0, 3))
def test_fewer_lines_are_among_more_of_the_same_seed(count, seed):
    rows = np.arange(100, 130)
    config = Config().with_overrides({"training.seed": seed, "data.train_lines": count})
    some = _drawn(rows, config, [])
    more = _drawn(rows, config.with_overrides({"data.train_lines": count + 1}), [])
    assert len(set(some)) == len(some) == min(count, 30)
    assert set(some) <= set(more) <= set(rows)
    assert list(some) == sorted(some)
    assert list(_drawn(rows, config.with_overrides({"data.train_lines": 0}), [])) == list(rows)
