"""Writes docs/log.md from the events that may be logged: `make docs`. A test compares the page with its output."""

from __future__ import annotations

from pathlib import Path

from hotspare.telemetry.log import LogEvent

PAGE = Path(__file__).parents[2] / "docs" / "log.md"

_HEAD = """# The log

Written by `make docs` from `src/hotspare/telemetry/log.py`; change the text there.

An engine logs to standard error: a line for each start, end, readiness, change of role and failure, and none while nothing changes.
`hotspare run --log-format json` writes one JSON object per line, `--log-level debug` adds the routine of every few seconds, such as
snapshots, and `--log-level warning` leaves normal life out.

Each line has a time in UTC, an event, a level, and the group and engine. Search and alert on events: their names are stable, the
sentences are not. `error`: something was not done, or an engine ended. `warning`: the engine works on, but an operator should look.
An engine is ready at `engine_started`; its role, logged just before, is `standby` until it becomes active.

| event | level | meaning |
|---|---|---|
"""


def page() -> str:
    """Returns the whole page."""
    return _HEAD + "".join(f"| `{e.label}` | {e.level.name.lower()} | {e.meaning} |\n" for e in LogEvent)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
