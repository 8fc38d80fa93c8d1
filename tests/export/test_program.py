"""The torch.export file against the network it was made from, with a small encoder in the real one's place."""

import json

import pytest
from export_help import exported, images, same_lines
from export_help import simple as _simple  # noqa: F401 (a fixture that every test here takes)

from spikehtr.errors import SpikeHTRError
from spikehtr.export.program import read
from spikehtr.export.tracing import need
from spikehtr.recognizer import Recognizer


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return exported(tmp_path_factory, "torch", ".pt2", timesteps=1, mixer__blocks=["QK"])


def test_the_file_reads_what_the_model_reads(files):
    model, file = Recognizer.load(files[0]), read(files[1])
    for batch_size in (1, 5):
        ours = model.transcribe(images(), batch_size)
        assert all(line.text for line in ours)
        same_lines(ours, file.transcribe(images(), batch_size))
    assert file.config == model.config
    check = json.loads(files[2])["check"]
    assert check["identical"] == check["lines"] == 5


def test_the_file_does_not_tell_where_it_was_made(files):
    assert b"/src/spikehtr" not in files[1].read_bytes()


def test_what_is_no_exported_file_is_named(tmp_path):
    (tmp_path / "noise.pt2").write_bytes(bytes(range(256)))
    for name, says in (("nowhere", "no such file"), ("noise.pt2", "not a program")):
        with pytest.raises(SpikeHTRError, match=rf"{name}: .*{says}"):
            read(tmp_path / name)


def test_a_missing_package_is_named_with_the_remedy():
    with pytest.raises(SpikeHTRError, match=r"no_such_package is not installed: pip install 'spikehtr\[export\]'"):
        need("json", "no_such_package")
