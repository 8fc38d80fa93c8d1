"""The files of docs/how-to/cluster: their syntax, and that their commands are commands of ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from spikehtr.cli import app

FOLDER = Path(__file__).parents[2] / "docs" / "how-to" / "cluster"
COMMAND = re.compile(r"spikehtr (transcribe|bulk|train) ([^\n]*)")


def options_of(verb: str) -> set[str]:
    command = get_command(app).commands[verb]  # type: ignore[attr-defined]
    if verb == "bulk":
        command = command.commands["run"]
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*")), ids=lambda file: file.name)
def test_every_command_takes_the_options_it_is_given(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    found = COMMAND.findall(text)
    assert found
    for verb, rest in found:
        given = {word for word in rest.split() if word.startswith("-") and not word.lstrip("-")[:1].isdigit()}
        assert given <= options_of(verb), f"{file.name}: {given - options_of(verb)}"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.sbatch")), ids=lambda file: file.name)
def test_slurm_files_are_shell_and_their_directives_stand_first(file: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    subprocess.run([bash, "-n", str(file)], check=True)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/bin/bash"
    body = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    directives = [line for line in lines if line.startswith("#SBATCH")]
    assert directives
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in directives)
    assert not [line for line in lines[body:] if line.startswith("#SBATCH")], "Slurm would not see them"


def test_the_kubernetes_file_is_a_ray_job_of_our_version_of_ray() -> None:
    (job,) = yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    constraints = (FOLDER.parents[2] / "constraints.txt").read_text(encoding="utf-8")
    assert f"ray=={cluster['rayVersion']}\n" in constraints
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in pods:
        spec = pod["template"]["spec"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
