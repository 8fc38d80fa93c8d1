"""`spikehtr serve` as a process of its own, for the benchmarks of the workbench."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path


def start(folder: Path, *options: str, wait: bool = True) -> tuple[subprocess.Popen[str], str]:
    """The process and the address that it has told; `wait` until it answers there."""
    command = [sys.executable, "-m", "spikehtr", "serve", str(folder), "--port", "0", *options]
    variables = os.environ | {"BROWSER": "true"}  # which opens nothing: the browser is ours
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    assert process.stdout is not None
    url = next(found.group().rstrip("/.") for line in process.stdout if (found := re.search(r"http://\S+", line)))
    if wait:  # it listens before it tells its address, and answers when it is ready
        urllib.request.urlopen(f"{url}/healthz", timeout=120).close()
    return process, url


def processor_seconds(pid: int) -> float:
    """What a process has used of the processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
