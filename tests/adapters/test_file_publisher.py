"""The file publisher (SPEC I5, I10, E8): every row once, in order, wherever it was stopped."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.publisher import EventPace, PublishOptions, PublishProgress, publish_file
from hotspare.adapters.files.row_file import Growth
from hotspare.base.errors import UsageError
from hotspare.bus.contract import SOURCE_HEADER, HeaderGuard, Outgoing, Partition
from hotspare.bus.memory import BusFault, BusOperation, MemoryBus, MemoryBusClient
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.testing.cluster import wait_until

TOPIC = Partition("p.project.cq.source.I")
SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("publisher")
    bus.create_topic(TOPIC.topic)
    return bus


def values(bus: MemoryBusClient) -> list[bytes]:
    messages = bus.read(TOPIC, 0, messages_max=100_000, bytes_max=1 << 30)
    return [row for message in messages for row in message.value.split(b"\n")]


def publish(bus: MemoryBusClient, path: Path, stop: threading.Event | None = None, **options: object) -> PublishProgress:
    return publish_file(bus, TOPIC, path, PublishOptions(**options), stop or threading.Event())  # type: ignore[arg-type]


def numbered(count: int) -> bytes:
    return b"".join(b"i,n,%d,x\n" % number for number in range(count))


class StopsAfter:
    """A bus whose user dies after `appends` appends, as by kill -9: before or after the next append takes place."""

    class Killed(Exception):
        pass

    def __init__(self, bus: MemoryBusClient, appends: int, *, after: int) -> None:
        self._bus, self._left, self._after = bus, appends, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    def append_guarded(self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, *record: bytes) -> int | None:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise self.Killed
        first = self._bus.append_guarded(partition, messages, guard, *record)
        if self._left < 0:
            raise self.Killed
        return first


def test_rows_in_order_without_header_and_blank_rows(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"\xef\xbb\xbftitle\n\ni,n,1,a\r\n   \ni,n,2,b")
    bus = new_bus()
    assert publish(bus, path, header_rows=1).events == 2
    assert values(bus) == [b"i,n,1,a", b"i,n,2,b"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.sampled_from([b"i,n,1,a", b'i,n,"2\n3",b', b"", b'i,n,"open', b"i,n,4,d\\"]), max_size=12),
    last_line_ends=st.booleans(),
    kills=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=6),
    block=st.integers(1, 3),
    repeats=st.integers(0, 2),
)
def test_law_crash_any_kills_lose_and_double_no_row(
    tmp_path: Path, rows: list[bytes], last_line_ends: bool, kills: list[tuple[int, int]], block: int, repeats: int
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"\n".join(rows) + (b"\n" if last_line_ends else b""))
    options = PublishOptions(block_rows=block, repeats=repeats, rate=1e6)
    whole, killed = new_bus(), new_bus()
    publish_file(whole, TOPIC, path, options, threading.Event())
    for appends, after in kills:
        try:
            publish_file(StopsAfter(killed, appends, after=after), TOPIC, path, options, threading.Event())  # type: ignore[arg-type]
        except StopsAfter.Killed:
            continue
    publish_file(killed, TOPIC, path, options, threading.Event())
    assert values(killed) == values(whole)


def test_maxevents_counts_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"title\n" + numbered(10))
    bus = new_bus()
    with pytest.raises(StopsAfter.Killed):
        publish_file(
            StopsAfter(bus, 0, after=1),  # type: ignore[arg-type]
            TOPIC,
            path,
            PublishOptions(events_max=4, header_rows=1),
            threading.Event(),
        )
    publish(bus, path, events_max=13, header_rows=1, repeats=1)
    assert values(bus) == [b"i,n,%d,x" % (number % 10) for number in range(13)]


def test_a_limit_that_was_passed_already_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(numbered(10))
    bus = new_bus()
    publish(bus, path)
    done = publish(bus, path, events_max=3)
    assert (done.events, done.is_done) == (0, True)


@pytest.mark.parametrize("options", [{}, {"events_max": 10}, {"repeats": 2}])
def test_it_says_whether_it_came_to_the_end(tmp_path: Path, options: dict[str, int]) -> None:
    path, bus = tmp_path / "in.csv", new_bus()
    path.write_bytes(numbered(10))
    stop = threading.Event()
    stop.set()
    assert not publish(bus, path, stop, **options).is_done
    assert publish(bus, path, **options).is_done
    assert publish(bus, path, **options) == publish(bus, path, **options)


def test_an_append_without_an_answer_happens_once(tmp_path: Path) -> None:
    """SPEC E8: the topic itself shows whether the append took place."""

    class Faults:
        def __init__(self) -> None:
            self.left = [BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN, BusFault.LOCKED, BusFault.UNAVAILABLE]

        def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
            return self.left.pop() if operation is BusOperation.APPEND and self.left else BusFault.NONE

    path = tmp_path / "in.csv"
    path.write_bytes(numbered(3))
    shared = MemoryBus(faults=Faults())
    bus = shared.client("publisher")
    bus.create_topic(TOPIC.topic)
    publish(bus, path, block_rows=2)
    assert values(bus) == numbered(3).splitlines()


class FrozenWhileAnother:
    """A bus whose user is frozen before append `at`, while another publisher publishes all or part of the file."""

    def __init__(self, bus: MemoryBusClient, at: int, other: Callable[[], object]) -> None:
        self._bus, self._left, self._other = bus, at, other

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    def append_guarded(self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, *record: bytes) -> int | None:
        self._left -= 1
        if self._left == -1:
            self._other()
        return self._bus.append_guarded(partition, messages, guard, *record)


@given(at=st.integers(0, 4), events=st.integers(1, 9), block=st.integers(1, 3), limit=st.sampled_from([0, 7]))
def test_one_that_was_frozen_does_not_double_what_its_successor_wrote(at: int, events: int, block: int, limit: int) -> None:
    """SPEC E8, E16: a connector of an active engine that was frozen, and thaws before it notices."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(numbered(9))
        bus = new_bus()
        options = PublishOptions(events_max=limit, block_rows=block, rate=1e6)
        part = PublishOptions(events_max=min(events, limit or 9), block_rows=block)
        frozen = FrozenWhileAnother(bus, at, lambda: publish_file(bus, TOPIC, path, part, threading.Event()))
        publish_file(frozen, TOPIC, path, options, threading.Event())  # type: ignore[arg-type]
        assert values(bus) == numbered(limit or 9).splitlines()


def test_a_growing_file_gives_whole_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"i,n,1,a\ni,n,2")
    bus, stop = new_bus(), threading.Event()
    thread = threading.Thread(target=publish, args=(bus, path, stop), kwargs={"growth": Growth.GROWING})
    thread.start()
    try:
        wait_until(lambda: values(bus) == [b"i,n,1,a"], "the first row")
        with path.open("ab") as file:
            file.write(b",b\ni,n,3,c\ni,n,4")
        wait_until(lambda: len(values(bus)) == 3, "the next rows")
    finally:
        stop.set()
        thread.join()
    assert values(bus) == [b"i,n,1,a", b"i,n,2,b", b"i,n,3,c"]


@pytest.mark.parametrize("new", [b"i,n,1,a\n", b"i,n,9,z\n" * 100], ids=["shorter", "other"])
def test_a_file_that_was_replaced_is_refused(tmp_path: Path, new: bytes) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(numbered(50))
    bus = new_bus()
    publish(bus, path)
    path.write_bytes(new)
    with pytest.raises(UsageError, match="has changed since its rows were read"):
        publish(bus, path)
    assert len(values(bus)) == 50


def test_a_last_row_that_grew_after_it_was_published_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"i,n,1,a\ni,n,2")
    bus = new_bus()
    publish(bus, path)
    path.write_bytes(b"i,n,1,a\ni,n,2,b\n")
    with pytest.raises(UsageError, match="has changed") as caught:
        publish(bus, path)
    assert "growing" in caught.value.hint


def test_a_growing_file_that_is_cut_or_replaced_is_an_error(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_bytes(numbered(5))
    for change in (lambda p: p.write_bytes(b""), other.replace):  # in one call, so that no check falls between
        path = tmp_path / "in.csv"
        path.write_bytes(numbered(3))
        bus = new_bus()
        failures: list[UsageError] = []

        def run(bus: MemoryBusClient = bus, path: Path = path, failures: list[UsageError] = failures) -> None:
            try:
                publish(bus, path, growth=Growth.GROWING)
            except UsageError as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda bus=bus: len(values(bus)) == 3, "the first rows")  # type: ignore[misc]
        change(path)
        thread.join(timeout=60)
        assert "has changed" in failures[0].message


def test_i10_a_file_that_cannot_match_the_schema_is_refused_before_anything_is_published(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"i,n,1\n")
    bus = new_bus()
    with pytest.raises(UsageError, match="has 3 columns, not 4") as caught:
        publish(bus, path, form=RowForm(schema=SCHEMA))
    assert "id*:int64,text:string" in caught.value.detail
    assert bus.end_offset(TOPIC) == 0


def test_two_sources_do_not_meet(tmp_path: Path) -> None:
    """A name may be a prefix of another one, or contain the separator."""
    bus = new_bus()
    for name in ("a", "a@1", "ab"):
        path = tmp_path / "in.csv"
        path.write_bytes(b"i,n,%s,x\n" % name.encode())
        publish(bus, path, source_name=name)
        publish(bus, path, source_name=name)
    assert len(values(bus)) == 3


def test_blocks_have_the_size_asked_for_and_say_where_they_end(tmp_path: Path) -> None:
    """SPEC F14."""
    path = tmp_path / "in.csv"
    path.write_bytes(numbered(5))
    bus = new_bus()
    publish(bus, path, block_rows=2, source_name="s")
    messages = bus.read(TOPIC, 0, messages_max=10, bytes_max=1 << 20)
    assert [message.value.count(b"\n") + 1 for message in messages] == [2, 2, 1]
    assert [message.header(SOURCE_HEADER) for message in messages] == [b"s@16", b"s@32", b"s@40"]


def test_a_row_that_is_not_closed_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'i,n,1,a\ni,n,2,"b\ni,n,3,c\n')
    bus = new_bus()
    publish(bus, path)
    assert [m.value for m in bus.read(TOPIC, 0, messages_max=10, bytes_max=1 << 20)] == [b"i,n,1,a", b'i,n,2,"b', b"i,n,3,c"]


@pytest.mark.parametrize("options", [{"header_rows": -1}, {"block_rows": 10**9}, {"growth": Growth.GROWING, "repeats": 1}])
def test_options_that_cannot_be_used_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        PublishOptions(**options)  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        publish(new_bus(), tmp_path / "none.csv")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@given(rate=st.floats(0.5, 100_000), steps=st.lists(st.floats(0, 2), max_size=20))
def test_events_are_never_early_and_at_most_one_is_late(rate: float, steps: list[float]) -> None:
    clock = Clock()
    pace = EventPace(rate, clock)
    sent = 0
    for step in steps:
        clock.now_s += step
        due = pace.due_events(10**9)
        pace.record_sent(due)
        sent += due
        elapsed = clock.now_s - 100.0
        assert sent == int(elapsed * rate) + 1


def test_waiting_as_told_reaches_the_next_event() -> None:
    clock = Clock()
    pace = EventPace(3, clock)
    for _ in range(100):
        if not pace.due_events(1):
            clock.now_s += pace.wait_s() + 1e-9
        assert pace.due_events(1) == 1
        pace.record_sent(1)


def test_no_rate_is_no_pace() -> None:
    pace = EventPace(0, Clock())
    assert pace.due_events(7) == 7
    assert pace.wait_s() == 0


def test_nothing_is_made_up_for_after_a_restart() -> None:
    clock = Clock()
    pace = EventPace(10, clock)
    clock.now_s += 60
    pace.restart()
    assert pace.due_events(1000) == 1


def test_a_high_rate_goes_out_in_groups() -> None:
    pace = EventPace(10_000, Clock())
    pace.record_sent(pace.due_events(1))
    assert pace.wait_s() == pytest.approx(0.005)
