"""Makes a trained model the one that comes with the package, and writes its card.

    python tools/bundle.py RUN/best.safetensors ATTRIBUTION.md EVALUATION.json ... --made-by "spikehtr train ..."

ATTRIBUTION.md has a section (###) for each set that the model was trained on, with lines `- title:`, `- authors:`,
`- institutions:`, `- source:`, `- licence:` and `- changes:`; they go into the card, and into the file itself, which
may travel alone. The evaluations are those that `spikehtr evaluate RUN/best.safetensors -d SET ... -o FOLDER` wrote on
a CPU (FOLDER/evaluation.json), one for each split.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

from spikehtr.assets import CARD, MODEL
from spikehtr.errors import SpikeHTRError
from spikehtr.training.records import write_card
from spikehtr.weights import BUNDLED, load_model, update_notes

FIELDS = ("title", "authors", "institutions", "source", "licence", "changes")
LARGEST = 20e6  # bytes


def read_attribution(file: Path, sets: list[str]) -> dict[str, dict[str, str]]:
    """What there is to say of each set, from a list of sources."""
    # Catalogues have escaped letters, in people's names too.
    escaped = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})")
    text = escaped.sub(lambda found: chr(int(found[1] or found[2], 16)), file.read_text(encoding="utf-8"))
    sections = re.split(r"^### +", text, flags=re.MULTILINE)[1:]
    found = {
        text.splitlines()[0].strip(): dict(re.findall(r"^- (\w+): *(\S.*)$", text, re.MULTILINE)) for text in sections
    }
    missing = [name for name in sets if name not in found or not {"title", "source", "licence"} <= found[name].keys()]
    if missing:
        raise SpikeHTRError(f"{file}: no title, source or licence for {', '.join(missing)}")
    return {name: {field: found[name][field] for field in FIELDS if field in found[name]} for name in sets}


def describe(attribution: dict[str, dict[str, str]]) -> str:
    """The sources as Markdown: a paragraph each."""
    parts = []
    for name, one in attribution.items():
        by = "; ".join(one[field] for field in ("authors", "institutions") if field in one)
        changes = f" Changes: {one['changes']}." if "changes" in one else ""
        parts.append(f"- **{name}**: {one['title']}. {by}. {one['source']}. {one['licence']}.{changes}")
    return "\n".join(parts)


def tabulate(evaluations: list[dict[str, Any]]) -> str:
    """Error rates of each set, a column group for each split."""
    heads = [f"{one['split']} lines | {one['split']} CER | {one['split']} WER" for one in evaluations]
    rows = ["| set | " + " | ".join(heads) + " |", "|---" * (1 + 3 * len(evaluations)) + "|"]
    for name in evaluations[0]["sets"]:
        rows.append(f"| {name} | " + " | ".join(_cells(one["sets"][name]) for one in evaluations) + " |")
    rows.append("| all | " + " | ".join(_cells(one) for one in evaluations) + " |")
    return "\n".join(rows)


def _cells(summary: dict[str, Any]) -> str:
    cer, wer = (summary["rates"][name] for name in ("CER, plain", "WER, whitespace words"))
    low, high = cer["interval"]
    return f"{summary['lines']} | {cer['rate']:.2%} [{low:.2%}, {high:.2%}] | {wer['rate']:.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("attribution", type=Path)
    parser.add_argument("evaluations", type=Path, nargs="+")
    parser.add_argument("--made-by", required=True, help="the command that trained it")
    options = parser.parse_args()
    if options.model.stat().st_size > LARGEST:
        raise SpikeHTRError(f"{options.model}: larger than {LARGEST / 1e6:g} MB; train with --half")
    evaluations = [json.loads(file.read_text(encoding="utf-8")) for file in options.evaluations]
    attribution = read_attribution(options.attribution, load_model(options.model).notes["data"]["sources"])
    scores = {
        one["split"]: {name: part["rates"]["CER, plain"]["rate"] for name, part in one["sets"].items()}
        for one in evaluations
    }
    if options.model.resolve() != MODEL:
        shutil.copyfile(options.model, MODEL)
    notes: dict[str, Any] = {"attribution": attribution, "cer": scores, "made_by": options.made_by}
    for one in evaluations:
        if one["split"] == "validation":  # as the file reads now
            notes["validation_cer"] = one["rates"]["CER, plain"]["rate"]
    update_notes(MODEL, notes)
    sets = " ".join(f"-d {name}" for name in attribution)
    more = f"""
## How well it reads

Lines of the same sets that it was not trained on, greedy decoding, on a CPU; 95 % intervals over documents. It was
chosen by the validation lines, so the test lines say more.

```sh
spikehtr evaluate bundled {sets} --split {evaluations[-1]["split"]}
```

{tabulate(evaluations)}

## What it was trained on

```sh
{options.made_by}
```

The model is made of these works and is published under CC-BY 4.0 like them: name them where you publish it, or what you
make of it.

{describe(attribution)}
"""
    write_card(CARD, load_model(MODEL), BUNDLED, more)


if __name__ == "__main__":
    main()
