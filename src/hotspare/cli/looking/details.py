"""The facts about a group, as `hotspare status -v` prints them: a block for each engine, at any width. Pure.

engine vm-30097
  role       active since 2026-11-28T22:59:28.000+00:00, epoch 3
  process    vm:30097, running, at 10.0.0.9:40112
  lag        1 message
  position   hotspare.logins.q.logins.I/0: next 122, end 123, lag 1,
             clock 2 ms ahead
  stream     q/alarms: sequence 9, committed 9, held 0, digest
             00000000000000ff
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hotspare.cli.looking.screen import (
    NO_SNAPSHOT,
    bad_events_text,
    decided_call_lines,
    oversized_lines,
    quarantine_lines,
    snapshot_failure_line,
    snapshots_refused,
    stall_lines,
    store_failure_line,
    switchover_lines,
    trouble_age_text,
    undecided_call_lines,
    wrap_lines,
)
from hotspare.cli.topics import time_text
from hotspare.operate.report import Document

_KEY_WIDTH = 13
_RUNNING = {True: ", running", False: ", not running", None: ""}


def group_details(group: Document, columns: int) -> Iterator[str]:
    """Yields the lines of one group. A text that is longer than the screen continues on the next line, indented."""
    active = f"active {group['active'] or 'nobody'}{_lease(group)}"
    yield from wrap_lines(f"group {group['group']}: epoch {group['epoch']}, {active}", columns)
    calls = (*undecided_call_lines(group), *decided_call_lines(group), *quarantine_lines(group))
    for line in (*switchover_lines(group), *calls):
        yield from wrap_lines(line, columns)
    for engine in group["engines"]:
        yield from _block(f"engine {engine['engine']}", _engine_facts(engine), columns)
    if group["progress"]:
        yield from _block("committed outputs", (("stream", _committed(each)) for each in group["progress"]), columns)
    for line in (*store_lines(group), *persist_lines(group)):
        yield from wrap_lines(line, columns)
    newest = group["newest_snapshot"]
    if newest is not None:
        line = f"newest snapshot that may be restored: {newest['age_ms'] / 1000:.1f} s old, by {newest['engine']}"
        yield from wrap_lines(line, columns)
    if group["snapshots"]:
        yield from _block("snapshots", (("snapshot", _snapshot(each)) for each in group["snapshots"]), columns)
    elif not group["store_failure"]:
        yield from wrap_lines(NO_SNAPSHOT, columns)


def store_lines(group: Document) -> list[str]:
    """Returns lines about failures of the store: for this command, at the last write of each engine, and at restores."""
    lines = [] if group["store_failure"] is None else [store_failure_line(group)]
    lines += [snapshot_failure_line(e) for e in group["engines"] if e["snapshot_failure"] and e["role"] is not None]
    return lines + [line for engine in group["engines"] for line in snapshots_refused(engine)]


def persist_lines(group: Document) -> list[str]:
    """Returns lines about the engines that persist a snapshot now, and about the result of the last request."""
    own, done = "the group's store", group["persisted"]
    found = [(e["engine"], e["persisting"]) for e in group["engines"] if e["persisting"] is not None and e["role"] is not None]
    lines = [f"{engine} persists a snapshot to {asked['to'] or own}, request {asked['number']}" for engine, asked in found]
    if done is not None:
        came = done["failure"] or f"snapshot {done['name']}, {done['bytes']} bytes in {done['took_ms']} ms"
        lines.append(f"persisted last, request {done['number']} to {done['to'] or own} by {done['engine']}: {came}")
    return lines


def _engine_facts(engine: Document) -> Iterator[tuple[str, str]]:
    """Yields the facts about an engine, each with its key."""
    yield "role", _role(engine)
    address = f", at {engine['address']}" if engine["address"] else ""
    yield "process", f"{engine['host']}:{engine['process_id']}{_RUNNING[engine['is_running']]}{address}"
    if engine["application"] is not None:
        task = engine["executor"] and f" on executor {engine['executor']}"
        yield "task", f"{engine['task']} of {engine['application']}{task or ''}"
    lags = [position["lag"] for position in engine["positions"] if position["lag"] is not None]
    if lags:
        yield "lag", _count(sum(lags), "message")
    held = [stream["held"] for stream in engine["streams"] if stream["held"] is not None]
    if held:
        yield "held", _count(sum(held), "output") + _format_if_known(", {} bytes", engine["held_bytes"])
    for note in _notes(engine):
        yield "note", note
    if engine["memory"]:
        yield "memory", memory_text(engine)
    if engine["role"] is not None:
        for each in engine["connectors"]:
            yield "connector", _connector(each)
        for each in engine["bad_events"]:
            yield "bad events", f"{bad_events_text(each)}, since the engine started"
        for each in engine["unknown_members"]:
            near = f", perhaps {each['near']} was meant" if each["near"] else ""
            yield "unknown member", f"{each['member']} of {each['window']}, in {_count(each['events'], 'event')}{near}"
    for each in engine["positions"]:
        yield "position", _position(each)
    for each in engine["streams"]:
        numbers = (f"{what} {each[what]}" for what in ("committed", "held", "digest") if each[what] is not None)
        yield "stream", f"{each['stream']}: " + ", ".join([f"sequence {each['sequence']}", *numbers])


def _role(engine: Document) -> str:
    if engine["role"] is None:
        return f"no heartbeat since {time_text(engine['heard_us'])}, was {engine['last_role']}"
    since = "" if engine["role_since_us"] is None else f" since {time_text(engine['role_since_us'])}"
    return f"{engine['role']}{since}{_format_if_known(', epoch {}', engine['epoch'])}"


def _notes(engine: Document) -> Iterator[str]:
    if engine["ended_because"]:
        yield f"ended: {engine['ended_because']}"
        return
    if engine["warming"]:
        yield engine["warming"]
    if engine["starting"]:
        yield f"starting: {engine['starting']}"
    yield from stall_lines(engine)
    if engine["trouble"]:
        yield f"{trouble_age_text(engine)}{engine['trouble']}"
    yield from oversized_lines(engine)


def _connector(connector: Document) -> str:
    again = _format_if_known(
        ", next try in {:.0f} s", None if connector["retry_in_ms"] is None else connector["retry_in_ms"] / 1000
    )
    error = f": {connector['last_error']}" if connector["last_error"] else ""
    return f"{connector['connector']} {connector['state']}, {_count(connector['rows'], 'row')}{again}{error}"


def _position(position: Document) -> str:
    numbers = (("next", "next_offset"), ("end", "end_offset"), ("lag", "lag"))
    said = [f"{word} {position[key]}" for word, key in numbers if position[key] is not None]
    skew_ms = position["skew_ms"]
    if skew_ms is not None:
        said.append(f"clock {abs(skew_ms)} ms {'behind' if skew_ms < 0 else 'ahead of'} the bus's")
    return f"{position['topic'] or 'a topic'}/{position['partition']}: {', '.join(said)}"


def _committed(progress: Document) -> str:
    return f"{progress['stream']}: sequence {progress['sequence']}, epoch {progress['epoch']}, digest {progress['digest']}"


def _snapshot(snapshot: Document) -> str:
    size, time_us = _format_if_known(", {} bytes", snapshot["bytes_total"]), snapshot["written_time_us"]
    written = "" if time_us is None else f", written {time_text(time_us)}"
    return f"{snapshot['name']} {snapshot['status']}, by {snapshot['engine']}{size}{written}"


def memory_text(engine: Document) -> str:
    """Returns the memory of an engine's state in MiB, by kind; "" if the engine has no budget."""
    return ", ".join(f"{what.replace('_', ' ')} {size / (1 << 20):.0f} MiB" for what, size in engine["memory"].items())


def _lease(group: Document) -> str:
    left_ms = group["lease_left_ms"]
    if left_ms is None:
        return ""
    return f", {left_ms} ms of its lease left" if left_ms > 0 else ", its lease has expired"


def _format_if_known(text: str, value: Any) -> str:
    """Returns the text with a value, "" if the value is unknown."""
    return "" if value is None else text.format(value)


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _block(title: str, entries: Iterator[tuple[str, str]], columns: int) -> Iterator[str]:
    yield from wrap_lines(title, columns)
    for key, text in entries:
        yield from wrap_lines(f"  {key:<{_KEY_WIDTH - 2}}{text}", columns, indent=_KEY_WIDTH)
