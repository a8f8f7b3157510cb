"""What a task of Spark runs: the groups of shards that it is told, which may come and go while it runs.

Each shard has a thread of its own, from joining its group to leaving it, beside that of its runner. One that is no longer wanted
gives up its role and leaves, as an engine does that is asked to stop; the process and its other groups go on. One that cannot join
because of what passes by itself, such as a coordination that does not answer in time, tries again, and the others go on, too. If a
group ends by itself, so does all, as with any engine process: whoever started the task starts it again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from hotspare.base.errors import is_retryable
from hotspare.base.retry import Retry
from hotspare.base.shard import Shard
from hotspare.base.stop_signals import stop_asked
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.rules.roles import Role
from hotspare.host.clock import monotonic_ms
from hotspare.host.hosted_group import HostedGroup
from hotspare.host.options import EngineOptions
from hotspare.host.process import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_RUNNER_DIED,
    check_before_joining,
    check_when_joined,
    make_ready,
    open_shared,
)
from hotspare.model.partitioning import refused_shards
from hotspare.projects.load import LoadedProject
from hotspare.runners.contract import EndCause, ReadPace, RunnerEnd
from hotspare.runners.local import LocalRunner
from hotspare.telemetry.log import Log, LogEvent

_T = TypeVar("_T")

_JOINING_MAX = 8
"""Groups that join at a time; each that restores has its snapshot in memory twice for a moment."""
_STOP_MS_MAX = 5_000
_JOIN_S_MAX = 15.0
_JOINS = Retry(lasting_s=60.0, pause_s=0.1, pause_max_s=0.5)
"""For longer nothing passes by itself: the task ends, and is started again, perhaps elsewhere."""
_LOOK_S = 1.0
_COMPLETE = (Role.STANDBY, Role.PROMOTING, Role.ACTIVE)


class ShardHost:
    """`run` from the main thread; everything else from any. What it opens is closed with `stack`. ProjectError where the project
    cannot be divided so."""

    def __init__(self, options: EngineOptions, loaded: LoadedProject, log: Log, stack: contextlib.ExitStack) -> None:
        if (refusal := refused_shards(loaded.resolved, options.shards)) is not None:
            raise refusal
        self.options = options
        self.log = log
        self.shared = open_shared(options, loaded, log, stack)
        self.joining = threading.BoundedSemaphore(_JOINING_MAX)
        self._wanted: frozenset[int] = frozenset()
        self._stays: dict[int, ShardStay] = {}
        self._checked: set[str] = set()
        self._checking = threading.Lock()
        self._changed = threading.Event()
        self._is_stop_asked = False
        self.end_reason = ""
        """Why groups ended by themselves, once `run` has returned; "" where none did."""

    def host(self, shards: Iterable[int]) -> None:
        """From now on these and no others."""
        wanted = frozenset(shards)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def ask_stop(self) -> None:
        """`run` gives up the roles and returns."""
        self._is_stop_asked = True
        self._changed.set()

    def hang_up(self) -> None:
        """Tell the spares at once that this process is about to end."""
        self.shared.server.hang_up()

    def complete(self) -> list[int]:
        """The shards that it hosts for longer, and whose engine has all its state and reads input."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete)

    def caught_up(self) -> list[int]:
        """Of these, whose engine has also taken what its topics held when it joined: it can take over at once."""
        return sorted(shard for shard, stay in dict(self._stays).items() if stay.is_complete and stay.has_caught_up)

    def run(self) -> int:
        """Until it is asked to stop or a group ends by itself: the exit status. Raises what a group raised."""
        make_ready(self.shared, self.log)
        with stop_asked(self.ask_stop):
            while not self._is_stop_asked and not self._ended():
                self._follow()
                self._changed.wait(_LOOK_S)
                self._changed.clear()
            ended = self._ended()
            self.log.event(LogEvent.ENGINE_STOPPING)
            self._leave_all()
        return self._exit_status(ended)

    def _follow(self) -> None:
        for shard, stay in list(self._stays.items()):
            if stay.is_over:
                del self._stays[shard]  # it may come again
            elif shard not in self._wanted:
                stay.leave()
        for shard in sorted(self._wanted - self._stays.keys()):
            self._stays[shard] = ShardStay(self, Shard(shard, self.options.shards))

    def _ended(self) -> list[ShardStay]:
        return [stay for stay in self._stays.values() if stay.has_ended_itself]

    def _leave_all(self) -> None:
        for stay in self._stays.values():
            stay.leave()
        for stay in self._stays.values():
            stay.join()

    def _exit_status(self, ended: list[ShardStay]) -> int:
        self.end_reason = "; ".join(dict.fromkeys(filter(None, (stay.end_reason for stay in ended))))
        failure = next((stay.failure for stay in ended if stay.failure is not None), None)
        if failure is not None:
            raise failure
        if ended:
            self.log.event(LogEvent.ENGINE_FAILED, self.end_reason)
            return EXIT_FAILED
        self.log.event(LogEvent.ENGINE_STOPPED)
        return EXIT_OK

    # --- for the stays ---------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something ended: look what is to be done."""
        self._changed.set()

    @property
    def groups(self) -> int:
        """How many share the memory as it is now; those that are there already keep what they have."""
        return max(1, len(self._wanted))

    def check_once(self, name: str, check: Callable[[], None]) -> None:
        """What is checked by whichever group comes to it first; the others wait for it."""
        with self._checking:
            if name not in self._checked:
                check()
                self._checked.add(name)

    def end_at_once(self, why: str) -> NoReturn:
        """A runner that hangs would hang when it is stopped, too."""
        self.hang_up()
        self.log.event(LogEvent.RUNNER_ENDED, why)
        sys.stderr.flush()
        os._exit(EXIT_RUNNER_DIED)


class ShardStay:
    """One shard, from the time on at which this is made until it has left; then `is_over`."""

    def __init__(self, host: ShardHost, shard: Shard) -> None:
        self.is_reading = False
        self.is_over = False
        self.failure: Exception | None = None
        self._host = host
        self._shard = shard
        self._group: HostedGroup | None = None
        self._end: RunnerEnd | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"shard-{shard.number}", daemon=True)
        self._thread.start()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def role(self) -> Role:
        return Role.JOINING if self._group is None else self._group.engine.role

    @property
    def is_complete(self) -> bool:
        return self.is_reading and not self.is_leaving and self.role in _COMPLETE

    @property
    def has_caught_up(self) -> bool:
        return self._group is not None and self._group.has_caught_up

    @property
    def has_ended_itself(self) -> bool:
        """It failed, or it ended though nobody told it to leave."""
        return self.failure is not None or (self.is_over and not self.is_leaving) or self._has_failed_reading

    @property
    def end_reason(self) -> str:
        if self._end is not None and self._end.error is not None:
            return str(self._end.error)
        return str(self.failure) if self.failure is not None else "" if self._group is None else self._group.engine.stopped_reason

    @property
    def _has_failed_reading(self) -> bool:
        return self._end is not None and self._end.cause is not EndCause.STOPPED

    def leave(self) -> None:
        if not self._leaving.is_set():
            self._leaving.set()
            self._wake()

    def join(self) -> None:
        self._thread.join(_JOIN_S_MAX)

    def _wake(self) -> None:
        if self._group is not None:
            self._group.wake.set()

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._live(stack)
        except Exception as error:
            if not (self.is_leaving and is_retryable(error)):
                self.failure = error
        finally:
            self.is_over = True
            self._host.wake()

    def _live(self, stack: contextlib.ExitStack) -> None:
        shared = self._host.shared
        interval_s = shared.options.settings.read_interval_ms / 1_000
        pace = ReadPace(interval_s, [self._shard.number], lambda: self._host.groups)
        with self._host.joining:
            if self.is_leaving:
                return
            group = HostedGroup(shared, self._shard, pace, stack, self._host.groups)
            with shared.coordination.patiently():
                plan = self._joined(group)
        self._group = group
        runner = LocalRunner(group.source, group.engine.on_batch, self._on_end, shared.read_together)
        stack.callback(runner.stop)
        runner.start(plan.next_offsets)
        self.is_reading = True
        group.note_reading()
        self._host.log.event(LogEvent.ENGINE_STARTED, address=shared.server.address, group=group.name)
        self._host.wake()
        group.beat_until(lambda: self._leaving.is_set() or self._end is not None)
        if group.engine.is_stalled:
            self._host.end_at_once(group.engine.stopped_reason)
        self._give_up(group)

    def _joined(self, group: HostedGroup) -> StartPlan:
        """Many join while those that came before are at work already: calls may take seconds."""
        shared = self._host.shared
        self._patient(lambda: self._host.check_once("topics", lambda: check_before_joining(shared, group.topics)))
        plan = self._patient(group.start)
        self._patient(lambda: self._host.check_once("project", lambda: check_when_joined(shared, group.topics, [group.name])))
        return plan

    def _patient(self, call: Callable[[], _T]) -> _T:
        """Its result, as soon as what keeps it from that has passed, unless this is to leave meanwhile."""
        return _JOINS.call(call, lambda error: is_retryable(error) and not self.is_leaving, wait=self._leaving.wait)

    def _give_up(self, group: HostedGroup) -> None:
        """Connectors end first, then the group gives up its role and leaves."""
        group.connectors.end()
        self._beat(group, lambda: group.connectors.is_idle)
        group.engine.ask_stop()
        group.engine.cycle()  # also where the runner has failed: what it brought out before is right
        self._beat(group, lambda: False)

    def _beat(self, group: HostedGroup, is_over: Callable[[], bool]) -> None:
        deadline_ms = monotonic_ms() + _STOP_MS_MAX
        group.beat_until(lambda: is_over() or monotonic_ms() > deadline_ms or self._end is not None)

    def _on_end(self, end: RunnerEnd) -> None:
        self._end = end
        self._wake()
