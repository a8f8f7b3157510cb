"""Reads when snapshots are taken, and how, as `--snapshots` says it (SPEC G8, G9, H4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hotspare.base.choices import SnapshotForm
from hotspare.base.errors import UsageError

SnapshotsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--snapshots",
        metavar="WHEN",
        help="'10 seconds', '1000 events', 'cron 30 4 * * *' (UTC), off; full or incremental; 'priority N'. May be repeated.",
    ),
]
_HINT = "write '10 seconds', '1000 events', 'cron 30 4 * * *', off, full, incremental or 'priority 2'"
_EVENTS = re.compile(r"(\d{1,12}) events?")
_PRIORITY = re.compile(r"priority (\d{1,6})")


def snapshot_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Fields of `GroupSettings`. Where anything says when, nothing else does: without a time among them none is taken because of
    time. UsageError for what is not understood or is said twice."""
    found: dict[str, Any] = {}
    for text in texts:
        for name, value in _read(" ".join(text.split())).items():
            if found.setdefault(name, value) != value:
                raise UsageError(f"--snapshots {text!r} contradicts what was said before", hint="say each of them once")
    whens = {"snapshot_interval_ms", "snapshot_events", "snapshot_cron"} & set(found)
    if found.get("snapshot_interval_ms") == 0 and len(whens) > 1:
        raise UsageError("--snapshots off contradicts the others", hint="leave one out")
    return {"snapshot_interval_ms": 0, **found} if whens else found


def _read(text: str) -> dict[str, Any]:
    from hotspare.model.durations import parse_duration

    if text == "off":
        return {"snapshot_interval_ms": 0}
    if text in (each.value for each in SnapshotForm):
        return {"snapshot_form": SnapshotForm(text)}
    if text.startswith("cron "):
        return {"snapshot_cron": text.removeprefix("cron ")}
    if match := _EVENTS.fullmatch(text):
        return {"snapshot_events": _positive(int(match[1]), text)}
    if match := _PRIORITY.fullmatch(text):
        return {"snapshot_priority": int(match[1])}
    try:
        return {"snapshot_interval_ms": _positive(parse_duration(text) // 1_000, text)}
    except ValueError:
        raise UsageError(f"--snapshots {text!r} cannot be read", hint=_HINT) from None


def _positive(count: int, text: str) -> int:
    if not count:
        raise UsageError(f"--snapshots {text!r} is too often", hint="a snapshot takes milliseconds; `off` takes none")
    return count
