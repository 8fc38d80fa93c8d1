"""Every sentence that the server can send to the page, found in its source; what a sentence fills in is {}."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import spikehtr

SOURCE = Path(spikehtr.__file__).parent
# What the workbench does with files, images, models and addresses: its faults reach the page, too.
BENEATH = (
    "data/images.py",
    "evaluation/compare_models.py",
    "data/formats/alto_xml.py",
    "data/formats/frames.py",
    "data/formats/outlines.py",
    "data/formats/page_xml.py",
    "data/formats/xml.py",
    "data/formats/xml_pages.py",
    "files.py",
    "pages/given.py",
    "pages/inputs.py",
    "pages/protected_results.py",
    "pages/segment/network_weights.py",
    "pages/iiif/client.py",
    "pages/iiif/manifests.py",
    "pages/kraken_segmenter.py",
    "pages/page_source.py",
    "pages/remote.py",
    "pages/segmenters.py",
    "readers/line_reader.py",
    "recognizer.py",
    "training/job.py",
    "training/monitoring.py",
    "weights.py",
)
_FILLED = {
    "invalid": 1,
    "bad_request": 0,
    "not_found": 0,
    "RequestError": 2,
    "problem": 1,
    "_note_problem": 1,
    "_refuse": 1,
}  # first argument that is told
_NAMED = ("fault", "remedy", "message", "problem", "reason", "what", "why", "had", "mend")
_NEVER_SENT = ("KeyError", "IndexError", "PatchError", "TypeError", "AssertionError")  # a fault of the server's own
# Texts that are no sentences, or are of the command line's lists.
_CODE = (
    "CREATE TABLE",
    "import json",
    "default-src",
    "event: ",
    "frame {number",
    "private, max-age",
    "position, id",
    "name, id",
)
_CODE += ("expected IS", "attachment", "camera=", "ALTO XML files", "PAGE XML files", "folders Training", "text/plain")
_CODE += ("{}, {} characters", "{} ({} lines")


def template(node: ast.expr) -> list[str]:
    """The texts that an expression can be; [] where that cannot be told."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Tuple):
        return [text for part in node.elts for text in template(part)]
    if isinstance(node, ast.Dict):
        return [text for part in node.values for text in template(part)]
    if isinstance(node, ast.BoolOp):
        return [text for part in node.values for text in template(part)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return template(node.func.value) if node.func.attr == "rstrip" else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [one + other for one in template(node.left) or ["{}"] for other in template(node.right) or ["{}"]]
    if isinstance(node, ast.IfExp):
        return template(node.body) + template(node.orelse)
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            if isinstance(part, ast.Constant):
                texts = [text + part.value for text in texts]
            else:
                assert isinstance(part, ast.FormattedValue)
                inner = template(part.value) if isinstance(part.value, ast.IfExp) else []
                texts = [text + one for text in texts for one in inner or ["{}"]]
        return texts
    return []


def _told(tree: ast.Module) -> Iterator[ast.expr]:
    """What is given to a fault, a problem of a page, a report or a message of a job, or is named as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _FILLED:
                yield from node.args[_FILLED[name] :]
            elif name == "__init__" or (name.endswith(("Error", "Exception")) and name not in _NEVER_SENT):
                yield from node.args
            elif name == "add" and len(node.args) >= 4:
                yield from node.args[2:4]
            yield from (word.value for word in node.keywords if word.arg in _NAMED)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            if any(name in _NAMED or name.isupper() for name in names):
                yield node.value
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def sentences() -> dict[str, str]:
    """Each with the file that says it."""
    found: dict[str, str] = {}
    serve = [file for file in sorted((SOURCE / "serve").glob("*.py")) if file.name != "openapi.py"]
    for file in [*serve, *(SOURCE / name for name in BENEATH)]:
        for node in _told(ast.parse(file.read_text(encoding="utf-8"))):
            for text in template(node):
                words = re.findall(r"[A-Za-z]{2,}", text)
                if " " in text.strip() and words and text != "its image" and not text.strip().startswith(_CODE):
                    found.setdefault(text, file.relative_to(SOURCE).as_posix())
    return found
