"""What 1 to 64 GPUs would read in a day and what it would cost, from the seconds that each stage was measured to take.

    python benchmarks/scaling.py --report run/report.json --cores 16 --price 4.0 -o docs/images/scaling.png

A node is one GPU with some cores. Opening and writing take cores, reading takes the GPU (or the rest of the cores, with
--no-gpu), fetching takes the network and storage that all nodes share. Stages overlap, so the slowest of them is what a
run takes; `saturates` names it. Nodes fail now and then: what they had in hand is done again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

DAY = 86400.0


@dataclass(frozen=True)
class Stages:
    """Seconds a page, of one core or one reader."""

    open: float
    read: float
    write: float


@dataclass(frozen=True)
class Machine:
    cores: int = 16  # of a node
    has_gpu: bool = True
    price: float = 4.0  # of a node, an hour
    overhead: float = 0.08  # share of the time of each stage that goes to moving data between processes
    storage: float = 2.0e9  # bytes a second that all nodes together read
    page_bytes: float = 3.0e6  # of an image file
    failures: float = 0.01  # of a node, an hour
    lost: float = 120.0  # seconds of a node's work that a failure costs


@dataclass(frozen=True)
class Point:
    nodes: int
    pages_a_second: float
    pages_a_day: float
    cost_of_a_million: float
    busy: dict[str, float]  # share of the time that each part works
    saturates: str


def simulate(stages: Stages, machine: Machine, nodes: int) -> Point:
    """Rates of each part if nothing held it back; the lowest is the run's."""
    work = 1 + machine.overhead
    cores = nodes * machine.cores
    if machine.has_gpu:
        rates = {
            "cores": cores / ((stages.open + stages.write) * work),
            "GPU": nodes / (stages.read * work),
        }
    else:
        rates = {"cores": cores / ((stages.open + stages.read + stages.write) * work)}
    rates["storage"] = machine.storage / machine.page_bytes
    slowest = min(rates, key=lambda name: rates[name])
    left = 1 - machine.failures * machine.lost / 3600  # of each node's time, once failures are paid for
    speed = rates[slowest] * (left if slowest != "storage" else 1.0)
    busy = {name: min(1.0, speed / rate) for name, rate in rates.items()}
    cost = nodes * machine.price * 1e6 / (speed * 3600)
    return Point(nodes, speed, speed * DAY, cost, busy, slowest)


def balanced_cores(stages: Stages) -> float:
    """How many cores keep one GPU busy."""
    return (stages.open + stages.write) / stages.read


def measured(report: Path) -> Stages:
    """The stages of a bulk run, from its report."""
    values = json.loads(report.read_text(encoding="utf-8"))
    pages = max(1, values["pages"])
    seconds = values["stage_seconds"]
    return Stages(*(seconds[name] / pages for name in ("open", "read", "write")))


def plot(points: list[Point], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure((9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    nodes = [point.nodes for point in points]
    left.plot(nodes, [point.pages_a_day / 1e6 for point in points], "o-", color="tab:blue")
    left.set(xscale="log", yscale="log", xlabel="nodes", ylabel="million pages a day")
    cost = left.twinx()
    cost.plot(nodes, [point.cost_of_a_million for point in points], "s--", color="tab:red")
    cost.set_ylabel("cost of a million pages", color="tab:red")
    cost.set_ylim(bottom=0)
    for name in points[0].busy:
        right.plot(nodes, [point.busy[name] for point in points], "o-", label=name)
    right.set(xscale="log", xlabel="nodes", ylabel="share of the time at work", ylim=(0, 1.05))
    right.legend()
    for axis in (left, right):
        axis.set_xticks(nodes, map(str, nodes))
        axis.grid(alpha=0.3)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, help="of a bulk run: where the stages' seconds are taken from")
    parser.add_argument("--open", type=float, help="seconds of a core to open, segment and cut a page")
    parser.add_argument("--read", type=float, help="seconds of a reader to read its lines")
    parser.add_argument("--write", type=float, help="seconds of a core to put it together and write it")
    parser.add_argument("--no-gpu", action="store_true", help="readers use the cores, too")
    defaults = Machine()
    for name in ("cores", "price", "overhead", "storage", "page_bytes", "failures", "lost"):
        value = getattr(defaults, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("-o", "--output", type=Path, help="a PNG file for the plot")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.report:
        stages = measured(given.report)
    elif None not in (given.open, given.read, given.write):
        stages = Stages(given.open, given.read, given.write)
    else:
        parser.error("give --report, or all of --open, --read and --write")
    names = ("cores", "price", "overhead", "storage", "page_bytes", "failures", "lost")
    machine = Machine(has_gpu=not given.no_gpu, **{name: getattr(given, name) for name in names})
    points = [simulate(stages, machine, 2**power) for power in range(7)]
    if given.json:
        print(json.dumps({"stages": asdict(stages), "machine": asdict(machine), "points": [asdict(p) for p in points]}))
    else:
        print(f"seconds a page: open {stages.open:.3f}, read {stages.read:.4f}, write {stages.write:.3f}")
        if machine.has_gpu:
            print(f"one GPU is kept busy by {balanced_cores(stages):.0f} cores; a node has {machine.cores}")
        print(f"{'nodes':>5} {'pages/s':>9} {'pages/day':>13} {'cost/million':>13}  saturates")
        for p in points:
            row = f"{p.nodes:>5} {p.pages_a_second:>9.1f} {p.pages_a_day:>13,.0f} {p.cost_of_a_million:>13,.2f}"
            print(f"{row}  {p.saturates}")
    if given.output:
        plot(points, given.output)


if __name__ == "__main__":
    main()
