"""What a run's folder says of its making: data, environment, and the card beside the model."""

from __future__ import annotations

import shlex
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spikehtr.data.store import LineStore
from spikehtr.files import whole_file
from spikehtr.report import environment
from spikehtr.training.datasets import TrainingSets
from spikehtr.version import __version__, code_digest, training_digest
from spikehtr.weights import Loaded

CARD, DATA, ENVIRONMENT = "best.md", "data.json", "environment.json"


def data_record(store: LineStore, sets: TrainingSets) -> dict[str, Any]:
    """The data of a run, for its folder; `digest` changes when any line does."""
    return {
        "sources": store.meta["sources"],
        "digest": store.digest(),
        "lines": store.meta["lines"],
        "left_out_by_reading": store.meta["left_out"],
        "left_out_as_machine_read": store.meta.get("machine_read", 0),
        "trained_on": len(sets.train),
        "validated_on": len(sets.validation),
        "characters": "".join(sets.train.charset.characters),
        "remarks": sets.remarks,
    }


def run_environment(device: str, seed: int) -> dict[str, Any]:
    return {"command": shlex.join(["spikehtr", *sys.argv[1:]]), "seed": seed, **environment(device)}


def provenance(data: dict[str, Any], start: Path | None) -> dict[str, Any]:
    """What the model file's header keeps of a run's making, beside its scores."""
    kept = {name: data[name] for name in ("sources", "digest", "trained_on", "validated_on")}
    kept["sources"] = [Path(str(source)).name for source in kept["sources"]]  # names, not the maker's folders
    program = {"code_version": __version__, "code_digest": code_digest(), "training_digest": training_digest()}
    return {"data": kept, **program, "started_from": start.name if start else None}


LICENCE = "The licence of the data it was trained on may bind its use: add it here before you publish the model.\n"


def write_card(path: Path, model: Loaded, file: str, more: str = LICENCE) -> None:
    """A page about a model, for who comes across its file; `more` ends it."""
    notes, c = model.notes, model.config
    cer = notes.get("validation_cer")
    data = notes["data"]
    started = f", going on from `{notes['started_from']}`" if notes.get("started_from") else ""
    score = f"CER {cer:.2%}" if cer is not None else "no score: there was no line to validate on"
    sources = ", ".join(data["sources"])
    level = ", made level first" if c.data.straighten else ""
    lines = f"{data['trained_on']} lines trained on, {data['validated_on']} validated on, from {sources}"
    digest = f", code `{notes['code_digest']}`" if "code_digest" in notes else ""
    effort = f"{notes['epochs']} epochs, {notes['step']} steps, {notes['minutes']:g} minutes"
    text = f"""# {Path(file).stem}: a Spike-HTR model for handwritten text lines

```sh
spikehtr evaluate {file} --data LINES
```
```python
from spikehtr import Recognizer

print(Recognizer.load("{file}").transcribe("line.png").text)
```

| | |
|---|---|
| network | {_network(model)} |
| input | grey lines, {c.model.height} px high, at most {c.data.max_width} px wide (wider ones are scaled down){level} |
| data | {lines} |
| data digest | `{data["digest"]}` |
| training | {effort}, seed {notes["seed"]}{started} |
| validation | {score} (greedy decoding, averaged weights, chosen on these very lines: a test set may read worse) |
| confidence | {_confidence(notes)} |
| code | spikehtr {notes["code_version"]}{digest} |

**Characters** ({len(model.charset) - 1}), with the space:

```text
{_characters(model.charset.characters)}
```

**What to expect.** It reads single text lines of hands, languages and layouts like those it was trained on; on others
measure first (`spikehtr evaluate`), and fine-tune (`spikehtr train --from {file}`). It writes only the characters
above. The settings of network, data and training are in the file's header: nothing else is needed to load it.
{more}"""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _characters(characters: Sequence[str]) -> str:
    """Those that can be seen by themselves, then the codes of the others."""
    seen = [c for c in characters if c.isprintable() and not c.isspace() and not unicodedata.combining(c)]
    codes = [f"U+{ord(c):04X}" for c in characters if c not in seen and c != " "]
    return textwrap.fill("".join(seen), 80, break_on_hyphens=False) + "\n" * bool(codes) + " ".join(codes)


def _confidence(notes: dict[str, Any]) -> str:
    if "calibration" not in notes:
        return "not calibrated: `spikehtr evaluate --calibrate` does it"
    errors = [
        f"{one['before']:.1%} before, {one['after']:.1%} after ({name})"
        for name, one in notes["calibration"]["ece"].items()
    ]
    return f"temperature {notes['temperature']:.3f} by the validation lines; calibration error {', '.join(errors)}"


def _network(model: Loaded) -> str:
    m = model.config.model
    size = sum(p.numel() for p in model.net.parameters()) / 1e6
    if m.arch != "spike-htr":
        reduced = "" if m.reducer.mode == "none" else f" with the reducer ({m.reducer.mode})"
        return f"{m.arch}{reduced}, a baseline, {size:.2f} M parameters"
    kind = "spiking (LIF)" if m.neuron == "lif" else "GELU control"
    return f"{kind}, dim {m.dim}, T = {m.timesteps}, mixer {' '.join(m.mixer.operators)}, {size:.2f} M parameters"
