"""The code in docs/how-to/export.md, run as it stands: it prints what the model reads."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from export_help import exported, simplify
from PIL import Image

from conftest import draw_line
from spikehtr.assets import SAMPLE_LINE
from spikehtr.export import program
from spikehtr.recognizer import Recognizer
from spikehtr.weights import Loaded, load_model

DOCS = (Path(__file__).parents[2] / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
BLOCKS = {
    ("onnx" if "onnxruntime" in code else "torch"): code for code in re.findall(r"```python\n(.*?)```", DOCS, re.S)
}


def sloping_line(file: Path) -> None:
    """A line that climbs: read as it is and made level, it is not the same."""
    gray = Image.fromarray(draw_line("spiking hand and ink", height=40))
    wide = Image.new("L", (gray.width, 90), 230)
    wide.paste(gray, (0, 45))
    wide.transform(wide.size, Image.Transform.AFFINE, (1, 0, 0, 0.12, 1, 0), fillcolor=230).save(file)


def run(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sloping_line(folder / "line.png")
    Image.open(SAMPLE_LINE).save(folder / "another.png")
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(BLOCKS[kind], "docs/how-to/export.md", "exec"), {})
    return printed.getvalue().splitlines()


def write(kind: str, model: Loaded, folder: Path) -> None:
    if kind == "onnx":
        from spikehtr.export import onnx

        onnx.save(model, folder / "best.onnx")
    else:
        program.save(model, folder / "best.pt2")


@pytest.fixture(scope="session", params=["onnx", "torch"])
def small(request, tmp_path_factory):
    """A small network that makes lines level, and its file (those of test_onnx.py and test_program.py)."""
    if request.param == "onnx":
        for name in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(name, reason="the extra `export` is not installed")
        return "onnx", *exported(tmp_path_factory, "onnx", ".onnx", timesteps=1, mixer__blocks=["LA"])[:2]
    return "torch", *exported(tmp_path_factory, "torch", ".pt2", timesteps=1, mixer__blocks=["QK"])[:2]


@pytest.mark.slow
def test_the_documented_code_prints_what_the_model_reads(small, tmp_path, monkeypatch):
    kind, model_file, file = small
    simplify(monkeypatch)
    shutil.copy(file, tmp_path / f"best{file.suffix}")
    printed = run(kind, tmp_path, monkeypatch)
    lines = [tmp_path / "line.png", tmp_path / "another.png"]
    model = Recognizer.load(model_file, precision="fp32")
    assert model.config.data.straighten
    assert printed == [line.text for line in model.transcribe(lines)]
    assert all(printed)
    crooked = Recognizer.load(model_file, precision="fp32", straighten=False)
    assert crooked.transcribe(lines[0]).text != printed[0]  # so the preparation is what makes the difference


def test_lines_are_prepared_without_torch():
    code = "import sys, spikehtr.export.preparing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow  # a minute or two to make each file
@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_the_documented_code_reads_with_the_bundled_model(kind, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    model = load_model("bundled")
    write(kind, model, tmp_path)
    printed = run(kind, tmp_path, monkeypatch)
    expected = Recognizer.load("bundled", precision="fp32").transcribe(tmp_path / "another.png").text
    assert printed[1] == expected
