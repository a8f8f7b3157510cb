"""Watches the calls of one engine through shared memory and /proc, and ends the engine if a call uses too much.

The parent of `hotspare run` does this itself. Other engines start `python -m hotspare.host.watchdog.watch FD PID`, which ends with
its engine. A look at a resting engine reads some numbers of the shared memory, and no file.

The attempt is recorded before the engine is ended: a watcher in a container may end with its engine. If that fails, it is recorded
after the end, because the engine may have held the lock of coordination's file.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hotspare.base.call_board import BoardSetting, CallBoard, Cell, ShownCall
from hotspare.base.call_place import CallAttempt, CallPlace, HangCause
from hotspare.host.watchdog.recorder import record_attempt
from hotspare.host.watchdog.rule import (
    LOADING_DEADLINES,
    CallLimits,
    CallSample,
    ExcessiveCall,
    crashed_call,
    excess,
    first_sample,
    is_loading_excessive,
)
from hotspare.host.watchdog.shared_memory import watcher_board
from hotspare.host.watchdog.trace import requested_line, written_line
from hotspare.telemetry.log import LogEvent, LogFormat, plain_line

PAUSE_S = 0.25
"""The pause between two looks: a call that ends sooner costs the watcher nothing but the look."""
RECORD_BEFORE_S, RECORD_AFTER_S = 5.0, 15.0
"""Time limits of recording an attempt, before and after the end of the engine."""
_GROWING_PAUSE_S = 0.05
"""The pause while a call lasts whose memory is limited."""
_TICK_MS = 1_000 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_USER_FIELD, _SYSTEM_FIELD = 11, 12
"""Indexes in /proc/PID/task/TID/stat, counted after the name in brackets: processor times in clock ticks."""
_RESIDENT_FIELD, _SHARED_FIELD = 1, 2
"""Indexes in /proc/PID/statm, in pages."""


@dataclass(frozen=True, slots=True)
class WatchFinding:
    """The call that ends the engine, or has ended it. `excess` is None if loading the project exceeds its limit. `slot`: the
    group's slot."""

    slot: int = 0
    excess: ExcessiveCall | None = None


class EngineWatch:
    """The watch of process `engine` over the shared memory `memory`, a descriptor that it closes. `look` is called after each
    `pause_s`. `record_before_s` and `record_after_s` limit how long recording an attempt may take before and after the end of the
    engine."""

    def __init__(
        self,
        memory: int,
        engine: int,
        clock_s: Callable[[], float] = time.monotonic,
        record_before_s: float = RECORD_BEFORE_S,
        record_after_s: float = RECORD_AFTER_S,
    ) -> None:
        self._memory = memory
        self._engine = engine
        self._clock_s = clock_s
        self._record_s = record_before_s, record_after_s
        self._board: CallBoard | None = None
        self._firsts: dict[int, CallSample] = {}
        self._loading_ms: int | None = None

    @property
    def pause_s(self) -> float:
        return _GROWING_PAUSE_S if self._firsts and self._limits.memory_bytes else PAUSE_S

    def look(self) -> WatchFinding | None:
        """Looks at the engine; returns a finding if it must be ended."""
        board = self._published_board()
        if board is None:
            return None
        if board.setting(BoardSetting.IS_LOADING):
            return self._look_at_loading(board)
        self._loading_ms = None
        for slot in range(board.setting(BoardSetting.SLOTS)):
            found = self._look_at_slot(board, slot)
            if found is not None:
                return WatchFinding(slot, found)
        return None

    def crash(self, status: int) -> WatchFinding | None:
        """Returns the call that crashed the engine, which ended with `status`; None if none did, or it cannot be known which."""
        board = self._published_board()
        if board is None:
            return None
        calls = {slot: call for slot in range(board.setting(BoardSetting.SLOTS)) if (call := board.shown_call(slot)) is not None}
        slot = crashed_call(status, calls)
        return None if slot is None else WatchFinding(slot, ExcessiveCall(calls[slot], HangCause.CRASH, 0, 0))

    def call_facts(self) -> dict[str, object] | None:
        """Returns the longest call that runs, as the last look saw it: its place and the processor time that it has used; None
        without one."""
        found = [(self._used_ms(first), first.call) for first in list(self._firsts.values())]
        if not found:
            return None
        used_ms, call = max(found, key=lambda each: each[0])
        return {**asdict(_place(self._text, call)), "used_ms": used_ms}

    def _used_ms(self, first: CallSample) -> int:
        now_ms = thread_ms(self._engine, first.call.thread)
        return 0 if now_ms is None else now_ms - first.used_ms

    def kill(self) -> None:
        """Ends the engine at once."""
        _kill(self._engine)

    def close(self) -> None:
        """Closes the descriptor of the memory."""
        os.close(self._memory)

    def has_call_since(self, time_s: float) -> bool:
        """Whether a call runs that a look saw at `time_s` or before."""
        return any(first.seen_s <= time_s for first in self._firsts.values())

    def report(self, event: LogEvent, message: str, **fields: object) -> None:
        """Writes a line to standard error in the form of the engine's log."""
        text = self._text
        named = {"engine": text["engine"]} if text.get("engine") else {}
        sys.stderr.write(plain_line(LogFormat(text.get("log_format", LogFormat.HUMAN.value)), event, message, **named, **fields))
        sys.stderr.flush()

    def end_engine(self, finding: WatchFinding, then: str) -> None:
        """Records the attempt and ends the engine, in any case. `then` names what follows, for the log."""
        found = finding.excess
        if found is None:
            used_ms = LOADING_DEADLINES * self._limits.deadline_ms
            line = self._line_of(HangCause.DEADLINE)
            what = f"the code of the project does not finish loading{line and f' ({line})'}"
            message = f"{what}; it used {used_ms} ms of processor time: the engine is ended"
            self.report(LogEvent.HUNG_LOADING, message)
            self.kill()
            return
        attempt = self.report_call(
            found, self._group_of(finding), f"exceeds the {found.cause.value} of a call: the engine is ended{then}"
        )
        failure = self._record(finding, attempt, self._record_s[0])
        self.kill()
        if failure:
            self._record_after_end(finding, attempt)

    def record_crash(self, finding: WatchFinding, then: str) -> None:
        """Records the attempt of an engine that ended by the call in `finding`. `then` names what follows, for the log."""
        assert finding.excess is not None
        attempt = self.report_call(finding.excess, self._group_of(finding), f"crashed the engine{then}")
        self._record_after_end(finding, attempt)

    def report_call(self, found: ExcessiveCall, group: str, what: str) -> CallAttempt:
        """Writes a line about a call; returns its attempt. `what` continues the sentence after the place."""
        attempt, line = _attempt(self._text, found), self._line_of(found.cause)
        self.report(
            LogEvent.HUNG_CALL,
            f"{attempt.place}{line and f' ({line})'} {what}",
            group=group,
            line=line,
            cause=attempt.cause.value,
            window=attempt.place.window,
            used_ms=found.used_ms,
            grown_bytes=found.grown_bytes,
        )
        return attempt

    def _line_of(self, cause: HangCause) -> str:
        """Returns where the user code is that does not end, or that crashed; "" if that is unknown."""
        board = self._published_board()
        if board is None:
            return ""
        if cause is HangCause.CRASH:
            return written_line(self._memory, board)
        return requested_line(self._engine, self._memory, board)

    def _group_of(self, finding: WatchFinding) -> str:
        return _name_at(self._text.get("groups"), finding.slot)

    def _record_after_end(self, finding: WatchFinding, attempt: CallAttempt) -> None:
        failure = self._record(finding, attempt, self._record_s[1])
        if failure:
            message = f"the attempt cannot be recorded: {failure}"
            self.report(LogEvent.ATTEMPT_LOST, message, group=self._group_of(finding))

    def _published_board(self) -> CallBoard | None:
        if self._board is None:
            self._board = watcher_board(self._memory)
        return self._board

    @property
    def _text(self) -> Mapping[str, Any]:
        board = self._published_board()
        return {} if board is None else board.text

    @property
    def _limits(self) -> CallLimits:
        if self._board is None:
            return CallLimits()
        return CallLimits(self._board.setting(BoardSetting.DEADLINE_MS), self._board.setting(BoardSetting.MEMORY_BYTES))

    def _record(self, finding: WatchFinding, attempt: CallAttempt, limit_s: float) -> str:
        url = str(self._text.get("coordination", ""))
        if not url or url.startswith("memory:"):
            return "coordination is in the memory of the engine"
        return record_attempt({"coordination": url, "group": self._group_of(finding), "attempt": asdict(attempt)}, limit_s)

    def _look_at_loading(self, board: CallBoard) -> WatchFinding | None:
        used_ms = thread_ms(self._engine, board.slot(0).cells[Cell.THREAD])
        if used_ms is None:
            return None
        if self._loading_ms is None:
            self._loading_ms = used_ms
        return WatchFinding() if is_loading_excessive(self._loading_ms, used_ms, self._limits) else None

    def _look_at_slot(self, board: CallBoard, slot: int) -> ExcessiveCall | None:
        call = board.shown_call(slot)
        if call is None:
            self._firsts.pop(slot, None)
            return None
        sample = self._sample(call)
        first = first_sample(self._firsts.get(slot), sample)
        if sample is None or first is None:
            self._firsts.pop(slot, None)
            return None
        self._firsts[slot] = first
        return excess(first, sample, self._limits)

    def _sample(self, call: ShownCall) -> CallSample | None:
        """Returns a look at the call; None if its thread has ended."""
        used_ms = thread_ms(self._engine, call.thread)
        if used_ms is None:
            return None
        memory_bytes = process_bytes(self._engine) if self._limits.memory_bytes else 0
        return CallSample(call, used_ms, memory_bytes, self._clock_s())


def thread_ms(process: int, thread: int) -> int | None:
    """Returns the processor time of a thread since it began; None if the thread does not exist."""
    fields = _fields(f"/proc/{process}/task/{thread}/stat")
    return None if fields is None else int((int(fields[_USER_FIELD]) + int(fields[_SYSTEM_FIELD])) * _TICK_MS)


def process_bytes(process: int) -> int:
    """Returns the memory of a process that no file or other process shares; 0 if the process does not exist."""
    fields = _fields(f"/proc/{process}/statm")
    return 0 if fields is None else (int(fields[_RESIDENT_FIELD]) - int(fields[_SHARED_FIELD])) * _PAGE_BYTES


def _fields(file: str) -> list[bytes] | None:
    """Returns the fields after a name in brackets, if there is one; None if the process or thread does not exist."""
    try:
        return Path(file).read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _place(text: Mapping[str, Any], call: ShownCall) -> CallPlace:
    topic, partition, offset, index = call.position
    window, version = (_name_at(text.get(names), call.node) for names in ("windows", "versions"))
    return CallPlace(_name_at(text.get("topics"), topic), partition, offset, index, window, version)


def _attempt(text: Mapping[str, Any], found: ExcessiveCall) -> CallAttempt:
    place = _place(text, found.call)
    attempt = CallAttempt(place, found.cause, str(text.get("start", "")), rows=found.call.rows, used_ms=found.used_ms)
    return replace(attempt, engine=str(text.get("engine", "")), host=str(text.get("host", "")))


def _name_at(names: object, index: int) -> str:
    return str(names[index]) if isinstance(names, list) and 0 <= index < len(names) else ""


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def watch_until_end(memory: int, engine: int) -> None:
    """Watches process `engine`, the parent of this process, until it ends."""
    ended = select.poll()
    try:
        ended.register(os.pidfd_open(engine), select.POLLIN)
    except ProcessLookupError:
        return
    if os.getppid() != engine:
        return
    watch = EngineWatch(memory, engine)
    while not ended.poll(watch.pause_s * 1_000):
        finding = watch.look()
        if finding is not None:
            watch.end_engine(finding, "")
            return


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its engine
    watch_until_end(*map(int, sys.argv[1:]))


if __name__ == "__main__":
    main()
