"""The front end's files, looked at without a browser."""

from __future__ import annotations

import re

import pytest

from .browser_help import STATIC, words

OURS = [path for path in STATIC.rglob("*.js") if path.parent.name != "vendor"]
LANGUAGES = ("en", "fr", "de")


def test_every_language_has_the_same_keys_and_fills_in_the_same_names() -> None:
    english = words("en")
    for language in LANGUAGES[1:]:
        other = words(language)
        assert other.keys() == english.keys()
        assert all(value.strip() for value in other.values())
        for key, value in english.items():
            assert set(re.findall(r"\{\w+\}", other[key])) == set(re.findall(r"\{\w+\}", value)), (language, key)


def test_every_word_that_the_interface_asks_for_is_there_and_none_is_left_over() -> None:
    english = words("en")
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in OURS if path.stem.removeprefix("said-") not in LANGUAGES
    )
    asked = set(re.findall(r'\bt\("([\w.-]+)"', source))
    assert asked - english.keys() == set()
    made = re.findall(r"`((?:\$\{[\w. ?\"]+\}|[\w.])+)`", source)  # `state.${state}`
    patterns = [
        re.sub(r"\$\{[^}]*\}", r"[\\w.-]+", one.replace(".", r"\."))
        for one in made
        if "." in re.sub(r"\$\{[^}]*\}", "", one)
    ]
    quoted = set(re.findall(r'"([\w.-]+)"', source))
    for key in english:
        name = key.removesuffix("_one")
        assert name in quoted or any(re.fullmatch(pattern, name) for pattern in patterns) or name == "language.name", (
            key
        )


def test_nothing_is_put_into_the_page_as_html_and_no_text_becomes_code() -> None:
    forbidden = (
        r"(inner|outer)HTML|insertAdjacentHTML|document\.write|dangerously|\beval\(|new Function|DOMParser|srcdoc"
    )
    for path in [*OURS, STATIC / "index.html"]:
        assert not re.search(forbidden, path.read_text(encoding="utf-8")), path.name


def test_the_page_has_no_inline_script_or_style_and_nothing_comes_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), *STATIC.rglob("*.html")]:
        if path.name.startswith("said-"):  # sentences that name addresses
            continue
        for address in re.findall(r"https?://[\w.]+", path.read_text(encoding="utf-8")):
            assert address == "http://www.w3.org", f"{path.name}: {address}"


def test_every_import_names_a_file_that_is_there() -> None:
    for path in STATIC.rglob("*.js"):
        for name in re.findall(r'\bfrom ?"([\w./@-]+)"', path.read_text(encoding="utf-8")):
            assert name.startswith("."), f"{path.name} imports {name}"
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def test_every_vendored_library_has_its_licence_and_its_version_noted() -> None:
    notes = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    for path in (STATIC / "vendor").glob("*.js"):
        row = next(row for row in notes.splitlines() if f"`{path.name}`" in row)
        assert re.search(r"\d+\.\d+\.\d+", row)
        licence = re.search(r"`(\w+\.LICENSE\.txt)`", row)
        assert licence is not None
        assert (STATIC / "vendor" / licence[1]).stat().st_size > 500


# ---- contrast, as WCAG 2 computes it
def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground_as_wcag_aa_asks(theme: str) -> None:
    style = (STATIC / "style" / "base.css").read_text(encoding="utf-8")
    light = colours(style[: style.index("@media (prefers-color-scheme: dark)")])
    forced = re.search(r':root\[data-theme="dark"\] \{(.*?)\n\}', style, re.DOTALL)
    by_system = re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\n  \}', style, re.DOTALL)
    assert forced is not None
    assert by_system is not None
    assert colours(forced[1]) == colours(by_system[1]), "chosen and by the system, dark is the same"
    now = light if theme == "light" else {**light, **colours(forced[1])}
    grounds = ["ground", "surface", "accent-soft"]
    pairs = [
        (text, ground) for text in ("text", "muted", "accent", "danger", "unsure", "very-unsure") for ground in grounds
    ]
    pairs += [(f"state-{state}", "surface") for state in ("new", "found", "read", "started", "corrected")]
    pairs += [
        ("on-accent", "accent"),
        ("unsure", "unsure-soft"),
        ("very-unsure", "very-unsure-soft"),
        ("text", "sunken"),
        ("muted", "sunken"),
    ]
    low = {
        f"{text} on {ground}": contrast(now[text], now[ground])
        for text, ground in pairs
        if contrast(now[text], now[ground]) < 4.5
    }
    assert low == {}
