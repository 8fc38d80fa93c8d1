"""Lines cut in two and lines made one, with their texts, outlines and baselines."""

from __future__ import annotations

import unicodedata

from spikehtr.serve import line_shapes
from spikehtr.serve.documents import Entity
from spikehtr.serve.draft import Draft, Op, is_number
from spikehtr.serve.http_errors import invalid


def split(draft: Draft, op: Op) -> None:
    x, at = op.get("x"), op.get("at")
    if not is_number(x):
        raise invalid(draft.place("x"), "must be a column of the page")
    assert isinstance(x, int | float)
    if (found := draft.line(op)) is None:
        return
    name, line = found
    left, right = (line_shapes.cut_polygon(line["polygon"], x, side) for side in (True, False))
    if not (line_shapes.encloses(left) and line_shapes.encloses(right)):
        raise invalid(draft.place("x"), "does not lie within the line", "split it between its ends")
    text = line["text"]
    is_rtl = runs_right_to_left(text)
    if at is None:
        at = _text_place(line, float(x), is_rtl)
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(text):
        raise invalid(draft.place("at"), f"must be a place in the text, 0 to {len(text)}")
    first, last = text[:at].strip(), text[at:].strip()
    left_text, right_text = (last, first) if is_rtl else (first, last)
    baselines = line_shapes.cut_baseline(line["baseline"], x) if line["baseline"] else ([], [])
    changed = {"reading": None, "stale": line["by"] == "machine"}
    draft.change_line(name, polygon=left, baseline=baselines[0], text=left_text, **changed)
    other = draft.new_id("l", op)
    draft.state.lines[other] = {
        **line,
        **changed,
        "polygon": right,
        "baseline": baselines[1],
        "text": right_text,
    }
    lines = draft.state.regions[line["region"]]["lines"]
    after = lines.index(name) + (0 if is_rtl else 1)
    draft.insert(other, line["region"], lines[after] if after < len(lines) else None)


def _text_place(line: Entity, x: float, is_rtl: bool) -> int:
    """The place in the text that belongs to a column of the page."""
    text, reading = line["text"], line["reading"]
    if reading is not None and reading["text"] == text and reading["characters"]:
        place = 0
        for character in reading["characters"]:
            middle = (character[2] + character[4]) / 2
            if (middle > x) != is_rtl:
                break
            place += len(character[0])
        return place
    left, right = (pick(px for px, _ in line["polygon"]) for pick in (min, max))
    share = (x - left) / max(1, right - left)
    place = round(len(text) * (1 - share if is_rtl else share))
    spaces = [index for index, character in enumerate(text) if character == " "]
    return min(spaces, key=lambda index: abs(index - place), default=place)


def runs_right_to_left(text: str) -> bool:
    """Whether most of a text's letters belong to a script that is written from right to left."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


def join(draft: Draft, op: Op) -> None:
    names, versions = op.get("lines"), op.get("versions")
    if not isinstance(names, list) or not isinstance(versions, list) or len(names) != len(versions) or len(names) < 2:
        raise invalid(draft.place("lines"), "must be two lines or more, with as many versions")
    found = [draft.line({"line": name}, version=version) for name, version in zip(names, versions, strict=True)]
    lines = [entry for entry in found if entry is not None]
    if len(lines) < len(found):
        return
    if len({name for name, _ in lines}) < len(lines):
        raise invalid(draft.place("lines"), "the same line twice")
    first = lines[0][0]
    every = [entity for _, entity in lines]
    text = " ".join(part["text"] for part in every if part["text"])
    is_persons = any(part["by"] == "person" for part in every)
    by = "person" if is_persons else "machine" if any(part["by"] for part in every) else None
    confidences = [part["confidence"] for part in every if part["confidence"] is not None]
    for name, _ in lines[1:]:
        draft.take_out(name)
        del draft.state.lines[name]
    polygon = line_shapes.joined_polygons([part["polygon"] for part in every])
    baseline = [point for part in sorted(every, key=_left) for point in part["baseline"]]
    draft.change_line(
        first,
        baseline=line_shapes.clipped(baseline, draft.width, draft.height),
        polygon=line_shapes.clipped(polygon, draft.width, draft.height),
        text=text,
        by=by,
        confidence=min(confidences, default=None),
        reading=None,
        stale=by == "machine",
    )


def _left(line: Entity) -> int:
    return min((x for x, _ in line["baseline"] or line["polygon"]), default=0)
