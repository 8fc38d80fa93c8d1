"""`spikehtr serve` as a process of its own, that can be asked, stopped and killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import spikehtr


class Server:
    """`spikehtr serve` as a process of its own."""

    def __init__(self, folder: Path, model: Path | None = None, *options: str) -> None:
        pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
        self.folder = folder
        source = str(Path(spikehtr.__file__).parents[1])
        variables = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "spikehtr", "serve", str(folder), "--no-browser", "--port", "0", *options]
        if model:
            command += ["--model", str(model)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"http://\S+", line):
                self.url = found.group().partition("?")[0].rstrip("/.")
                return self._wait()
        raise AssertionError("the server did not start: " + "".join(said))

    def _wait(self) -> None:
        """The address is told before the first request is answered."""
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def kill(self) -> None:
        """As kill -9 does: nothing is ended in order."""
        self.process.kill()
        self.process.communicate()

    @property
    def most_memory(self) -> int:
        """Bytes that the process had at most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10
