"""One request at a time to a host, so many a second: over all processes that share the folder."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from filelock import FileLock

_LATEST = 3600.0  # seconds ahead; a turn later than this is a clock that was set back


class RateLimiter:
    """Gives out turns. The time of each host's next turn stands in a file, so processes need no connection."""

    def __init__(self, folder: Path, per_second: float) -> None:
        self._folder, self._interval = folder, 1 / per_second

    def wait(self, host: str) -> None:
        """Returns when it is our turn."""
        mine = self._move(host, 0.0)
        time.sleep(max(0.0, mine - time.time()))

    def pause(self, host: str, seconds: float) -> None:
        """Nobody asks this host before `seconds` have passed."""
        self._move(host, seconds)

    def _move(self, host: str, pause: float) -> float:
        """Take the next turn, or with a pause put it off; the time of the turn taken."""
        file = self._folder / hashlib.sha256(host.encode()).hexdigest()[:24]
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            now = time.time()
            try:
                turn = float(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                turn = 0.0
            turn = now if turn > now + _LATEST else max(turn, now + pause)
            file.write_text(repr(turn if pause else turn + self._interval), encoding="utf-8")
        return turn
