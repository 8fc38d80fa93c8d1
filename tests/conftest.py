"""What several tests need: small networks, drawn lines, and the real lines where they are at hand."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main
import typer.testing
from hypothesis import settings
from PIL import Image, ImageDraw, ImageFont

from spikehtr.assets import FONTS
from spikehtr.config import Config

settings.register_profile("spikehtr", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("spikehtr")
if not torch.cuda.is_available():  # before anything imports Triton: its interpreter runs the kernels on the CPU
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores; threads of theirs would only get in the way
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # and of the processes that tests start
# Tracing and Triton's interpreter make objects by the million, and a collection looks at all that tests have loaded.
gc.set_threshold(50_000, 20, 20)

LINES = Path(__file__).parents[2] / "shared" / "data" / "lines"  # open data sets, where they lie beside the checkout
MICRO = {
    "model.dim": 32,
    "model.height": 32,
    "model.positions": 32,
    "model.encoder.depths": [1, 1, 1],
    "model.encoder.expansion": 2.0,
    "model.encoder.norm_groups": 4,
    "model.mixer.blocks": ["LA", "QK", "LK"],
    "model.mixer.heads": 2,
    "model.mixer.mlp_ratio": 2.0,
    "model.mixer.lk_kernel": 7,
    "model.mixer.lk_expansion": 1.0,
}


FIRST = (  # files with the longest tests: begun last, one of them would run on alone when all others are done
    "cli/test_learning.py",
    "serve/test_hard_requests.py",
    "export/test_docs.py",
    "export/test_graph_lstm.py",
    "test_benchmarks.py",
    "test_unseen.py",
    "ops/test_network.py",
    "serve/browser/test_by_keyboard.py",
    "cli/test_transcribe.py",
    "cli/test_study.py",
    "profiling/test_step_timing.py",
)


@pytest.hookimpl(trylast=True)  # what is not to run has been taken out then
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The workers take turns with the files of `FIRST`, and each begins with its own: it is given one half of all."""
    places = {Path(__file__).parent / name: number for number, name in enumerate(FIRST)}
    late = [item for item in items if item.path not in places]
    early = sorted((item for item in items if item.path in places), key=lambda item: places[item.path])
    halves = [[item for item in early if places[item.path] % 2 == odd] for odd in (0, 1)]
    middle = max(0, len(items) // 2 - len(halves[0]))
    items[:] = [*halves[0], *late[:middle], *halves[1], *late[middle:]]


@pytest.fixture(scope="session", autouse=True)
def commands_are_made_once() -> Iterator[None]:
    """Typer makes all commands anew at every call in this process, which takes a tenth of a second."""
    made = cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", made)
        patch.setattr("typer.testing._get_command", made)
        yield


def micro(**overrides: object) -> Config:
    """A network small enough for a test; `__` in a keyword stands for a dot below `model`."""
    return Config().with_overrides(
        MICRO | {f"model.{key.replace('__', '.')}": value for key, value in overrides.items()}
    )


def ask_for(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    """As if SPIKEHTR_KERNELS had said so when the program began."""
    monkeypatch.setattr("spikehtr.ops.dispatch._asked", lambda: side)


@pytest.fixture
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """No TF32: a GPU's library may take it for one way's shapes and layouts and not for the other's."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.set_float32_matmul_precision("highest")  # training in a test before this one may have left another
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)


def draw_line(text: str, height: int = 32, seed: int = 0) -> np.ndarray:
    """A grey uint8 line of handwriting-like text on slightly noisy paper."""
    font = ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), int(height * 0.8))
    width = int(font.getlength(text)) + height // 2
    image = Image.new("L", (width, height), 230)
    ImageDraw.Draw(image).text((height // 4, height * 0.72), text, font=font, fill=40, anchor="ls")
    noise = np.random.default_rng(seed).normal(0, 3, (height, width))
    return (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)


def real_lines(name: str, split: str, count: int) -> list[tuple[Image.Image, str]]:
    """The first lines of one of the project's open data sets; skips the test where they are not there."""
    place = LINES / name / f"{split}.parquet"
    if not place.is_file():
        pytest.skip("the real lines are not here: shared/data/lines beside the checkout")
    import pyarrow.parquet as pq

    rows = next(pq.ParquetFile(place).iter_batches(count)).to_pylist()
    return [(Image.open(io.BytesIO(row["image"]["bytes"])), row["text"]) for row in rows]


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run makes and draws several figures, which others test: here they would take most of the time."""
    from matplotlib.figure import Figure

    dot = io.BytesIO()
    Image.new("L", (1, 1)).save(dot, "PNG")

    def save(self: Figure, file: Any, **_: object) -> None:
        if hasattr(file, "write"):
            file.write(dot.getvalue())
        else:
            Path(file).write_bytes(dot.getvalue())

    monkeypatch.setattr(Figure, "savefig", save)
    for name in ("spikehtr.evaluation.write_report.draw_reliability", "spikehtr.training.run_page.draw_curves"):
        monkeypatch.setattr(name, lambda _: Figure())


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Lines of drawn words to train on."""
    from spikehtr.data.compiling import compile_store
    from spikehtr.data.synth import synthesise

    place = tmp_path_factory.mktemp("lines")
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"], FONTS, 24, place / "made", height=24)
    return compile_store([place / "made"], place / "s.arrow", height=24)[0]
