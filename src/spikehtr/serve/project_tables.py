"""The project's own state as the tables hold it: settings, and of each page its place and whether it was removed."""

from __future__ import annotations

import json

from spikehtr.serve.database import Database
from spikehtr.serve.documents import Entity, Patch, ProjectState, touched
from spikehtr.serve.project_settings import is_setting


def stored(log: Database) -> ProjectState:
    settings = {row["key"]: json.loads(row["value"]) for row in log.rows("SELECT key, value FROM settings")}
    return ProjectState(
        {name: {"value": value} for name, value in settings.items() if is_setting(name)},
        {
            str(row["id"]): page_entity(row["position"], bool(row["removed"]))
            for row in log.rows("SELECT id, position, removed FROM pages")
        },
    )


def page_entity(position: float, removed: bool) -> Entity:
    return {"position": position, "removed": removed}


def store(log: Database, state: ProjectState, patch: Patch) -> None:
    for name in touched(patch, "settings"):
        if (setting := state.settings.get(name)) is None:
            log.execute("DELETE FROM settings WHERE key = ?", name)
        else:
            written = json.dumps(setting["value"], ensure_ascii=False)
            log.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, written)
    for name in touched(patch, "pages"):
        page = state.pages[name]
        sql = "UPDATE pages SET position = ?, removed = ? WHERE id = ?"
        log.execute(sql, page["position"], page["removed"], int(name))
