"""The clients of one simulated engine, as unreliable as the contracts allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hotspare.base.errors import CoordinationSuspended, Fenced, StoreError, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import OUTPUTS_HEADER, Commit, Message, Partition, Progress
from hotspare.bus.memory import MemoryBusClient, MemoryProducer
from hotspare.coordination.contract import Leader
from hotspare.coordination.memory import MemoryCoordination, MemoryCoordinationClient
from hotspare.coordination.record import RoleRecord, leader_of
from hotspare.ha.rules.view import PeerStatus
from hotspare.stores.contract import SnapshotInfo, StoredSnapshot
from hotspare.stores.memory import MemoryStore
from tests.simulation.calls import Died
from tests.simulation.faults import FaultKind, FaultPlan
from tests.simulation.lasting import Lasting
from tests.simulation.transactional import TransactionalBus


@dataclass
class EngineClock:
    """A process's monotonic milliseconds: each begins at a different value, may run at its own rate, and may stall."""

    now_ms: Callable[[], int]
    value_ms: float
    rate: float = 1.0
    stalled_until_ms: int = 0
    _seen_ms: int = -1

    def __call__(self) -> int:
        now_ms = self.now_ms()
        if self._seen_ms >= 0 and now_ms >= self.stalled_until_ms:
            self.value_ms += (now_ms - max(self._seen_ms, self.stalled_until_ms)) * self.rate
        self._seen_ms = now_ms
        return int(self.value_ms)


class UnreliableProducer(MemoryProducer):
    """A producer whose transactions may fail. One with more rows than the bus's timeout allows is aborted, and its sender gets no
    result. A committed transaction may be reported as fenced."""

    def __init__(
        self, bus: TransactionalBus, client: str, group: str, topics: tuple[str, ...], plan: FaultPlan, rows_max: int
    ) -> None:
        super().__init__(bus, client, group, topics)
        self._transactions = bus.transactions
        self._plan = plan
        self._rows_max = rows_max

    def progress(self) -> Mapping[str, Progress]:
        super().progress()
        return limits.frozen_progress(self._transactions.visible(self._group))

    def publish(self, epoch: int, commit: Commit) -> None:
        if self._rows_max:
            said = [dict(m.headers)[OUTPUTS_HEADER].split() for messages in commit.messages.values() for m in messages]
            if sum(1 + int(last) - int(first) for first, last, *_ in said) > self._rows_max:
                raise UnknownResult("the transaction took too long")
        self._transactions.begin(self._group)
        try:
            super().publish(epoch, commit)
        except UnknownResult:
            raise  # the transaction may be open
        except BaseException:
            self._transactions.end(self._group)
            raise
        if self._plan.happens(FaultKind.FENCED_DONE, 0.05):
            raise Fenced("another producer fenced this one", detail="its transaction had ended by then")


class UnreliableBus(MemoryBusClient):
    """A bus whose best-effort answers may be old, and whose reads may return less than there is."""

    def __init__(self, bus: TransactionalBus, name: str, plan: FaultPlan, lasting: Lasting) -> None:
        super().__init__(bus, name)
        self._transactions = bus.transactions
        self._transactional = bus
        self._commit_rows = lasting.commit_rows
        self._plan = plan
        self._known: Mapping[str, Progress] = {}

    def producer(self, group: str, output_topics: Sequence[str]) -> UnreliableProducer:
        super().producer(group, output_topics)
        return UnreliableProducer(self._transactional, self._name, group, tuple(output_topics), self._plan, self._commit_rows)

    def progress(self, group: str) -> Mapping[str, Progress]:
        before = self._known
        super().progress(group)
        self._known = limits.frozen_progress(self._transactions.visible(group))
        return before if self._plan.happens(FaultKind.STALE_ANSWER, 0.3) else self._known

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        messages = super().read(partition, offset, messages_max=messages_max, bytes_max=bytes_max, wait_ms=wait_ms)
        return messages[:1] if self._plan.happens(FaultKind.STALE_ANSWER, 0.1) else messages


_SENT = frozenset({"join", "leave", "campaign", "renew", "release", "set_fact_once"})
_MAY_BE_OLD = frozenset({"members", "switchover_asked"})


class RoleHistory:
    """Every observed record of a group's role, for answers of a server that lags behind the others."""

    def __init__(self, shared: MemoryCoordination, group: str) -> None:
        self.shared = shared
        self._group = group
        self._records = [RoleRecord()]

    def note(self) -> int:
        """Returns the place of the newest record."""
        newest = self.shared.group(self._group).role
        if newest is not self._records[-1]:
            self._records.append(newest)
        return len(self._records) - 1

    def leader_at(self, place: int) -> Leader:
        return leader_of(self._records[place], self.shared.clock())


class UnreliableCoordination:
    """A `Coordination` whose messages may arrive late or twice, and whose best-effort answers may be old.

    Its server may lag behind the others. It never falls behind what this session has seen of the role.
    """

    def __init__(self, inner: MemoryCoordinationClient, plan: FaultPlan, history: RoleHistory) -> None:
        self._inner = inner
        self._plan = plan
        self._known: dict[str, object] = {}
        self._history = history
        self._seen = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name in _SENT:
            return partial(self._send, call)
        if name == "leader":
            return partial(self._leader, call)
        return partial(self._ask, name, call) if name in _MAY_BE_OLD else call

    def _leader(self, call: Callable[..., Leader], group: str) -> Leader:
        leader, newest = call(group), self._history.note()
        if "leader" in _MAY_BE_OLD and self._plan.happens(FaultKind.STALE_ANSWER, 0.3):
            self._seen = self._plan.rng.choice((self._seen, self._plan.rng.randint(self._seen, newest)))
            return self._history.leader_at(self._seen)
        self._seen = newest
        return leader

    def _send(self, call: Callable[..., object], *arguments: object) -> object:
        plan = self._plan
        if plan.happens(FaultKind.LATE_MESSAGE, 0.04):
            plan.late.append(partial(call, *arguments))
            raise CoordinationSuspended("coordination did not answer", detail="the message arrives later")
        answer = call(*arguments)
        self._seen = self._history.note()
        if plan.happens(FaultKind.REPEATED_MESSAGE, 0.06):
            plan.late.append(partial(call, *arguments))
        return answer

    def _ask(self, name: str, call: Callable[..., object], *arguments: object) -> object:
        before = self._known.get(name)
        self._known[name] = call(*arguments)
        is_old = before is not None and self._plan.happens(FaultKind.STALE_ANSWER, 0.3)
        return before if is_old else self._known[name]


STORE_TROUBLE = "trouble in the store"


class UnreliableStore(MemoryStore):
    """A store shared by all engines. A write may fail, with or without effect, or the writer dies during it.

    If engines write in the background, the store may also raise errors that its contract does not name.
    """

    def __init__(
        self, clock: Callable[[], int], plan: FaultPlan, confirmed: Callable[[str, str, StoredSnapshot], None] = lambda *_: None
    ) -> None:
        super().__init__(clock)
        self._plan = plan
        self._confirmed = confirmed

    def of(self, name: str, lasting: Lasting) -> UnreliableStore | UnreachableStore:
        """Returns one engine's client of it; a separate store for the engine that is `astray`."""
        if name == lasting.astray:
            return UnreliableStore(self._clock, self._plan)
        return UnreachableStore(self) if name in lasting.storeless else self

    def _fail(self, kind: FaultKind, probability: float) -> None:
        """Raises an error of a random class."""
        plan = self._plan
        if plan.store_down_until_ms > plan.now_ms() or plan.happens(kind, probability):
            kinds = (StoreError, OSError, RuntimeError, MemoryError)
            raise plan.rng.choice(kinds)(STORE_TROUBLE)

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes]]
    ) -> SnapshotInfo:
        self._fail(FaultKind.STORE_ERROR, 0.1)
        outcome = self._plan.rng.randrange(4) if self._plan.happens(FaultKind.TORN_SNAPSHOT, 0.3) else -1
        if outcome == 0:
            raise StoreError("no space is left", detail="nothing was written")
        if outcome == 1:
            next(iter(pages))
            raise Died("while it writes a snapshot")
        if outcome == 3:
            super().write_candidate(group, name, engine, order, header, _until_it_is_full(pages))
        info = super().write_candidate(group, name, engine, order, header, pages)
        if outcome == 2:
            raise StoreError("the store gave no answer", detail="everything was written")
        return info

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        self._fail(FaultKind.STORE_ERROR, 0.1)
        super().prune_snapshots(group, confirmed_max)

    def confirm(self, group: str, name: str) -> None:
        self._fail(FaultKind.STORE_ERROR, 0.1)
        is_torn = self._plan.happens(FaultKind.TORN_SNAPSHOT, 0.1)
        if not is_torn or self._plan.rng.random() < 0.5:
            super().confirm(group, name)
            self._confirmed(group, name, self._entry(group, name).stored)
        if is_torn:
            raise StoreError("the store gave no answer")

    def lose_page(self, group: str, name: str) -> None:
        """Deletes the pages of the snapshot; the store does not notice."""
        entry = self._entry(group, name)
        self._groups[group][name] = replace(entry, stored=StoredSnapshot(entry.stored.header, {}))

    def cut_page(self, group: str, name: str) -> None:
        """Truncates the pages of the snapshot; the store does not notice."""
        entry = self._entry(group, name)
        pages = {page: content[:-1] for page, content in entry.stored.pages.items()}
        self._groups[group][name] = replace(entry, stored=StoredSnapshot(entry.stored.header, pages))


def _until_it_is_full(pages: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    yield next(iter(pages))
    raise OSError(f"{STORE_TROUBLE}: no space is left")


class UnreachableStore:
    """A store that cannot be written; reading works, as from a folder that is mounted read-only."""

    def __init__(self, inner: UnreliableStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name in ("write_candidate", "confirm", "discard", "prune_snapshots"):
            return self._refused
        return getattr(self._inner, name)

    def _refused(self, *_: object) -> None:
        raise StoreError("the folder is read-only")


@dataclass
class SimulatedPeers:
    """A spare's connection to the holder; `judge` is the world, which may lie."""

    judge: Callable[[str, int], PeerStatus]
    leader: Leader | None = None

    def watch(self, leader: Leader) -> None:
        self.leader = leader

    def status(self) -> PeerStatus:
        if self.leader is None or not self.leader.holder:
            return PeerStatus.UNKNOWN
        return self.judge(self.leader.holder, self.leader.process_start)
