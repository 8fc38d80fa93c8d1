"""The log of a run: `log.csv` always, TensorBoard where it is installed. A resumed run goes on in the same files."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyarrow.csv import ParseOptions, read_csv

from spikehtr.files import whole_file
from spikehtr.training.monitoring import MEASURED, LogEntry

CSV, TENSORBOARD = "log.csv", "tensorboard"
FIELDS = ("step", "epoch", "seconds", "learning_rate", *MEASURED, "lines_per_second", "validation_cer")


class Log:
    """Writes a row each time something is told. Rows past `step`, of a run that was killed later, are taken out."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / CSV
        earlier = [row for row in read_log(folder) if row["step"] <= step] if step else []
        with whole_file(self.path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(earlier)
        self._board: Any = None
        if find_spec("tensorboard") or find_spec("tensorboardX"):
            from lightning_fabric.loggers.tensorboard import TensorBoardLogger

            self._board = TensorBoardLogger(folder, name=TENSORBOARD, version="", purge_step=step + 1)

    def __call__(self, told: LogEntry) -> None:
        about = {"step": told.step, "epoch": told.epoch, "seconds": round(told.seconds, 2)}
        speed = {"learning_rate": told.learning_rate, "lines_per_second": round(told.lines_per_second, 1)}
        row = about | speed | told.values | {"validation_cer": told.cer}
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, FIELDS).writerow(row)
        if self._board is not None:
            numbers = {name: value for name, value in row.items() if name != "step" and value is not None}
            self._board.log_metrics(numbers, told.step)
            if told.epoch_ended:
                self._board.save()

    def close(self) -> None:
        if self._board is not None:
            self._board.finalize("success")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's log, numbers as numbers, None where a cell is empty; no log, no rows."""
    if not (folder / CSV).is_file():
        return []
    whole_rows = ParseOptions(invalid_row_handler=lambda _: "skip")  # without one cut short by a kill
    rows: list[dict[str, Any]] = read_csv(folder / CSV, parse_options=whole_rows).to_pylist()
    return rows
