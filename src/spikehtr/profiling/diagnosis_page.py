"""The spike diagnostics as files: one page, the figures, and every number for programs and spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spikehtr.evaluation.rate_tables import percent
from spikehtr.evaluation.write_report import write_json, write_table
from spikehtr.files import make_folder
from spikehtr.plotting import save_figure
from spikehtr.profiling import published
from spikehtr.profiling.diagnosis import Diagnosis
from spikehtr.profiling.energy import E_AC, E_MAC, PJ_ADD_INT32, PJ_MAC_INT8, RHO, RHOS
from spikehtr.profiling.firing import Firing, by_stage, distribution, shares
from spikehtr.profiling.firing_figures import energy_figure, firing_figure
from spikehtr.report import HtmlReport, environment

_TOP = 5
_PAPER = "The paper's figures are of its base model (d = 768, T = 2) on 512 lines of IAM."


def write_diagnosis(folder: Path, found: Diagnosis, device: str, command: str | None = None) -> list[Path]:
    """Write everything into `folder`; the files, the page first."""
    make_folder(folder)
    names = ("report.html", "profile.json", "modules.tsv", "layers.tsv", "firing.png", "energy.png")
    files = [folder / name for name in names]
    made_by = environment(device)
    figures = (firing_figure(found.measured.firing), energy_figure(found.rows))
    for path, figure in zip(files[4:], figures, strict=True):
        save_figure(figure, path)
    numbers = found.to_dict()
    write_json(files[1], numbers | {"environment": made_by, "command": command})
    write_table(
        files[2],
        ("module", "rate", "active", "share", "neurons", "spikes"),
        (
            (m["name"], m["rate"], m["active_share"], m["share"], m["neurons"], sum(m["spikes"]))
            for m in numbers["firing"]["modules"]
        ),
    )
    columns = ("name", "macs", "additions", "inputs", "zeros", "outputs", "weights", "eligible", "binary")
    write_table(files[3], columns, ([row[name] for name in columns] for row in numbers["layers"]))
    _page(found, made_by, files, command).save(files[0])
    return files


def _page(found: Diagnosis, made_by: dict[str, str], files: Sequence[Path], command: str | None) -> HtmlReport:
    page = HtmlReport(f"Spike diagnostics of {found.about.get('model', 'a model')}")
    if command:
        page.code(command)
    page.table((), about_rows(found.about))
    page.heading("Firing rates")
    page.text(
        "r_m: spikes of a module over its neurons and timesteps, a burst counting as so many spikes; s_m: its share of "
        f"all spikes. Valid columns and tokens only, no padding. {_PAPER} Its neurons fire once a step at most."
    )
    page.table(*distribution_table(found.measured.firing), "l" + "r" * 7)
    page.table(*stage_table(found.measured.firing), "lrrrrrrr")
    for title, rows in top_tables(found.measured.firing).items():
        page.heading(title, 3)
        page.table(("module", "share", "rate", "paper's module", "share", "rate"), rows, "lrrlrr")
    page.figure(files[4].read_bytes(), "Firing rates: cumulative, histogram, top modules, spike share against rate")
    page.heading("Operations and the energy proxy")
    page.text(
        f"Means over the lines. E_MAC {E_MAC:g} pJ, E_AC {E_AC:g} pJ (fp32, 45 nm). An addition is counted for each "
        "spike and each output it reaches; taps past the edge are not there. Arithmetic only: no memory. Each ratio is "
        "to dense arithmetic of the same network over the same T steps."
    )
    page.table(*energy_table(found), "lrrrrrrrl")
    page.table(*rho_table(found), "l" + "r" * len(RHOS))
    page.figure(files[5].read_bytes(), "Energy ratio against rho, log scale")
    page.heading("What the proxy leaves out")
    page.text(
        f"INT8: {PJ_MAC_INT8:g} pJ a multiply-accumulate, {PJ_ADD_INT32:g} pJ an addition. An ordinary network runs "
        "its layers once, not T times: that is the reference here. Microjoules a line."
    )
    page.table(*totals_table(found), "lrrrrrrl")
    page.text(
        f"The same weights with another T than they were trained for (T = {found.about['trained_timesteps']}), on "
        f"{found.steps[0].lines} of the lines:"
    )
    page.table(*steps_table(found), "rrrrrrrr")
    page.foot(made_by)
    return page


def about_rows(about: dict[str, Any]) -> list[tuple[str, str]]:
    told = ((name, about[name]) for name in ("model", "data", "split", "set") if name in about)
    rows = [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in told]
    return [
        *rows,
        ("lines", str(about["lines"])),
        ("timesteps T", str(about["trained_timesteps"])),
        ("parameters", f"{about['parameters'] / 1e6:.2f} M"),
        ("CER on these lines", percent(about["cer"])),
        ("reduction ratio r", f"{about['keep_ratio']:.3f}"),
    ]


def distribution_table(rows: Sequence[Firing]) -> tuple[list[str], list[list[str]]]:
    """tab:snn_sparsity_stats"""
    ours, active = distribution(rows), distribution(rows, active=True)
    named = [("ours", ours), ("ours, a burst counted once", active), ("paper", published.DISTRIBUTION)]
    cells = [
        [name, *(f"{values[key]:.4f}" if key != "modules" else f"{values[key]:g}" for key in ours)]
        for name, values in named
        if values is not active or active != ours
    ]
    return ["", *ours], cells


def stage_table(rows: Sequence[Firing]) -> tuple[list[str], list[list[str]]]:
    """tab:snn_stage_summary, and the encoder's stages."""
    head = ["group", "modules", "mean rate", "median", "spike share", "paper: mean", "median", "share"]
    cells = []
    for part in by_stage(rows):
        paper = published.STAGES.get(part["group"])
        ours = [f"{part['mean']:.4f}", f"{part['median']:.4f}", f"{part['share']:.4f}"]
        cells.append([part["group"], str(part["modules"]), *ours, *(f"{n:.4f}" for n in paper or ())])
    return head, [row + [""] * (len(head) - len(row)) for row in cells]


def top_tables(rows: Sequence[Firing]) -> dict[str, list[list[str]]]:
    """tab:snn_sparsity_topk: both halves, the paper's modules to the right."""
    share = dict(zip((row.name for row in rows), shares(rows), strict=True))
    by_share = sorted(rows, key=lambda row: -share[row.name])[:_TOP]
    by_rate = sorted(rows, key=lambda row: -row.rate)[:_TOP]
    tables = {}
    for title, ours, paper in (
        ("Top modules by spike share", by_share, published.TOP_SHARE),
        ("Top modules by firing rate", by_rate, published.TOP_RATE),
    ):
        tables[title] = [
            [row.name, f"{share[row.name]:.1%}", f"{row.rate:.3f}", name, f"{s:.1%}", f"{r:.3f}"]
            for row, (name, s, r) in zip(ours, paper, strict=False)
        ]
    return tables


def energy_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    """tab:energy_compare"""
    head = ["setting", "dense MACs", "MACs", "ACs", f"E/E_dense (rho {RHO:.2f})", "eligible", "paper: E/E_dense"]
    cells = []
    for row in found.rows:
        paper = published.ENERGY.get(row.name)
        counts = [f"{n:.3e}" for n in (row.dense_macs, row.macs, row.additions)]
        theirs = [f"{paper[3]:.3g}", f"{paper[4]:.3f}"] if paper else ["", ""]
        cells.append([row.name, *counts, f"{row.ratio():.3g}", f"{row.eligible_share:.3f}", *theirs, row.note])
    return [*head, "eligible", "note"], cells


def rho_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    return [
        "E/E_dense",
        *(f"rho {rho:g}" for rho in RHOS),
    ], [[row.name, *(f"{row.ratio(rho):.3g}" for rho in RHOS)] for row in found.rows]


def totals_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    head = ["", "arithmetic", "neurons", "memory", "all", "to ANN fp32", "to ANN INT8", "note"]
    fp32, int8 = found.totals[0].whole, found.totals[1].whole
    cells = []
    for t in found.totals:
        parts = [f"{n:.1f}" for n in (t.arithmetic, t.neurons, t.memory, t.whole)]
        cells.append([t.name, *parts, f"{t.whole / fp32:.2f}", f"{t.whole / int8:.2f}", t.note])
    return head, cells


def steps_table(found: Diagnosis) -> tuple[list[str], list[list[str]]]:
    head = ["T", "dense MACs", "MACs", "ACs", "E/E_dense", "E/E of one pass", "rate, all neurons", "CER"]
    cells = []
    for s in found.steps:
        counts = [f"{n:.3e}" for n in (s.dense_macs, s.macs, s.additions)]
        cells.append(
            [
                str(s.timesteps),
                *counts,
                f"{s.ratio:.3f}",
                f"{s.ratio_one_pass:.3f}",
                f"{s.firing_rate:.4f}",
                percent(s.cer),
            ]
        )
    return head, cells
