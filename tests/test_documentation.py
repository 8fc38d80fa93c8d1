"""What README and docs name exists: files and headings, verbs and options, settings; and every page can be found."""

import re
import shlex
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from spikehtr.cli import app
from spikehtr.cli.groups import RunByDefault
from spikehtr.config import known_keys

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
VERBS = get_command(app)


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def links(page):
    """File and heading of each relative link."""
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if not target.startswith(("http://", "https://", "mailto:")):
            file, _, heading = target.partition("#")
            yield target, (page.parent / file).resolve() if file else page, heading


def headings(page):
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def commands(page):
    """Every `spikehtr ...` in code, as words."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`(spikehtr [^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [line for block in blocks for line in re.sub(r"\\\n", " ", block).splitlines()]
    for line in [*lines, *(re.sub(r"\s+", " ", code) for code in inline)]:
        for part in re.split(r"(?=\bspikehtr )|;|&&", line):
            if re.match(r"spikehtr [a-z]", part):
                lexer = shlex.shlex(part, posix=True, punctuation_chars=False)
                lexer.whitespace_split, lexer.quotes, lexer.escape = True, "", ""
                yield part, list(lexer)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    broken = [
        target
        for target, file, heading in links(page)
        if not file.exists() or (heading and file.suffix == ".md" and heading not in headings(file))
    ]
    assert broken == []


def test_every_page_is_reached_from_the_index():
    found, todo = set(), [ROOT / "docs" / "README.md"]
    while todo:
        page = todo.pop()
        if page not in found:
            found.add(page)
            todo += [file for _, file, _ in links(page) if file.suffix == ".md" and file.exists()]
    assert [page for page in PAGES if "docs" in page.parts and page not in found] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_verbs_options_and_settings_exist(page):
    keys, wrong = set(known_keys()), []
    for told, words in commands(page):
        command, rest = VERBS, words[1:]
        while rest and hasattr(command, "commands"):
            word = rest.pop(0)
            if isinstance(command, RunByDefault) and word not in command.commands and word not in ("--help", "-h"):
                rest, word = [word, *rest], "run"
            if word not in command.commands:
                break
            command = command.commands[word]
        else:
            options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
            options |= {"--version"} if hasattr(command, "commands") else set()
            named = [word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
            wrong += [f"{told}: {name}" for name in named if name not in options]
            values = [after for word, after in pairwise(rest) if word in ("-s", "--set")]
            set_here = [value.partition("=")[0] for value in values if "." in value.partition("=")[0]]
            wrong += [f"{told}: {key}" for key in set_here if key not in keys]
            continue
        if not re.match(r"[A-Z$|]|\.\.\.", word):  # a placeholder
            wrong.append(f"{told}: no verb {word}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_is_a_diary(page):
    """Pages say what is; when and by which commit something was measured is for the history to say."""
    text = without_code(page.read_text(encoding="utf-8"))
    assert re.findall(r"\bcommits? `?[0-9a-f]{7,}|(?<!PAGE )\b20\d\d-[01]\d-[0-3]\d\b", text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_code_is_python(page):
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        compile(textwrap.dedent(code) if not code.startswith('    "') else f"{{\n{code}}}", str(page), "exec")
