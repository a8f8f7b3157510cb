"""The bus contract: topics, appending, reading, trimming, headers; and all buses give the same answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hotspare.base.errors import PositionLost, TopicMissing, UsageError
from hotspare.bus.contract import SOURCE_HEADER, TICK, Bus, HeaderGuard, Outgoing, Partition
from tests.contract.material import START_US, ManualClock, outgoing, read_all

IN = Partition("in")
OpenBus = Callable[[], Bus]


def test_a_topic_is_created_once_with_its_partitions(bus: Bus) -> None:
    """SPEC B15."""
    bus.create_topic("b", 3)
    bus.create_topic("a")
    bus.create_topic("b", 3)
    assert dict(bus.topics()) == {"a": 1, "b": 3}
    with pytest.raises(UsageError, match="exists with 3 partitions, 2 were requested"):
        bus.create_topic("b", 2)


def test_a_topic_that_never_held_a_message_grows(bus: Bus, open_bus_door: OpenBus) -> None:
    bus.create_topic("in")
    other = open_bus_door()
    assert other.end_offset(IN) == 0
    bus.grow_unused("in", 3)
    bus.grow_unused("in", 2)
    assert (dict(bus.topics()), dict(other.topics())) == ({"in": 3}, {"in": 3})
    assert [door.append(Partition("in", 2), outgoing("a")) for door in (bus, other)] == [0, 1]
    bus.trim(Partition("in", 2), 2)
    bus.grow_unused("in", 4)
    assert dict(bus.topics()) == {"in": 3}, "it held messages"
    with pytest.raises(TopicMissing, match="topic out does not exist"):
        bus.grow_unused("out", 2)


@pytest.mark.parametrize(("topic", "partitions"), [("", 1), ("a\nb", 1), ("x" * 250, 1), ("a", 0), ("a", 100_000)])
def test_an_unusable_topic_is_refused(bus: Bus, topic: str, partitions: int) -> None:
    with pytest.raises(UsageError):
        bus.create_topic(topic, partitions)
    assert not bus.topics()


def test_offsets_count_from_0_per_partition(bus: Bus) -> None:
    bus.create_topic("in", 2)
    assert bus.append(Partition("in", 0), outgoing("a", "b")) == 0
    assert bus.append(Partition("in", 1), outgoing("x")) == 0
    assert bus.append(Partition("in", 0), outgoing("c")) == 2
    assert bus.append(Partition("in", 0), []) == 3
    assert [(m.offset, m.value) for m in read_all(bus, Partition("in", 0))] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (bus.begin_offset(IN), bus.end_offset(IN), bus.end_offset(Partition("in", 1))) == (0, 3, 1)


def test_a_new_topic_says_how_long_it_keeps_messages(bus: Bus) -> None:
    bus.create_topic("in")
    retention_ms = bus.retention_ms("in")
    assert retention_ms is None or retention_ms > 0
    with pytest.raises(TopicMissing, match="topic out does not exist"):
        bus.retention_ms("out")


def test_what_does_not_exist_is_named(bus: Bus) -> None:
    bus.create_topic("in")
    for use in (
        lambda p: bus.append(p, outgoing("a")),
        lambda p: bus.append(p, []),
        lambda p: bus.read(p, 0, messages_max=1, bytes_max=1),
        bus.begin_offset,
        bus.end_offset,
        lambda p: bus.newest_with_header(p, "h", b""),
        lambda p: bus.trim(p, 1),
    ):
        with pytest.raises(TopicMissing, match="topic out does not exist"):
            use(Partition("out"))
        with pytest.raises(TopicMissing, match="topic in has no partition 1"):
            use(Partition("in", 1))
    with pytest.raises(TopicMissing, match="topic out does not exist"):
        bus.producer("g", ["in", "out"])


@pytest.mark.parametrize("open_bus_door", ["memory", "sqlite"], indirect=True)  # a broker's clock cannot be moved
def test_append_times_are_the_clock_also_where_it_falls(bus: Bus, clock: ManualClock) -> None:
    """A clock that jumped ahead for a moment must not keep later messages in the future: engines correct it
    (partition_clock.py)."""
    bus.create_topic("in", 2)
    for moved_us in (0, 500, -10_000, 100, 501):
        clock.now_us = START_US + moved_us
        bus.append(IN, outgoing("a", "b"))
    times = [message.append_time_us - START_US for message in read_all(bus, IN)]
    assert times == [0, 0, 500, 500, -10_000, -10_000, 100, 100, 501, 501]
    clock.now_us = START_US - 77
    bus.append(Partition("in", 1), outgoing("a"))
    assert read_all(bus, Partition("in", 1))[0].append_time_us == START_US - 77


def test_headers_come_back_as_they_were_put(bus: Bus) -> None:
    bus.create_topic("in")
    headers = ((SOURCE_HEADER, b"file@17"), ("ключ", bytes(range(256))), (SOURCE_HEADER, b""), ("x" * 255, b"\0" * 64_000))
    bus.append(IN, [Outgoing(b"", headers), TICK, Outgoing(b"v")])
    full, tick, plain = read_all(bus, IN)
    assert (full.headers, tick.is_tick, plain.headers, plain.is_tick) == (headers, True, (), False)
    assert full.header(SOURCE_HEADER) == b"file@17"
    assert full.header("none") is None


@pytest.mark.parametrize(
    "message",
    [
        Outgoing(b"", (("", b"v"),)),
        Outgoing(b"", (("n" * 256, b""),)),
        Outgoing(b"", (("n", b"v" * 70_000),)),
        Outgoing(b"", (("n", b"v"),) * 65),
        Outgoing(b"v" * (64 * 1024 * 1024 + 1)),
    ],
    ids=["no name", "long name", "long value", "many", "large"],
)
def test_a_message_beyond_the_limits_is_refused_whole(bus: Bus, message: Outgoing) -> None:
    bus.create_topic("in")
    with pytest.raises(UsageError):
        bus.append(IN, [Outgoing(b"before"), message])
    assert bus.end_offset(IN) == 0


def test_reading_keeps_both_limits_but_gives_at_least_one(bus: Bus) -> None:
    bus.create_topic("in")
    bus.append(IN, outgoing("aaaa", "bbbb", "cc", "dddddddd"))

    def sizes(offset: int, messages_max: int, bytes_max: int) -> list[int]:
        return [len(m.value) for m in bus.read(IN, offset, messages_max=messages_max, bytes_max=bytes_max)]

    assert sizes(0, 2, 1000) == [4, 4]
    assert sizes(0, 9, 10) == [4, 4, 2]
    assert sizes(0, 9, 9) == [4, 4]
    assert sizes(0, 9, 1) == [4]
    assert sizes(3, 9, 1) == [8]
    assert sizes(4, 9, 9) == []
    assert sizes(400, 9, 9) == []
    for unusable in ((-1, 1, 1), (0, 0, 1), (0, 1, 0)):
        with pytest.raises(UsageError):
            sizes(*unusable)


def test_a_reader_wakes_up_when_a_message_comes(open_bus_door: OpenBus) -> None:
    reader, writer = open_bus_door(), open_bus_door()
    reader.create_topic("in")
    asked = threading.Event()

    def wait() -> list[bytes]:
        asked.set()
        return [m.value for m in reader.read(IN, 0, messages_max=9, bytes_max=99, wait_ms=60_000)]

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait)
        asked.wait()
        writer.append(IN, outgoing("a"))
        assert found.result(30) == [b"a"]
    assert not reader.read(IN, 1, messages_max=9, bytes_max=99, wait_ms=5)


def test_trimmed_positions_are_lost_and_said_by_how_much(bus: Bus) -> None:
    """SPEC Z7: a late reader learns how much is missing."""
    bus.create_topic("in")
    bus.append(IN, outgoing(*"abcdefghij"))
    bus.trim(IN, 4)
    bus.trim(IN, 2)
    assert (bus.begin_offset(IN), bus.end_offset(IN)) == (4, 10)
    assert [m.value for m in read_all(bus, IN, 4)] == [b"e", b"f", b"g", b"h", b"i", b"j"]
    with pytest.raises(PositionLost) as lost:
        bus.read(IN, 1, messages_max=1, bytes_max=1)
    assert "in[0] no longer holds offset 1" in str(lost.value)
    assert "oldest offset kept is 4, 3 messages are gone" in str(lost.value)
    bus.trim(IN, 99)
    assert (bus.begin_offset(IN), bus.end_offset(IN)) == (10, 10)
    assert not bus.read(IN, 10, messages_max=1, bytes_max=1)
    assert bus.append(IN, outgoing("k")) == 10


def test_a_large_topic_is_trimmed_in_full(bus: Bus) -> None:
    """The trim exceeds the messages and the bytes that one short transaction deletes."""
    bus.create_topic("in")
    for _ in range(3):
        bus.append(IN, outgoing(*["x"] * 2500))
    bus.append(IN, [Outgoing(b"v" * 3_000_000)] * 4)
    bus.trim(IN, 7503)
    assert bus.begin_offset(IN) == 7503
    assert [(m.offset, len(m.value)) for m in bus.read(IN, 7503, messages_max=9, bytes_max=1)] == [(7503, 3_000_000)]


def test_the_newest_message_of_a_source_is_found(bus: Bus) -> None:
    """A publisher resumes after the newest message that it wrote."""
    bus.create_topic("in")
    bus.append(IN, [Outgoing(b"old", ((SOURCE_HEADER, b"slow@1"),))])
    for place in range(3):
        bus.append(IN, [Outgoing(b"", ((SOURCE_HEADER, b"fast@%d" % (place * 3000 + n)),)) for n in range(3000)])
    bus.append(IN, [Outgoing(b"misleading", (("other", SOURCE_HEADER.encode() + b"slow@9"), ("x", b""), (SOURCE_HEADER, b"no")))])

    def newest(prefix: bytes, name: str = SOURCE_HEADER) -> tuple[int, bytes | None] | None:
        found = bus.newest_with_header(IN, name, prefix)
        return None if found is None else (found.offset, found.header(name))

    assert newest(b"fast@") == (9000, b"fast@8999")
    assert newest(b"slow@") == (0, b"slow@1")
    assert newest(b"") == (9001, b"no")
    assert newest(b"none@") is None
    assert newest(b"", "absent") is None
    bus.trim(IN, 1)
    assert newest(b"slow@") is None


def test_many_writers_at_once_lose_and_double_nothing(open_bus_door: OpenBus) -> None:
    first = open_bus_door()
    first.create_topic("in")

    def write(name: str) -> list[int]:
        bus = open_bus_door()
        return [bus.append(IN, outgoing(f"{name}{n}a", f"{name}{n}b")) for n in range(25)]

    with ThreadPoolExecutor(4) as pool:
        offsets = list(pool.map(write, "abcd"))
    found = read_all(first, IN)
    assert [m.offset for m in found] == list(range(200))
    for name, given in zip("abcd", offsets, strict=True):
        assert given == sorted(given)
        for n, offset in enumerate(given):
            assert [m.value.decode() for m in found[offset : offset + 2]] == [f"{name}{n}a", f"{name}{n}b"]


def test_a_guarded_append_gives_way_to_what_somebody_else_wrote(bus: Bus) -> None:
    """SPEC E8: a publisher that was frozen cannot repeat what its successor published."""
    bus.create_topic("in")
    mine = [Outgoing(b"a", ((SOURCE_HEADER, b"file@1"),))]
    assert bus.append_guarded(IN, mine, HeaderGuard(SOURCE_HEADER, b"file@", 0)) == 0
    others = bus.append(IN, [TICK, Outgoing(b"x", ((SOURCE_HEADER, b"other@1"),))])
    assert others >= 1
    second = bus.append_guarded(IN, mine, HeaderGuard(SOURCE_HEADER, b"file@", 1))
    assert second is not None
    assert second >= others + 2
    end = bus.end_offset(IN)
    assert bus.append_guarded(IN, mine, HeaderGuard(SOURCE_HEADER, b"file@", second)) is None
    assert [m.offset for m in read_all(bus, IN)] == [0, others, others + 1, second]
    assert bus.end_offset(IN) == end


def test_of_many_publishers_of_one_source_one_writes_each_piece(open_bus_door: OpenBus) -> None:
    open_bus_door().create_topic("in")

    def publish(bus: Bus) -> None:
        since, place = 0, 0
        while place < 12:
            message = Outgoing(str(place).encode(), ((SOURCE_HEADER, b"file@%d" % (place + 1)),))
            offset = bus.append_guarded(IN, [message], HeaderGuard(SOURCE_HEADER, b"file@", since))
            newest = bus.newest_with_header(IN, SOURCE_HEADER, b"file@")
            assert offset is not None or newest is not None
            if newest is not None:
                since, place = newest.offset + 1, int(newest.value) + 1

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(publish, open_bus_door()) for _ in range(3)]:
            done.result()
    assert [int(message.value) for message in read_all(open_bus_door(), IN)] == list(range(12))
