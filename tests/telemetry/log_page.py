"""Writes docs/log.md from the events that may be logged: `make docs`. A test compares the page with its output."""

from __future__ import annotations

from pathlib import Path

from hotspare.telemetry.log import LogEvent

PAGE = Path(__file__).parents[2] / "docs" / "log.md"

_HEAD = """# The log

After this page you can look up an event of the log, and choose the events that raise an alarm.

An engine logs to standard error: a line for each start, end, change of role and failure, and none while nothing changes.
`hotspare run --log-format json` writes one JSON object per line. `--log-level debug` adds routine events that occur every few
seconds, such as snapshots; `--log-level warning` omits normal events.

Each line has a time in UTC, an event, a level, and the group and engine. Search and alert by event, because the names of events are
stable and the sentences are not.

- `error`: something was not done, or an engine ended.
- `warning`: the engine continues, but an operator should look.
- An engine is ready at `engine_started`. Its role, logged just before, is `standby` until it becomes active.

The page is written by `make docs` from `src/hotspare/telemetry/log.py`; change the text there.

| event | level | meaning |
|---|---|---|
"""


def page() -> str:
    """Returns the whole page."""
    return _HEAD + "".join(f"| `{e.label}` | {e.level.name.lower()} | {e.meaning} |\n" for e in LogEvent)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
