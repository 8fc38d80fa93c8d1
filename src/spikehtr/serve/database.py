"""The workbench's SQLite file: its tables, and changes that are made whole or not at all."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spikehtr.errors import SpikeHTRError

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL,
    label TEXT NOT NULL, by_person INTEGER NOT NULL, time REAL NOT NULL, client TEXT, user TEXT, patch BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_page ON events (page, seq);
CREATE TABLE IF NOT EXISTS entities (
    page INTEGER NOT NULL, part TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, value BLOB,
    text TEXT, by TEXT, confidence REAL, PRIMARY KEY (page, part, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS doubtful ON entities (confidence) WHERE part = 'lines' AND by = 'machine';
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, image TEXT NOT NULL, file TEXT,
    width INTEGER NOT NULL, height INTEGER NOT NULL, scale_x REAL NOT NULL DEFAULT 1, scale_y REAL NOT NULL DEFAULT 1,
    stamp TEXT NOT NULL, position REAL NOT NULL, removed INTEGER NOT NULL DEFAULT 0, problem TEXT,
    seq INTEGER NOT NULL DEFAULT 0, written INTEGER NOT NULL DEFAULT 0, file_digest TEXT, file_stamp TEXT,
    lines INTEGER NOT NULL DEFAULT 0, read INTEGER NOT NULL DEFAULT 0, corrected INTEGER NOT NULL DEFAULT 0,
    expected REAL);
CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, stamp TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, value TEXT NOT NULL);
"""


class Database:
    """One process, many threads: every call holds `lock`. A change is on the disk when `transaction` ends."""

    def __init__(self, file: Path) -> None:
        self.lock = threading.RLock()
        self._depth = 0
        try:
            self.db = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10)
            self.db.row_factory = sqlite3.Row
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")  # acknowledged means: also after a power failure
            found = self.db.execute("PRAGMA user_version").fetchone()[0]
            if found > _FORMAT:
                raise SpikeHTRError(f"{file}: written by a newer version (format {found}); update spikehtr")
            self.db.executescript(_SCHEMA)
            self.db.execute(f"PRAGMA user_version = {_FORMAT}")
        except sqlite3.DatabaseError as error:
            remedy = "restore it from a backup, or move it away: pages are then read from their PAGE files"
            raise SpikeHTRError(f"{file}: cannot be used ({error}); {remedy}") from None

    def close(self) -> None:
        with self.lock:
            self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. May be nested: the outermost one counts."""
        with self.lock:
            if self._depth == 0:
                self.db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._roll_back()
                raise
            self._depth -= 1
            if self._depth == 0:
                try:
                    self.db.execute("COMMIT")
                except BaseException:
                    self._roll_back()
                    raise

    def _roll_back(self) -> None:
        self.forget()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def forget(self) -> None:
        """Drop what is held in memory: it may not be on the disk."""

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with self.lock:
            return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> sqlite3.Row | None:
        with self.lock:
            found: sqlite3.Row | None = self.db.execute(sql, values).fetchone()
            return found

    def execute(self, sql: str, *values: object) -> int:
        """A change by itself, or part of the transaction around it; the new row's id."""
        with self.transaction():
            return self.db.execute(sql, values).lastrowid or 0
