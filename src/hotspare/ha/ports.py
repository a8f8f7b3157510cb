"""Defines the ports of a group: all its effects outside its own memory pass through one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from hotspare.base.errors import StoreError
from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.calls.background_repeater import BackgroundRepeater
from hotspare.ha.calls.pending_call import PendingCall, run_inline
from hotspare.ha.events import HaDuration, HaEvent
from hotspare.ha.rules.view import PeerPort
from hotspare.stores.contract import Store


class BlockCodec(Protocol):
    """Encodes output rows as a message of an output topic, and decodes it: `hotspare.formats.arrow_block`."""

    def encode(self, rows: pa.RecordBatch) -> bytes: ...

    def decode(self, value: bytes) -> pa.RecordBatch: ...


def _is_never_alive(_: Member) -> bool:
    return False


def _wall_us() -> int:
    return time.time_ns() // 1000


def _pause(_: int) -> None:
    """Does nothing, for hosts on which time passes by itself."""


def _ignore_read_limit(_: frozenset[tuple[int, int]]) -> None:
    """Does nothing, for hosts that always read all partitions."""


def _no_store(url: str) -> Store:
    raise StoreError(f"store {url} cannot be opened here")


def _yield_to_nothing() -> None:
    """Does nothing, for hosts on which background work delays no step."""


def _ignore_read_interval(_: int) -> None:
    """Does nothing, for hosts that do not read the bus at intervals."""


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """The status of a connector of this engine. `retry_in_ms`: milliseconds until a failed connector is retried; None for all
    others."""

    state: str
    rows: int = 0
    last_error: str = ""
    retry_in_ms: int | None = None


def _ignore_duration(_: HaDuration, __: int) -> None:
    """Does nothing, for hosts that measure nothing."""


def _do_nothing() -> None:
    """Does nothing, for hosts that observe no group."""


def _no_connectors() -> Mapping[str, ConnectorFacts]:
    """Returns an empty mapping, for hosts that run no connectors."""
    return {}


@dataclass(frozen=True, slots=True)
class Ports:
    """The services of the host. `clock_ms`: this process's monotonic milliseconds.

    report                receives each event; must not raise
    background            runs a job that may take long, once, now or in another thread
    end_process           ends the process with this id and start, if it is still that process and is stopped; returns whether it
                          did
    is_alive              whether the process that a member record names is known to run, even if frozen; False if no other process
                          can exist
    pause                 waits for a time in milliseconds, while an engine joins
    wall_us               this machine's time of day, for reports and schedules only
    repeat_in_background  as `ha.calls.background_repeater.BackgroundRepeater`
    start_call            makes a call, now or in another thread. After a call in another thread, `GroupEngine.run_ha_loop` must
                          be called
    set_read_interval_ms  sets the minimum time between two reads of the bus while little input arrives; must not block
    restrict_reading      sets the only partitions (index of the topic, number) to read from now on, empty for all; must not block
    unlocked              a context in which a promotion's call runs while batches are computed and held. The call may use only what
                          it needs
    yield_to_steps        waits for a moment while a batch is computed. Background work calls it between two pieces of its work, so
                          that a step need not take turns with it at the interpreter
    open_store            opens another store than the group's, to persist a snapshot there; the caller closes it
    connectors            returns the facts of each connector of this engine, by `query/window/connector`, for users
    observe_ms            receives a duration, from the thread that holds the group's lock; must neither block nor raise
    after_actions         called after each run of the HA loop and each part of a batch, by the thread that holds the group's lock;
                          must neither block nor raise
    """

    bus: Bus
    coordination: Coordination
    store: Store
    peers: PeerPort
    codec: BlockCodec
    clock_ms: Callable[[], int]
    report: Callable[[HaEvent], None]
    background: Callable[[Callable[[], None]], None]
    end_process: Callable[[int, int], bool]
    is_alive: Callable[[Member], bool] = _is_never_alive
    pause: Callable[[int], None] = _pause
    wall_us: Callable[[], int] = _wall_us
    repeat_in_background: Callable[[Callable[[], bool], int], AbstractContextManager[None]] = field(
        default_factory=BackgroundRepeater
    )
    start_call: Callable[[Callable[[], None]], PendingCall] = run_inline
    set_read_interval_ms: Callable[[int], None] = _ignore_read_interval
    restrict_reading: Callable[[frozenset[tuple[int, int]]], None] = _ignore_read_limit
    unlocked: Callable[[], AbstractContextManager[None]] = nullcontext
    yield_to_steps: Callable[[], None] = _yield_to_nothing
    open_store: Callable[[str], Store] = _no_store
    connectors: Callable[[], Mapping[str, ConnectorFacts]] = _no_connectors
    observe_ms: Callable[[HaDuration, int], None] = _ignore_duration
    after_actions: Callable[[], None] = _do_nothing
