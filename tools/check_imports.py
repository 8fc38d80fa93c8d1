"""The import contract of `src/spikehtr`, part of `make lint`: no circle between modules, no arrow up between layers.

Imports inside functions count as those at the top do. Those under TYPE_CHECKING are never run: they close no circle,
but may not point up either.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "spikehtr"
# From the bottom up; a name stands for itself and all below it. A module may import its own layer and those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("architectures", "assets", "config", "errors", "files", "plotting", "report", "text", "version"),
    ("ops",),
    ("baselines", "model", "registry"),
    ("data", "decoding", "readers", "results", "weights"),
    ("evaluation", "export", "kraken_plugin", "pages", "profiling", "recognizer", "training"),
    ("__init__", "__main__", "bulk", "cli", "serve", "studies"),
)
# Beyond the layers: a network has one forward pass, and does not know what makes it fast.
FORBIDDEN = (("model", "ops.triton"),)


class Import(NamedTuple):
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported}"


def module_names(root: Path, package: str = PACKAGE) -> dict[str, Path]:
    """Every module's name and file; a package goes by its own name."""
    found = {}
    for file in sorted((root / package).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(name: str, file: Path, modules: Collection[str]) -> tuple[set[Import], set[Import]]:
    """What a module imports of ours: when it or one of its functions runs, and for type checkers only."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    running: set[Import] = set()
    typing: set[Import] = set()
    for node, for_types in _nodes(ast.parse(file.read_text(encoding="utf-8")), False):
        found = {target for target in _targets(node, package, modules) if target != name}
        (typing if for_types else running).update(Import(name, target) for target in found)
    return running, typing - running


def _nodes(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it stands under `if TYPE_CHECKING`."""
    yield node, for_types
    if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
        for child in node.body:
            yield from _nodes(child, True)
        for child in node.orelse:
            yield from _nodes(child, for_types)
        return
    for below in ast.iter_child_nodes(node):
        yield from _nodes(below, for_types)


def _targets(node: ast.AST, package: str, modules: Collection[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name in modules:
                yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [base])])
        for alias in node.names:
            if f"{base}.{alias.name}" in modules:
                yield f"{base}.{alias.name}"
            elif base in modules:
                yield base


def layer_of(module: str) -> int | None:
    name = module.partition(".")[2].split(".")[0] or "__init__"
    return next((place for place, names in enumerate(LAYERS) if name in names), None)


def broken_rule(found: Import) -> str | None:
    """What is wrong with an import, by itself."""
    below, above = map(layer_of, found)
    if below is not None and above is not None and below < above:
        return "points up between layers"
    for here, there in FORBIDDEN:
        if _within(found.importer, here) and _within(found.imported, there):
            return f"{here} may not import {there}"
    return None


def _within(module: str, name: str) -> bool:
    return f"{module}.".startswith(f"{PACKAGE}.{name}.")


def circles(imports: Iterable[Import]) -> list[list[str]]:
    """Groups of modules that all import each other, directly or through others (Tarjan's algorithm)."""
    graph: dict[str, list[str]] = {}
    for found in sorted(imports):
        graph.setdefault(found.importer, []).append(found.imported)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph.get(module, ()):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return groups


def check(modules: Mapping[str, Path]) -> list[str]:
    """What breaks the contract."""
    found = [imports_of(name, file, modules) for name, file in modules.items()]
    running = {one for part, _ in found for one in part}
    every = running | {one for _, part in found for one in part}
    wrong = [f"{name}: has no layer; add it to LAYERS" for name in modules if layer_of(name) is None]
    wrong += [f"{one}: {rule}" for one in sorted(every) if (rule := broken_rule(one))]
    return wrong + [f"import circle: {', '.join(group)}" for group in circles(running)]


def main() -> int:
    wrong = check(module_names(ROOT / "src"))
    for message in wrong:
        print(message, file=sys.stderr)
    if not wrong:
        print("import contract: holds")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
