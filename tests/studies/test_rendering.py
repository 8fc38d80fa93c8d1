from dataclasses import replace

from test_comparisons import row

from spikehtr.report import environment
from spikehtr.studies.plan import load_study
from spikehtr.studies.rendering import made_with
from spikehtr.studies.results import Block


def test_a_page_says_what_its_runs_were_trained_with_not_what_drew_it():
    study, here = load_study("ann-control"), environment()
    spiking, gelu, pure = row(study, "spiking", 6, 7), row(study, "gelu", 5), row(study, "pure")
    assert made_with([Block("d", [spiking, gelu, pure])]) == here, "runs that do not say"
    runs = [replace(run, made=here | {"torch": f"9.{run.seed}", "seed": 3}) for run in spiking.runs]
    found = made_with([Block("d", [replace(spiking, runs=runs), gelu, pure])])
    assert found == here | {"torch": "9.0 / 9.1"}
    runs = [replace(run, made={"torch": "9.2"}) for run in spiking.runs]  # by code that noted less
    assert made_with([Block("d", [replace(spiking, runs=runs)])]) == {"torch": "9.2"}
