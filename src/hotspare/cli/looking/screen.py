"""The screen for an incident: first the troubles as sentences, then a line for each engine; it fits 60 columns. Pure.

hotspare.logins, epoch 3
! connector q/logins/in failed, next try in 4 s: file in.csv
  cannot be read
vm-30097  active   lag 1   for 4 min
vm-30089  standby  lag 1   for 2 min
vm-29011  gone     for 8 min, was standby
vm-31002  starting: Spark
newest snapshot 5 s old, by vm-30089
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from hotspare.base.call_place import CallPlace
from hotspare.bus.naming import whole_group
from hotspare.operate.report import Document

NO_SNAPSHOT = "no snapshot is here; if the group keeps them elsewhere, give --store URL"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def screen_lines(document: Document, now_us: int, columns: int) -> Iterator[str]:
    """Yields the lines for all groups of a report, except shards without trouble. A text that is longer than the screen continues
    on the next line, indented."""
    for group in document["groups"]:
        troubles = list(_troubles(group))
        if whole_group(group["group"]) != group["group"] and not troubles:
            continue
        yield f"{group['group']}, epoch {group['epoch']}"
        for trouble in troubles:
            yield from wrap_lines(f"! {trouble}", columns)
        yield from _engines(group, now_us)
        for line in _remarks(group):
            yield from wrap_lines(line, columns)


def has_active(group: Document) -> bool:
    """Whether the group has an active engine whose lease has not expired, as far as is known."""
    return bool(group["active"]) and (group["lease_left_ms"] is None or group["lease_left_ms"] > 0)


def store_failure_line(group: Document) -> str:
    return f"the store of snapshots does not answer: {group['store_failure']}"


def snapshot_failure_line(engine: Document) -> str:
    return f"{engine['engine']} continues without a new snapshot: {engine['snapshot_failure']}"


def stall_lines(engine: Document) -> list[str]:
    """Returns a line if Spark delivers no input although input is pending; else an empty list."""
    return [f"no input for {_span(engine['stalled_ms'] // 1000)} although input is pending"] if engine["stalled_ms"] else []


def oversized_lines(engine: Document) -> list[str]:
    """Returns a line for each stream that waits because an output is too large for its topic."""
    return [f"stream {stream} waits: {why}" for stream, why in engine["oversized"].items()]


def snapshots_refused(engine: Document) -> list[str]:
    """Returns a line for each snapshot that the engine could not start from."""
    return [f"{engine['engine']}: {why}" for why in engine["snapshots_refused"]]


def bad_events_text(counted: Document) -> str:
    """Returns window, count and reason of bad events: `of q/sums: 3 expression`."""
    where = f"of {counted['window']}" if counted["window"] else "before any window"
    return f"{where}: {counted['count']} {counted['reason']}"


def trouble_age_text(engine: Document) -> str:
    """Returns the age of an engine's trouble, with a colon: `20 s ago: `."""
    age_ms = engine["trouble_age_ms"]
    return "within the last minute: " if age_ms is None else f"{_span(age_ms // 1000)} ago: "


def switchover_lines(group: Document) -> list[str]:
    """Returns a line about the pending request for a switch-over; empty if there is none."""
    to = group["switchover_asked"]
    return [] if to is None else [f"a switch-over to {to or 'any spare'} is requested"]


def undecided_call_lines(group: Document) -> list[str]:
    """Returns a line for each call of user code that did not end and is undecided."""
    return [
        f"{_hung_call(each)}: exceeds its {each['cause']}, {each['starts']} starts failed"
        for each in group["hung_calls"]
        if each["decision"] is None
    ]


def decided_call_lines(group: Document) -> list[str]:
    """Returns a line for each decision about a call of user code."""
    decided = [each for each in group["hung_calls"] if each["decision"] is not None]
    return [f"{_hung_call(each)}: the window refuses it (decision {each['decision']})" for each in decided]


def quarantine_lines(group: Document) -> list[str]:
    """Returns a line for each window in quarantine."""
    return [f"the code of window {window} gets no events: it is in quarantine" for window in group["quarantined"]]


def _hung_call(call: Document) -> str:
    return f"user code of {CallPlace(call['topic'], call['partition'], call['offset'], call['index'], call['window'])}"


def _troubles(group: Document) -> Iterator[str]:
    living = [engine for engine in group["engines"] if engine["role"] is not None]
    working = [engine for engine in living if not engine["starting"]]
    starting = "" if working == living else ": one is starting"
    if not group["active"]:
        yield f"no engine is active{starting}"
    elif not has_active(group):
        yield f"no engine is active: the lease of {group['active']} has expired"
    if len(working) == 1 and has_active(group):
        yield f"there is no spare{starting}"
    if group["store_failure"] is not None:
        yield store_failure_line(group)
    yield from undecided_call_lines(group)
    yield from quarantine_lines(group)
    for engine in group["engines"]:
        if engine["ended_because"]:
            yield f"{engine['engine']} ended: {engine['ended_because']}"
    for engine in living:
        yield from _troubles_of(engine)


def _troubles_of(engine: Document) -> Iterator[str]:
    name = engine["engine"]
    if engine["trouble"]:
        yield f"{name}, {trouble_age_text(engine)}{engine['trouble']}"
    for line in (*stall_lines(engine), *oversized_lines(engine)):
        yield f"{name}: {line}"
    if engine["snapshot_failure"]:
        yield snapshot_failure_line(engine)
    yield from snapshots_refused(engine)
    for each in engine["connectors"]:
        if each["last_error"] and each["state"] in ("failed", "waiting"):
            again = "" if each["retry_in_ms"] is None else f", next try in {_span(each['retry_in_ms'] // 1000)}"
            yield f"connector {each['connector']} {each['state']}{again}: {each['last_error']}"
    if engine["role"] == "active":
        for each in engine["bad_events"]:
            yield f"bad events {bad_events_text(each)}"


def _engines(group: Document, now_us: int) -> Iterator[str]:
    rows = [_row(engine, now_us) for engine in group["engines"]]
    widths = [max((len(row[i]) for row in rows if any(row[i + 1 :])), default=0) for i in range(3)]
    for *cells, last in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), last]).rstrip()


def _row(engine: Document, now_us: int) -> tuple[str, str, str, str]:
    """Returns name, role, lag, and the age of the role. The lag is "" if it is unknown or the engine sends no heartbeat."""
    if engine["role"] is None:
        return engine["engine"], "gone", "", f"for {_span(_ago(engine['heard_us'], now_us))}, was {engine['last_role']}"
    if engine["starting"]:
        return engine["engine"], f"starting: {engine['starting']}", "", ""
    lags = [position["lag"] for position in engine["positions"] if position["lag"] is not None]
    since = engine["role_since_us"]
    more = [engine["warming"]] if engine["warming"] else []
    lasting = [] if since is None else [f"for {_span(_ago(since, now_us))}"]
    return engine["engine"], engine["role"], f"lag {sum(lags)}" if lags else "", ", ".join([*lasting, *more])


def _remarks(group: Document) -> Iterator[str]:
    yield from switchover_lines(group)
    yield from decided_call_lines(group)
    newest: dict[str, Any] | None = group["newest_snapshot"]
    if newest is not None:
        yield f"newest snapshot {_span(newest['age_ms'] // 1000)} old, by {newest['engine']}"
    elif not group["store_failure"]:
        yield NO_SNAPSHOT


def _ago(time_us: int, now_us: int) -> int:
    return max(0, now_us - time_us) // 1_000_000


def _span(seconds: int) -> str:
    """Returns a duration in one unit: `4 min`."""
    return next((f"{seconds // size} {unit}" for size, unit in _UNITS if seconds >= size), f"{seconds} s")


def wrap_lines(text: str, columns: int, indent: int = 2) -> list[str]:
    """Returns the lines of a text; one that is longer than the screen continues on the next, indented."""
    return textwrap.wrap(text, columns, subsequent_indent=" " * indent, break_on_hyphens=False)
