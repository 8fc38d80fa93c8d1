"""Collects open handwriting fonts to draw training lines with: small .ttf files and a list of their licences.

    python tools/collect_fonts.py FOLDER                 # all families that are listed as handwriting
    python tools/collect_fonts.py FOLDER --add x.ttf --licence OFL-1.1 --origin "Debian, fonts-x" --author "..."
    python tools/collect_fonts.py FOLDER --sheet sheets  # contact sheets, to look at
    python tools/collect_fonts.py FOLDER --pack SMALL    # what is kept and not in fonts_left_out.txt, copied

Families come as npm packages (`npm` has to be there). Only fonts under OFL, Apache or CC0 are taken. A font is cut down
to Latin letters, digits and punctuation, and left out, with the reason in the index, where it lacks letters, has
capitals for small letters, or stands in `tools/fonts_left_out.txt`, which people who looked at the sheets have written.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from fontTools.merge import Merger
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

LEFT_OUT = Path(__file__).with_name("fonts_left_out.txt")
INDEX = "index.json"
OPEN = ("OFL-1.1", "Apache-2.0", "CC0-1.0")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:'-"
ACCENTS = "àâçèéêëîïôùûäöüßñáíóúòì"  # a font may lack some of them
RANGES = ((0x20, 0x17F), (0x1C0, 0x21B), (0x2BC, 0x2BD), (0x300, 0x304), (0x2010, 0x2026), (0x20AC, 0x20AC))
FEATURES = ["calt", "liga", "kern", "mark", "mkmk", "ccmp", "locl", "rlig", "curs", "clig"]
ASIAN = ("japanese", "korean", "chinese")  # huge, and their Latin letters are an afterthought
SAMPLE = "Le 3 août 1742, Müller & Garcia vendirent: 68 œufs; ñ ß Jh Qu"


def handwriting_families(folder: Path) -> list[str]:
    """The families that google-font-metadata lists as handwriting with Latin letters."""
    with tarfile.open(_pack("google-font-metadata", folder)) as archive:
        stream = archive.extractfile("package/data/google-fonts-v1.json")
        assert stream is not None
        known = json.load(stream)
    return sorted(
        name
        for name, about in known.items()
        if about["category"] == "handwriting"
        and "latin" in about["subsets"]
        and not any(subset.startswith(ASIAN) for subset in about["subsets"])
    )


def _pack(package: str, folder: Path) -> Path:
    """The archive of an npm package, fetched unless it is in the folder."""
    stem = package.removeprefix("@").replace("/", "-")
    there = [p for p in folder.glob(f"{stem}-*.tgz") if re.fullmatch(rf"{re.escape(stem)}-\d[\w.+-]*\.tgz", p.name)]
    if there:
        return there[0]
    done = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise FileNotFoundError(f"npm has no package {package}")
    return folder / done.stdout.split()[-1]


def read_package(path: Path, family: str) -> tuple[list[bytes], dict[str, Any]]:
    """The regular upright font as its Latin files, and what the package says of it."""
    with tarfile.open(path) as archive:
        names = set(archive.getnames())

        def content(name: str) -> bytes:
            stream = archive.extractfile(f"package/{name}")
            assert stream is not None
            return stream.read()

        about = json.loads(content("metadata.json"))
        weight = min(about["weights"], key=lambda w: abs(w - 400))
        style = "normal" if "normal" in about["styles"] else about["styles"][0]
        wanted = [f"files/{family}-{subset}-{weight}-{style}.woff" for subset in ("latin", "latin-ext")]
        files = [content(name) for name in wanted if f"package/{name}" in names]
        version = json.loads(content("package.json"))["version"]
    licence = about.get("license") or {}
    licence = {"type": licence} if isinstance(licence, str) else licence  # as older packages have it
    return files, {
        "family": about.get("family", family),
        "licence": licence.get("type", "not stated"),
        "author": licence.get("attribution", ""),
        "origin": f"npm @fontsource/{family} {version}",
    }


def latin_font(files: list[bytes], target: Path) -> None:
    """The files as one .ttf or .otf with Latin characters alone, without hints."""
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, content in enumerate(files):
            font = TTFont(BytesIO(content))
            font.flavor = None
            for table in ("DSIG", "LTSH", "VDMX", "hdmx", "STAT", "meta"):
                if table in font:
                    del font[table]
            parts.append(Path(folder) / f"{number}.ttf")
            font.save(parts[-1])
        try:
            font = Merger().merge([str(part) for part in parts]) if len(parts) > 1 else TTFont(parts[0])
        except Exception:  # parts of unlike making: the first has the common letters
            font = TTFont(parts[0])
        options = Options(layout_features=FEATURES, hinting=False, notdef_outline=True, name_IDs=[0, 1, 2, 13, 14])
        subsetter = Subsetter(options)
        subsetter.populate(unicodes=[code for first, last in RANGES for code in range(first, last + 1)])
        subsetter.subset(font)
        font.save(target)


def fault(path: Path) -> str:
    """Why a font is of no use for handwriting; empty where it is."""
    with TTFont(path) as font:
        table = font.getBestCmap() or {}
    missing = [c for c in LETTERS if ord(c) not in table]
    if missing:
        return f"lacks {''.join(missing[:12])}"
    if sum(ord(c) not in table for c in ACCENTS) > len(ACCENTS) // 2:
        return "lacks most accents"
    face = ImageFont.truetype(path, 60)
    pictures = {c: _picture(face, c) for c in LETTERS}
    empty = [c for c, picture in pictures.items() if picture is None]
    if empty:
        return f"draws nothing for {''.join(empty[:12])}"
    if sum(_like(pictures[c], pictures[c.upper()]) for c in "abdefghlmnqrt") > 6:
        return "capitals for small letters"
    return ""


def _picture(face: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    left, top, right, bottom = face.getbbox(character)
    if right <= left or bottom <= top:
        return None
    image = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
    ImageDraw.Draw(image).text((1 - left, 1 - top), character, font=face, fill=255)
    box = image.getbbox()
    return image.crop(box) if box else None


def _like(small: Image.Image | None, capital: Image.Image | None) -> bool:
    """Whether two letters are of one shape, whatever their size."""
    assert small is not None
    assert capital is not None
    first, second = (np.asarray(p.resize((24, 24))).astype(float) / 255 for p in (small, capital))
    return float(np.minimum(first, second).sum() / np.maximum(first, second).sum()) > 0.75


def left_out() -> dict[str, str]:
    rows = [row.split(maxsplit=1) for row in LEFT_OUT.read_text(encoding="utf-8").splitlines() if row.strip()]
    return {row[0]: row[1].strip() for row in rows if not row[0].startswith("#")}


def collect(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    index = read_index(folder)
    for family in handwriting_families(packages):
        if family in index:
            continue
        try:
            files, about = read_package(_pack(f"@fontsource/{family}", packages), family)
        except FileNotFoundError as error:
            print(f"{family}: {error}")
            continue
        about["left_out"] = "" if about["licence"] in OPEN else f"licence {about['licence']}"
        if files and not about["left_out"]:
            latin_font(files, folder / f"{family}.ttf")
            about["left_out"] = fault(folder / f"{family}.ttf")
        elif not files:
            about["left_out"] = "no Latin file"
        index[family] = about
        write_index(folder, index)
    write_index(folder, index)
    print(f"{folder}: {len(list(kept(folder)))} fonts kept of {len(index)}")


def add(folder: Path, file: Path, licence: str, origin: str, author: str) -> None:
    """A font file of one's own."""
    if licence not in OPEN:
        raise SystemExit(f"{file}: only {', '.join(OPEN)} are taken, not {licence}")
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")
    latin_font([file.read_bytes()], folder / f"{name}.ttf")
    index = read_index(folder)
    about = {"family": file.stem, "licence": licence, "author": author, "origin": origin}
    index[name] = about | {"left_out": fault(folder / f"{name}.ttf")}
    write_index(folder, index)
    print(name, index[name]["left_out"] or "kept")


def read_index(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / INDEX
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_index(folder: Path, index: dict[str, dict[str, Any]]) -> None:
    content = json.dumps(index, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / INDEX).write_text(content + "\n", encoding="utf-8")


def kept(folder: Path) -> Iterator[str]:
    seen = left_out()
    for name, about in sorted(read_index(folder).items()):
        if not about["left_out"] and name not in seen:
            yield name


def pack(folder: Path, target: Path) -> None:
    """The fonts that are kept, and the licences of these, into a folder of their own."""
    target.mkdir(parents=True, exist_ok=True)
    index = read_index(folder)
    names = list(kept(folder))
    for name in names:
        shutil.copyfile(folder / f"{name}.ttf", target / f"{name}.ttf")
    fields = ("family", "licence", "author", "origin")
    write_index(target, {name: {key: index[name][key] for key in fields} for name in names})
    size = sum(path.stat().st_size for path in target.iterdir()) / 2**20
    print(f"{target}: {len(names)} fonts, {size:.1f} MiB")


def draw_sheets(folder: Path, target: Path, rows: int = 48) -> None:
    """Sheets with a sample line of each font that is kept."""
    target.mkdir(parents=True, exist_ok=True)
    names = list(kept(folder))
    label = ImageFont.load_default(14)
    for start in range(0, len(names), rows):
        sheet = Image.new("L", (1400, 42 * ((min(rows, len(names) - start) + 1) // 2)), 255)
        pen = ImageDraw.Draw(sheet)
        for place, name in enumerate(names[start : start + rows]):
            x, y = 700 * (place % 2), 42 * (place // 2)
            size = 30
            face = ImageFont.truetype(folder / f"{name}.ttf", size)
            size = min(30, int(size * 570 / face.getlength(SAMPLE)))
            face = ImageFont.truetype(folder / f"{name}.ttf", size)
            pen.text((x + 2, y + 26), name[:17], font=label, fill=0, anchor="ls")
            pen.text((x + 125, y + 28), SAMPLE, font=face, fill=0, anchor="ls")
        sheet.save(target / f"sheet-{start // rows:02d}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--add", type=Path)
    parser.add_argument("--licence", default="")
    parser.add_argument("--origin", default="")
    parser.add_argument("--author", default="")
    parser.add_argument("--sheet", type=Path)
    parser.add_argument("--pack", type=Path)
    chosen = parser.parse_args()
    if chosen.add:
        add(chosen.folder, chosen.add, chosen.licence, chosen.origin, chosen.author)
    elif chosen.sheet:
        draw_sheets(chosen.folder, chosen.sheet)
    elif chosen.pack:
        pack(chosen.folder, chosen.pack)
    else:
        collect(chosen.folder)


if __name__ == "__main__":
    main()
