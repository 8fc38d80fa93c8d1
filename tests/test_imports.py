"""Arrows point one way: operators know no module, the network knows no kernel, nothing in the core goes in a circle."""

import ast
from pathlib import Path

import pytest

import spikehtr

ROOT = Path(spikehtr.__file__).parent
ONE_WAY = ("ops", "model", "baselines", "registry", "training", "export")  # packages that no circle may pass through


def name_of(path):
    return ".".join(("spikehtr", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}


def imports_of(path):
    """The package's own modules that a file imports, inside functions too; not what only the type checker reads."""
    found = set()

    def look(node):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:  # a module of the package, or a name in one
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
        for child in ast.iter_child_nodes(node):
            look(child)

    look(ast.parse(path.read_text(encoding="utf-8")))
    return found & MODULES.keys()


GRAPH = {name: imports_of(path) for name, path in MODULES.items()}


def reachable(start, graph):
    seen, todo = set(), list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return seen


def circles(graph):
    return {name for name in graph if name in reachable(name, graph)}


def part_of(name):
    return name.split(".")[1] if "." in name else ""


def test_no_circle_passes_through_the_core():
    assert {name for name in circles(GRAPH) if part_of(name) in ONE_WAY} == set()


def test_a_circle_would_be_seen():
    graph = GRAPH | {"spikehtr.ops.masks": {"spikehtr.model.mixer"}}
    assert "spikehtr.ops.masks" in circles(graph)


@pytest.mark.parametrize(
    ("package", "may"),
    [
        ("ops", {"ops", "errors", "text"}),
        ("model", {"model", "ops", "config", "errors", "text"}),
        ("baselines", {"baselines", "model", "ops", "config", "errors", "text"}),
    ],
)
def test_arrows_point_down(package, may):
    for name, used in GRAPH.items():
        if part_of(name) == package:
            assert {part_of(other) for other in used} <= may | {""}, name


def test_the_network_and_its_rivals_import_no_kernel():
    for name, used in GRAPH.items():
        if part_of(name) in ("model", "baselines"):
            assert not any(other.startswith(("spikehtr.ops.triton", "spikehtr.kernels")) for other in used), name
    assert not any(
        other.startswith("spikehtr.ops.triton")
        for name in GRAPH
        if name.startswith("spikehtr.ops.plain")
        for other in GRAPH[name]
    )


def test_the_model_stays_small():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "model").glob("*.py"))
    assert lines <= 1300
