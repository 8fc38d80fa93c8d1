"""The process of a fine-tuning: `python -m spikehtr.serve.tuning_worker FOLDER`. Says what it does in lines of JSON.

It ends, saved, when its standard input does: then it was cancelled, or the server that began it is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from spikehtr.config.presets import CPU_FINE_TUNING, FINE_TUNING
from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.compare_models import A, B, compare, line_rows, match_lines, most_different
from spikehtr.evaluation.evaluation import Evaluation, evaluate_lines
from spikehtr.serve.tuning import DATA, PLAN, RUN
from spikehtr.training.devices import make_fabric
from spikehtr.training.job import Job, run_job
from spikehtr.training.monitoring import LogEntry, RunProgress
from spikehtr.weights import load_model

_EXAMPLES = 20
_TOLD_EVERY = 0.5  # seconds
_SAVE_EVERY = 50  # steps


def say(**told: Any) -> None:
    print(json.dumps(told, ensure_ascii=False), flush=True)


def main(folder: Path) -> None:
    threading.Thread(target=_end_with_server, daemon=True).start()
    os.nice(5)  # the workbench answers first
    plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    try:
        if not (folder / RUN / ".finished").is_file():
            if not train(folder, plan):
                say(stopped=True)
                return
            (folder / RUN / ".finished").touch()
        say(message="comparing old and new")
        say(**compared(folder, plan))
    except SpikeHTRError as error:
        say(error=str(error))


def _end_with_server() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def train(folder: Path, plan: dict[str, Any]) -> bool:
    """Whether the run came to its end."""
    start = Path(plan["start"])
    model = load_model(start)
    if (folder / RUN / "job.json").is_file():
        job = Job.begun(folder / RUN)
    else:
        suited = CPU_FINE_TUNING if plan["device"] == "cpu" else {}
        config = model.config.with_overrides(FINE_TUNING | suited | {"data.workers": 0})
        steps = None if plan["steps"] is None else int(plan["steps"])
        limits: dict[str, Any] = {"max_steps": steps, "max_minutes": plan["minutes"]}
        job = Job(
            config,
            [f"parquet:{folder / DATA}"],
            folder / RUN,
            start,
            allow_unknown=True,
            save_every=_SAVE_EVERY,
            worst=0,
            **limits,
        )
    job.claim_folder()
    fabric = make_fabric(plan["device"], 1, job.config.training.precision)
    fabric.launch()
    told_at = 0.0

    def tell(entry: LogEntry) -> None:
        about = {"step": entry.step, "progress": entry.progress}
        say(**about, cer=entry.cer, **({"loss": entry.values["loss"]} if "loss" in entry.values else {}))

    def beat(progress: RunProgress) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _TOLD_EVERY:
            told_at = time.monotonic()
            what = "reading the held-out lines" if progress.validating else "learning"
            say(message=f"{what}, {progress.lines_per_second:.0f} lines/s")

    # What a run says on a command line is for there; the page has the curve.
    return run_job(job, fabric, lambda message: None, tell, None, model, beat).finished


def compared(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Old and new on the lines that were held out, with the paired test."""
    old, new = (
        _evaluated(Path(plan["start"]), folder, "old"),
        _evaluated(folder / RUN / "best.safetensors", folder, "new"),
    )
    a, b = match_lines(old, new)
    result = compare(a, b)
    cer = result["comparisons"]["CER, plain"]
    wer = next(values for name, values in result["comparisons"].items() if name.startswith("WER"))
    rows = line_rows(a, b)
    examples = []
    for index in most_different(a, b)[:_EXAMPLES]:
        page, _, line = rows[index]["id"].rpartition("lines/")[2].partition("/")
        texts = {"reference": rows[index]["reference"], "old": rows[index]["text_A"], "new": rows[index]["text_B"]}
        examples.append({"page": int(page), "line": line, **texts})
    return {
        "comparison": {
            "lines": result["lines"],
            "old": {"cer": cer[A], "wer": wer[A]},
            "new": {"cer": cer[B], "wer": wer[B]},
            "difference": cer["difference"],
            "interval": cer["interval"],
            "p_value": cer["p_value"],
            "real": cer["real"],
            "verdict": cer["verdict"],
        },
        "examples": examples,
    }


def _evaluated(model: Path, folder: Path, name: str) -> Evaluation:
    loaded = load_model(model)
    data = loaded.config.data
    store = open_lines(
        [f"parquet:{folder / DATA}"],
        loaded.config.model.height,
        data.max_width,
        None,
        lambda message: None,
        data.straighten,
    )
    lines = Lines(store, store.rows("validation"), loaded.charset, data.max_width, labelled=False)
    return evaluate_lines(loaded.net, [lines], temperature=loaded.temperature, about={"model": name})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
