"""The simulation of many GPUs obeys what can be computed by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
from scaling import DAY, Machine, Stages, balanced_cores, main, simulate  # noqa: E402

EXACT = Machine(overhead=0.0, failures=0.0, storage=1e15)
SECONDS = st.floats(1e-3, 10)


def test_a_case_that_can_be_computed_by_hand() -> None:
    point = simulate(Stages(0.3, 0.01, 0.1), EXACT, 2)
    assert point.pages_a_second == pytest.approx(2 * 16 / 0.4)
    assert point.pages_a_day == pytest.approx(80 * DAY)
    assert point.saturates == "cores"
    assert point.busy["GPU"] == pytest.approx(0.4)
    assert point.cost_of_a_million == pytest.approx(2 * 4.0 * 1e6 / 80 / 3600)
    assert balanced_cores(Stages(0.3, 0.01, 0.1)) == pytest.approx(40)


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 64))
def test_more_nodes_never_read_less_and_nothing_works_more_than_all_the_time(
    open_: float, read: float, write: float, nodes: int
) -> None:
    stages, machine = Stages(open_, read, write), Machine()
    one, more = simulate(stages, machine, nodes), simulate(stages, machine, nodes + 1)
    assert more.pages_a_second >= one.pages_a_second
    assert all(0 <= share <= 1 for share in one.busy.values())
    assert one.busy[one.saturates] == max(one.busy.values())
    assert one.pages_a_second <= machine.storage / machine.page_bytes


def test_shared_storage_ends_the_growth() -> None:
    machine = Machine(storage=3e8)
    points = [simulate(Stages(0.1, 0.01, 0.05), machine, nodes) for nodes in (1, 8, 64)]
    assert [point.saturates for point in points] == ["GPU", "storage", "storage"]
    assert points[1].pages_a_second == points[2].pages_a_second == pytest.approx(100)


def test_the_script_takes_a_runs_report_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"pages": 10, "stage_seconds": {"open": 5.0, "read": 0.2, "write": 1.0}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    given = ["--report", str(tmp_path / "report.json"), "-o", str(tmp_path / "p.png")]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *given])
    main()
    assert "read 0.0200" in capsys.readouterr().out
    assert (tmp_path / "p.png").stat().st_size > 1000
