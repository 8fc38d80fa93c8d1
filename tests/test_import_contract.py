"""The import contract holds, and fails when a circle or an arrow up is put in."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def contract():
    spec = importlib.util.spec_from_file_location("check_imports", ROOT / "tools" / "check_imports.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def verdict(contract, tmp_path):
    """A package of these files, checked: what is wrong."""

    def checked(files):
        for name, text in {"__init__.py": "", **files}.items():
            file = tmp_path / "spikehtr" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return contract.check(contract.module_names(tmp_path))

    return checked


def test_the_tree_keeps_the_contract(contract):
    assert contract.check(contract.module_names(ROOT / "src")) == []


def test_imports_downwards_and_sideways_are_fine(verdict):
    files = {"cli/a.py": "import spikehtr.model.b", "model/b.py": "from spikehtr.model import c", "model/c.py": ""}
    assert verdict(files) == []


@pytest.mark.parametrize(
    "how",
    [
        "from spikehtr.training.b import f",
        "from spikehtr.training import b",
        "import spikehtr.training.b",
        "from ..training.b import f",
        "from ..training import b",
        "def f():\n    from spikehtr.training import b",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from spikehtr.training import b",
    ],
)
def test_an_arrow_up_is_found_however_it_is_written(verdict, how):
    wrong = verdict({"model/a.py": how, "training/__init__.py": "", "training/b.py": "f = 1"})
    assert wrong == ["spikehtr.model.a -> spikehtr.training.b: points up between layers"]


def test_a_circle_is_found_also_through_functions(verdict):
    files = {
        "data/a.py": "from spikehtr.data import b",
        "data/b.py": "from spikehtr.data import c",
        "data/c.py": "def f():\n    from spikehtr.data.a import g",
        "data/d.py": "from spikehtr.data import a",  # leads into the circle and is no part of it
    }
    assert verdict(files) == ["import circle: spikehtr.data.a, spikehtr.data.b, spikehtr.data.c"]


def test_an_import_for_types_closes_no_circle(verdict):
    later = "import typing\nif typing.TYPE_CHECKING:\n    from spikehtr.data import a"
    assert verdict({"data/a.py": "from spikehtr.data import b", "data/b.py": later}) == []
    otherwise = "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    from spikehtr.data import a"
    assert verdict({"data/b.py": otherwise}) == ["import circle: spikehtr.data.a, spikehtr.data.b"]


def test_a_network_may_not_import_a_kernel(verdict):
    wrong = verdict({"model/a.py": "from spikehtr.ops.triton import b", "ops/triton/b.py": "", "ops/c.py": ""})
    assert wrong == ["spikehtr.model.a -> spikehtr.ops.triton.b: model may not import ops.triton"]
    assert verdict({"model/a.py": "from spikehtr.ops import c"}) == []


def test_no_test_file_imports_another():
    """What they share is in conftest.py and in `*_help.py` files."""
    files = [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if file.name != "test_heightpool.py"]
    names = {file.stem for file in files}
    for file in files:
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not names & {node.module for node in nodes}, file


def test_a_module_without_a_layer_is_named(verdict):
    assert verdict({"attic.py": ""}) == ["spikehtr.attic: has no layer; add it to LAYERS"]
