"""The plain functions of the front end, run in the browser; no server: the files come from the package."""

from __future__ import annotations

import random
from typing import Any


def some_texts(count: int) -> list[str]:
    chance = random.Random(5)
    signs = ["a", "b", " ", "\u017f", "𐌰", "ש", "e\u0301", "é"]
    return ["".join(chance.choices(signs, k=chance.randrange(0, 14))) for _ in range(count)]


def test_code_points_and_units_are_each_others_inverse(modules: Any) -> None:
    texts = some_texts(100)
    script = """async (texts) => { const { codePoints, units } = await import("/static/text.js");
        return texts.map((text) => Array.from(text).map((_, at) => codePoints(text, units(text, at)))); }"""
    for text, found in zip(texts, modules.evaluate(script, texts), strict=True):
        assert found == list(range(len(text)))


def test_a_difference_holds_both_texts_whole(modules: Any) -> None:
    texts = some_texts(200)
    pairs = [[one, other] for one, other in zip(texts[::2], texts[1::2], strict=True)]
    script = """async (pairs) => { const { difference } = await import("/static/text.js");
        return pairs.map(([a, b]) => difference(a, b)); }"""
    for (one, other), parts in zip(pairs, modules.evaluate(script, pairs), strict=True):
        assert "".join(part["text"] for part in parts if part["kind"] != "in") == one
        assert "".join(part["text"] for part in parts if part["kind"] != "out") == other


def test_what_a_person_typed_is_never_marked_and_the_rest_keeps_its_doubt(modules: Any) -> None:
    reading = {"characters": [["l", 0.9], ["i", 0.3], ["n", 0.7], ["e", 0.99]]}
    cases = ["line", "lane", "xline", "linex", "", "l"]
    script = """async ([cases, reading]) => { const { runs } = await import("/static/text.js");
        return cases.map((text) => runs(text, reading, 0.8)); }"""
    found = modules.evaluate(script, [cases, reading])
    marks = [[(run["text"], run["doubt"]) for run in runs] for runs in found]
    assert marks[0] == [("l", 0), ("i", 2), ("n", 1), ("e", 0)]
    assert marks[1] == [("la", 0), ("n", 1), ("e", 0)]
    assert marks[2] == [("xl", 0), ("i", 2), ("n", 1), ("e", 0)]
    assert marks[3] == [("l", 0), ("i", 2), ("n", 1), ("ex", 0)]
    assert marks[4:] == [[], [("l", 0)]]


def test_changes_that_do_not_touch_are_merged_and_others_are_left_to_the_person(modules: Any) -> None:
    cases = [
        ["the old text", "the new text", "the old texts", "the new texts"],
        ["the old text", "The old text", "the old text!", "The old text!"],
        ["same", "same", "other", "other"],
        ["same", "other", "same", "other"],
        ["word", "ward", "wird", None],
        ["ab", "axb", "ayb", None],
        ["ab", "axb", "axb", "axb"],
    ]
    script = """async (cases) => { const { merged } = await import("/static/parts/merge.js");
        return cases.map(([base, mine, theirs]) => merged(base, mine, theirs)); }"""
    assert modules.evaluate(script, cases) == [case[3] for case in cases]


def test_the_server_s_sentences_are_shown_in_the_interface_s_language(modules: Any) -> None:
    script = """async (texts) => { const { settings } = await import("/static/state.js");
        const { said, whole } = await import("/static/i18n/said.js");
        settings.value = { language: "de" };
        return [...texts.map(said), whole({ fault: "the disk is full", remedy: "" })]; }"""
    texts = [
        "no line was found",
        "learning, 3 lines/s",
        "its PAGE file cannot be written: the disk is full",
        "(a) [b",
        None,
    ]
    assert modules.evaluate(script, texts) == [
        "keine Zeile wurde gefunden",
        "lernt, 3 Zeilen/s",
        "ihre PAGE-Datei lässt sich nicht schreiben: die Platte ist voll",
        "(a) [b",
        None,
        "die Platte ist voll",
    ]


def test_a_long_sentence_of_many_parts_is_translated_at_once(modules: Any) -> None:
    """Of 40 parts, which could be taken apart in as many ways as there are subsets of them."""
    script = """async (text) => { const { settings } = await import("/static/state.js");
        const { said } = await import("/static/i18n/said.js");
        settings.value = { language: "fr" };
        return said(text); }"""
    text = "; ".join(f"line l{number}: x{number}" for number in range(40))
    assert modules.evaluate(script, text) == text
    assert modules.evaluate(script, f"{text}; no line was found").endswith("aucune ligne n'a été trouvée")


def test_shapes_stay_on_the_page_and_places_along_a_line_are_found_again(modules: Any) -> None:
    script = """async () => { const g = await import("/static/geometry.js");
        const out = [];
        let seed = 7;
        const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
        const size = (points) => { const [l, t, r, b] = g.bounds(points); return [r - l, b - t]; };
        for (let i = 0; i < 200; i++) {
            const point = (_, k) => [50 + k * 120 + random() * 60, 100 + random() * 300];
            const points = Array.from({ length: 2 + Math.floor(random() * 5) }, point);
            const moved = g.movedWithin(points, (random() - 0.5) * 4000, (random() - 0.5) * 4000, 800, 500);
            const rough = g.simplified(points, 50);
            out.push({
                on: g.nearestSegment(g.pointAt(points, random()), points).distance,
                box: g.bounds(moved),
                grown: Math.max(...size(moved).map((side, k) => Math.abs(side - size(points)[k]))),
                kept: g.simplified(points, 0.001).length === points.length,
                ends: rough[0] === points[0] && rough.at(-1) === points.at(-1),
            });
        }
        return out; }"""
    for one in modules.evaluate(script):
        assert one["on"] < 1e-6
        assert 0 <= one["box"][0] <= one["box"][2] <= 799
        assert 0 <= one["box"][1] <= one["box"][3] <= 499
        assert one["grown"] < 1e-6
        assert one["kept"]
        assert one["ends"]


def test_an_answer_that_comes_late_takes_back_nothing_that_was_told_of_a_job(modules: Any) -> None:
    script = """async () => { const { jobs, noteJob, noteJobs } = await import("/static/state.js");
        const told = (state, as_of) => ({ id: 1, state, as_of }), seen = [];
        const states = () => jobs.value.map((job) => job.state).join();
        for (const one of [told("queued", 1), told("done", 3), told("queued", 2)]) noteJob(one), seen.push(states());
        noteJobs([{ id: 2, state: "running", as_of: 2 }, told("running", 2)]); seen.push(states());
        noteJob(told("queued", 4)); seen.push(states());
        return seen; }"""
    assert modules.evaluate(script) == ["queued", "done", "done", "running,done", "running,queued"]
