"""Answers HTTP requests about an engine from its parent: it can answer while user code holds the engine's interpreter for ever.

A few lines over a socket instead of a server of the standard library, which would double the parent's memory. `answer_to` decides,
purely; `serve` moves bytes.

    /livez      200 always
    /readyz     200 if every group of the process takes part: it is active, or a spare that has caught up
    /active     200 if any group of the process is active
    /standby    200 if every group of the process is a spare, with `?lag=N` at most N messages behind
    /status     200 always: the facts as JSON
    /metrics    200 always: the metrics of engine and parent

`?group=NAME` restricts all but `/livez` and `/metrics` to one group. Facts of a group that are older than STALE_S count as unknown.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotspare.host.watchdog.published_facts import PublishedFacts
from hotspare.telemetry.metrics import CONTENT_TYPE, Metric, Samples

REQUEST_S_MAX = 2.0
"""How long a client may take to send its request."""
STALE_S = 5.0
"""The age at which facts count as unknown: an engine publishes about once a second."""
_REQUEST_BYTES_MAX = 8192
_METHODS = (b"GET", b"HEAD", b"OPTIONS")
_JSON = "application/json"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_USER_FIELD, _SYSTEM_FIELD, _START_FIELD, _RESIDENT_FIELD = 11, 12, 19, 21
"""Indexes in /proc/PID/stat, counted after the name in brackets: times in clock ticks, and the resident pages."""


@dataclass(frozen=True, slots=True)
class ParentFacts:
    """The facts that the answers need: `process` is the engine's, 0 between two starts; `call` the call of user code that runs, if
    one lasts; `published` what the engine published, None without it; `now_ns` the present time of the monotonic clock, which all
    processes of a machine share."""

    process: int
    starts: int
    now_ns: int
    call: Mapping[str, object] | None = None
    published: PublishedFacts | None = None

    def age_s(self, since_ns: int) -> float:
        return max(0, self.now_ns - since_ns) / 1e9


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: str
    body: bytes
    type: str = _JSON
    head: Mapping[str, str] = field(default_factory=dict)
    """More header lines."""


def serve(host: str, port: int, facts: Callable[[], ParentFacts]) -> int:
    """Answers in a thread of its own, until the process ends. Returns the port, also if `port` is 0. Raises OSError if the address
    cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    threading.Thread(target=_serve, args=(listener, facts), name="http", daemon=True).start()
    return int(listener.getsockname()[1])


def _serve(listener: socket.socket, facts: Callable[[], ParentFacts]) -> None:
    while True:
        with contextlib.suppress(OSError):  # the client went away, or is too slow
            connection, _ = listener.accept()
            with connection:
                connection.sendall(_response(_request_line(connection), facts))


def _request_line(connection: socket.socket) -> bytes:
    """Returns the first line of the request, once its headers have arrived; b"" if they do not come in time or are too long."""
    until_s, received = time.monotonic() + REQUEST_S_MAX, b""
    while b"\r\n\r\n" not in received and len(received) <= _REQUEST_BYTES_MAX:
        connection.settimeout(max(0.001, until_s - time.monotonic()))
        more = connection.recv(_REQUEST_BYTES_MAX)
        if not more:
            return b""
        received += more
    return received.partition(b"\r\n")[0] if b"\r\n\r\n" in received else b""


def _response(line: bytes, facts: Callable[[], ParentFacts]) -> bytes:
    method, target, _ = [*line.split(b" "), b"", b"", b""][:3]
    if not line:
        answer = HttpAnswer("400 Bad Request", b"{}")
    elif method not in _METHODS:
        answer = HttpAnswer("405 Method Not Allowed", b"{}", head={"Allow": b", ".join(_METHODS).decode()})
    else:
        answer = answer_to(target.decode("latin-1"), facts())
        if method == b"OPTIONS":
            answer = HttpAnswer(answer.status, b"", answer.type, {"Allow": b", ".join(_METHODS).decode()})
    head = {"Content-Type": answer.type, "Content-Length": str(len(answer.body)), "Connection": "close", **answer.head}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {answer.status}\r\n{lines}\r\n".encode() + (b"" if method == b"HEAD" else answer.body)


def answer_to(target: str, facts: ParentFacts) -> HttpAnswer:
    """Returns the answer to a request for `target`, a path with an optional query."""
    path, _, query = target.partition("?")
    wanted = dict(part.partition("=")[::2] for part in query.split("&"))
    if path == "/livez":
        return _json("200 OK", {"engine_process": facts.process or None, "starts": facts.starts, "call": facts.call})
    if path == "/metrics":
        return HttpAnswer("200 OK", _metrics(facts), CONTENT_TYPE)
    lag = wanted.get("lag", "")
    if lag and not lag.isdecimal():
        return _json("400 Bad Request", {"why": [f"lag {lag[:80]!r}: not a number of messages"]})
    views = _views(facts)
    named = [view for view in views if view.name == wanted.get("group", view.name)]
    if path == "/status":
        return _json("200 OK", _status(facts, named))
    if path not in _CHECKS:
        return _json("404 Not Found", {})
    if views and not named:
        return _json("404 Not Found", {"why": [f"this process hosts no group {wanted['group'][:200]!r}"]})
    why = _why_unknown(facts, views) or _CHECKS[path](named, int(lag) if lag else None)
    return _json("503 Service Unavailable" if why else "200 OK", {"why": why} if why else {})


@dataclass(frozen=True, slots=True)
class _GroupView:
    """A group as its engine published it. `lag` is None if it is unknown."""

    name: str
    role: str
    has_caught_up: bool
    lag: int | None
    age_s: float
    facts: Mapping[str, Any]

    @property
    def stale(self) -> str:
        """Why the facts count as unknown; "" if they are fresh."""
        return f"group {self.name} was last heard of {self.age_s:.1f} s ago" if self.age_s > STALE_S else ""


def _views(facts: ParentFacts) -> list[_GroupView]:
    groups = () if facts.published is None else facts.published.facts["groups"]
    return [_GroupView(g["group"], g["role"], g["caught_up"], g["lag"], facts.age_s(g["looked_ns"]), g) for g in groups]


def _why_unknown(facts: ParentFacts, views: Sequence[_GroupView]) -> list[str]:
    if not facts.process:
        return ["the engine has ended and is started again"]
    return [] if views else ["the engine has not joined its group yet"]


def _ready(groups: Sequence[_GroupView], _: int | None) -> list[str]:
    """Returns why the process is not ready, a reason for each group that does not take part; empty if it is."""
    return [why for why in map(_why_not_ready, groups) if why]


def _why_not_ready(group: _GroupView) -> str:
    if group.stale or group.role == "active":
        return group.stale
    if group.role not in ("standby", "promoting"):
        return f"group {group.name} is {group.role}"
    return "" if group.has_caught_up else f"group {group.name} is catching up"


def _active(groups: Sequence[_GroupView], _: int | None) -> list[str]:
    """Returns a reason for each group if none of them is active; else empty."""
    found = [group.stale or ("" if group.role == "active" else f"group {group.name} is {group.role}") for group in groups]
    return found if all(found) else []


def _standby(groups: Sequence[_GroupView], lag_max: int | None) -> list[str]:
    """Returns a reason for each group that is not a spare, or more than `lag_max` messages behind; empty if all are spares."""
    return [why for why in (_why_not_standby(group, lag_max) for group in groups) if why]


def _why_not_standby(group: _GroupView, lag_max: int | None) -> str:
    if group.stale or group.role != "standby":
        return group.stale or f"group {group.name} is {group.role}"
    if lag_max is None:
        return ""
    if group.lag is None:
        return f"group {group.name}: its lag is unknown"
    return f"group {group.name} is {group.lag} messages behind" if group.lag > lag_max else ""


_CHECKS = {"/readyz": _ready, "/active": _active, "/standby": _standby}


def _status(facts: ParentFacts, views: Sequence[_GroupView]) -> dict[str, object]:
    groups = [{**view.facts, "age_s": round(view.age_s, 3)} for view in views]
    for group in groups:
        del group["looked_ns"]
    engine = None if facts.published is None else facts.published.facts["engine"]
    own = {"engine": engine, "engine_process": facts.process or None, "starts": facts.starts, "call": facts.call}
    return {**own, "groups": groups}


def _metrics(facts: ParentFacts) -> bytes:
    own = Samples({})
    own.add(Metric.ENGINE_UP, int(facts.process != 0))
    own.add(Metric.ENGINE_STARTS, facts.starts)
    if facts.published is not None:
        own.add(Metric.METRICS_AGE, facts.age_s(facts.published.facts["published_ns"]))
    if facts.process:
        with contextlib.suppress(OSError, IndexError):  # it has ended
            _add_process(own, facts.process)
    text = b"" if facts.published is None else facts.published.text
    return text + "".join(metric.head + line for metric, (line,) in own.lines.items()).encode()


def _add_process(samples: Samples, process: int) -> None:
    fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    samples.add(Metric.PROCESS_CPU, (int(fields[_USER_FIELD]) + int(fields[_SYSTEM_FIELD])) / _TICKS_PER_S)
    samples.add(Metric.PROCESS_MEMORY, int(fields[_RESIDENT_FIELD]) * _PAGE_BYTES)
    since_boot_s = int(fields[_START_FIELD]) / _TICKS_PER_S
    samples.add(Metric.PROCESS_START, round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot_s, 2))


def _json(status: str, content: Mapping[str, object]) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(content).encode())
