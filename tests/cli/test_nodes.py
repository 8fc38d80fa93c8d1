"""Training on two machines, here two nodes on loopback: Lightning's launcher and torchrun."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_help import REPEATABLE, SETTINGS, curve, drawn_words
from safetensors.torch import load_file

from spikehtr.config import Config
from spikehtr.data.compiling import compile_store
from spikehtr.errors import SpikeHTRError
from spikehtr.training.checkpoint import has_checkpoint
from spikehtr.training.devices import Layout, layout

GRADIENTS = Path(__file__).parents[1] / "training" / "gradients_help.py"
STEPS = 6


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nodes")
    drawn_words(folder / "made", 24)
    compile_store([folder / "made"], folder / "lines.arrow", height=24)
    compile_store([folder / "made"], folder / "low.arrow", height=16)
    Config().with_overrides(SETTINGS | REPEATABLE | {"training.batch_size": 9}).save(folder / "micro.yaml")
    return folder


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def on_nodes(*command: object) -> list[subprocess.Popen[str]]:
    """The same command on two nodes, as Lightning's launcher wants it."""
    port = free_port()
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=os.environ | shared | {"NODE_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[str]:
    errors = [process.communicate(timeout=600)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    return errors


def train(place: Path, name: str, *more: object) -> list[object]:
    data = ["-d", place / "low.arrow", "-c", place / "micro.yaml"]
    limits = ["--max-steps", STEPS, "--save-every", 1]  # a row of the log and a checkpoint for each step
    return ["-m", "spikehtr", "train", *data, "-o", place / name, *limits, *more]


def on_two_nodes(place: Path) -> str:
    """The run that the others are compared with, made once."""
    if not (place / "two").exists():
        ended(on_nodes(*train(place, "two", "--nodes", 2)))
    return "two"


def assert_same(place: Path, one: str, other: str) -> None:
    rows, others = curve(place / one), curve(place / other)
    assert [row["step"] for row in rows] == [row["step"] for row in others] == [*range(1, STEPS + 1)]
    for a, b in zip(rows, others, strict=True):
        for name in ("loss", "ctc", "aux", "kl", "gradient", "learning_rate"):
            assert a[name] == pytest.approx(b[name], rel=1e-4, abs=1e-6), (name, a["step"])


@pytest.mark.slow
def test_the_gradients_of_the_first_step_are_those_of_one_process(place: Path) -> None:
    alone = [sys.executable, str(GRADIENTS), str(place / "lines.arrow"), str(place / "one.safetensors"), "1"]
    subprocess.run(alone, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=600)
    ended(on_nodes(GRADIENTS, place / "lines.arrow", place / "two.safetensors", 2))
    one, two = (load_file(place / f"{name}.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    largest = max(float(gradient.abs().max()) for gradient in one.values())
    assert largest > 1e-3, "there is something to compare"
    assert max(float((one[name] - two[name]).abs().max()) for name in one) <= 1e-6 * max(1.0, largest)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_nodes_give_the_loss_curve_of_one(launcher: str, place: Path) -> None:
    if not (place / "one").exists():
        subprocess.run([sys.executable, *map(str, train(place, "one"))], check=True, timeout=600)
    if launcher == "lightning":
        launcher = on_two_nodes(place)
    else:
        port = free_port()
        runner = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        runner += ["--master-addr", "127.0.0.1", "--master-port", port]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        begun = list(map(str, train(place, launcher)))
        ended(
            [
                subprocess.Popen(
                    [*runner, "--node-rank", str(rank), "--local-addr", f"127.0.0.{rank + 1}", *begun],
                    env=environment,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
        )
    assert_same(place, "one", launcher)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_run_goes_on_after_one_of_its_processes_was_killed(killed: int, place: Path) -> None:
    whole, name = on_two_nodes(place), f"killed{killed}"
    nodes = on_nodes(*train(place, name, "--nodes", 2))
    deadline = time.monotonic() + 200
    while not has_checkpoint(place / name) and nodes[killed].poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    nodes[killed].send_signal(signal.SIGKILL)
    said = nodes[1 - killed].communicate(timeout=600)[1]
    assert "Traceback" not in said, said
    if nodes[1 - killed].returncode != 0:  # it may have been done before
        assert "another process of this run is gone" in said or killed == 0
    nodes[killed].communicate()
    ended(on_nodes(*train(place, name, "--nodes", 2, "--resume")))
    assert_same(place, whole, name)


def test_who_started_a_training_says_how_many_processes_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert layout(3, 1) == Layout(3, 1)
    with pytest.raises(SpikeHTRError, match="MASTER_ADDR, MASTER_PORT, NODE_RANK"):
        layout(1, 2)
    for name, value in (("MASTER_ADDR", "h"), ("MASTER_PORT", "1"), ("NODE_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert layout(4, 2) == Layout(4, 2)
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_JOB_NAME", "training")
    assert layout(1, 1) == Layout(4, 2)
    with pytest.raises(SpikeHTRError, match="--ntasks-per-node=8"):
        layout(8, 2)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("GROUP_WORLD_SIZE", "3")
    assert layout(1, 1) == Layout(2, 3)
