"""What the export tests share: a small reader whose texts are not empty, lines for it, and files made only once."""

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from filelock import FileLock
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from conftest import ask_for, draw_line, micro
from spikehtr import Recognizer, SpikeHTR
from spikehtr.cli import app
from spikehtr.model.masking import shrink
from spikehtr.text import Charset
from spikehtr.weights import Loaded, save_model

CHARSET = Charset.from_texts(["abcdefghijk"])
WORDS = ["ink", "a rather long line", "so", "spiking", "hand"]


class Columns(nn.Module):
    """In the encoder's place: a token is a linear map of its own 4 columns, dimmer at each step."""

    def __init__(self, config):
        super().__init__()
        self.timesteps = config.timesteps
        self.linear = nn.Linear(config.in_channels * config.height * 4, config.dim)

    def forward(self, images, widths):
        columns = images.unflatten(3, (-1, 4)).permute(0, 3, 1, 2, 4).flatten(2)  # [B, L0, C*H*4]
        z = self.linear(columns)
        return torch.stack([z / (step + 1) for step in range(self.timesteps)]), shrink(widths, 4)


def simplify(patch):
    """Networks with `Columns` for their encoder, which takes most of the time that a file takes to make."""
    patch.setattr("spikehtr.model.spike_htr.Encoder", Columns)
    ask_for(patch, "reference")  # fast paths do not know it


def images(words=WORDS):
    return [draw_line(word, height=40, seed=i) for i, word in enumerate(words)]


def loaded(seed=0, **overrides):
    """A micro network that has learnt nothing, but whose reducer has work to do and whose frames are not all blank."""
    torch.manual_seed(seed)
    config = micro(**{"reducer__eta": 9.0, "reducer__gamma": 0.4, **overrides})
    net = SpikeHTR(config.model, len(CHARSET)).eval()
    with torch.no_grad():
        net.head.linear.weight *= 6
        for name, value in net.named_parameters():  # so that no parameter is at a value that hides it
            if "norm" in name or name.endswith(("logit", "alpha", "logits")):
                value += 0.3 * torch.randn_like(value)
    return Loaded(net, config, CHARSET, {"seed": seed})


def reader(model):
    return Recognizer(model.net, model.config, model.charset)


def place(tmp_path_factory):
    """A folder for the whole session, the same for every worker."""
    base = Path(tmp_path_factory.getbasetemp())
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True)
def simple(monkeypatch):
    """For every test of a module that imports it: files made by `exported` are read by the networks they hold."""
    simplify(monkeypatch)


def exported(tmp_path_factory, kind, suffix, *flags, **overrides):
    """Model file, exported file and what the command printed: made by the command, with --check, once a session."""
    folder = place(tmp_path_factory) / f"exported-{kind}{''.join(flags)}"
    with FileLock(f"{folder}.lock"), pytest.MonkeyPatch.context() as patch:
        simplify(patch)
        if not (folder / "told.json").exists():
            (folder / "lines").mkdir(parents=True)
            rows = [{"image": {"bytes": png(image)}, "text": word} for image, word in zip(images(), WORDS, strict=True)]
            pq.write_table(pa.Table.from_pylist(rows), folder / "lines" / "lines.parquet")
            model = loaded(**overrides)
            model = model._replace(config=model.config.with_overrides({"data.straighten": True}))
            save_model(folder / "m.safetensors", model.net, model.config, model.charset, model.notes)
            args = ["export", kind, folder / "m.safetensors", *flags]
            args += ["--check", folder / "lines", "--split", "all", "--json"]
            done = CliRunner(env={"SPIKEHTR_CACHE": str(folder / "cache")}).invoke(app, list(map(str, args)))
            assert done.exit_code == 0, (done.output, done.exception)
            (folder / "told.json").write_text(done.stdout)
    return folder / "m.safetensors", folder / f"m{suffix}", (folder / "told.json").read_text()


def png(image):
    data = io.BytesIO()
    Image.fromarray(image).save(data, "PNG")
    return data.getvalue()


def same_lines(ours, theirs, tolerance=1e-4):
    """Texts and places exactly, confidences nearly."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.text == b.text
        assert [c[2:] for c in a.characters] == [c[2:] for c in b.characters]
        assert abs(a.confidence - b.confidence) < tolerance
