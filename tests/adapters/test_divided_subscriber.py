"""A file or socket for the outputs of all shards: each once, in its shard's order, updates together."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.adapters.changelog_reading import RowChoice, SequenceBreak, UpdateBlocks
from hotspare.adapters.failover.subscriber_position import position_path
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.subscriber import Opening, SubscribeOptions, SubscribeProgress, SubscribeReport, Until, subscribe_file
from hotspare.adapters.sockets.line_socket import Address
from hotspare.adapters.sockets.subscriber import subscribe_lines
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.formats import arrow_block
from hotspare.rows.batch import MessageFormat
from tests.adapters.outputs import SCHEMA, TOPIC, UB, D, I, N, Row, block
from tests.adapters.test_file_subscriber import DyingBus, Killed
from tests.adapters.test_sockets import Client, served

COUNT = 3
TO_END = SubscribeOptions(until=Until.END)


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("subscriber")
    bus.create_topic(TOPIC, COUNT)
    return bus


def put(bus: Bus, shard: int, rows: Sequence[Row], first_sequence: int) -> None:
    """Appends one message."""
    message = Outgoing(arrow_block.encode(block(rows, first_sequence)))
    bus.append(Partition(TOPIC, shard), [message])


def subscribe(bus: Bus, path: Path, options: SubscribeOptions = TO_END, partition: int | None = None) -> SubscribeProgress:
    rows, stop = OutputRows(FileStyle(), SCHEMA), threading.Event()
    return subscribe_file(bus, TOPIC, path, rows, options, stop, SubscribeReport(), partition)


def changelog(shard: int, updates: Sequence[bool]) -> list[Row]:
    """Returns inserts and updates whose ids contain the shard."""
    rows: list[Row] = []
    for number, is_update in enumerate(updates):
        row = 1000 * shard + number
        rows += [(UB, N, row, 2.0), (D, N, row, 1.0)] if is_update else [(I, N, row, 1.0)]
    return rows


def messages(rows: Sequence[Row], cuts: Sequence[int]) -> list[tuple[int, Sequence[Row]]]:
    """Returns the rows in messages of these sizes, repeated, each with its first sequence."""
    found, at, turn = [], 0, 0
    while at < len(rows):
        size = cuts[turn % len(cuts)]
        found.append((at + 1, rows[at : at + size]))
        at, turn = at + size, turn + 1
    return found


def text(row: Row) -> str:
    opcode, _, key, value = row
    return f"{ {I: 'I', UB: 'UB', D: 'D'}[opcode] },N, {key},{value:.6f}"


LOGS = st.lists(st.lists(st.booleans(), max_size=6), min_size=COUNT, max_size=COUNT)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LOGS, st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_each_output_once_in_its_shards_order_wherever_the_subscriber_dies(
    tmp_path: Path, updates: list[list[bool]], cuts: list[int], data: st.DataObject
) -> None:
    """Outputs are appended between its lives, and messages may end within an update."""
    bus, path = new_bus(), tmp_path / "out.csv"
    for left in (path, position_path(path)):
        left.unlink(missing_ok=True)
    logs = [changelog(shard, each) for shard, each in enumerate(updates)]
    queued = [(shard, *each) for shard, rows in enumerate(logs) for each in messages(rows, cuts)]
    while queued:
        for _ in range(data.draw(st.integers(1, 4))):
            ready = [next(i for i, q in enumerate(queued) if q[0] == shard) for shard in {q[0] for q in queued}]
            if ready:
                shard, first, rows = queued.pop(data.draw(st.sampled_from(sorted(ready))))
                put(bus, shard, rows, first)
        with contextlib.suppress(Killed):
            subscribe(DyingBus(bus, data.draw(st.integers(0, 12))), path)  # type: ignore[arg-type]
    done = subscribe(bus, path)
    lines = path.read_text().splitlines()
    for shard, rows in enumerate(logs):
        assert [line for line in lines if int(line.split(",")[2]) // 1000 == shard] == [text(row) for row in rows]
    for line, after in pairwise([*lines, ""]):
        assert not line.startswith("UB") or after == line.replace("UB", "D").replace("2.0", "1.0")
    assert (done.breaks, done.sequences) == (0, tuple(map(len, logs)))


def test_an_update_waits_for_its_other_row_and_holds_up_no_other_shard(tmp_path: Path) -> None:
    bus, path = new_bus(), tmp_path / "out.csv"
    put(bus, 0, [(I, N, 1, 1.0), (UB, N, 1, 2.0)], 1)
    put(bus, 1, [(I, N, 1001, 1.0)], 1)
    assert subscribe(bus, path).sequences == (1, 1, 0)
    assert path.read_text() == "I,N, 1,1.000000\nI,N, 1001,1.000000\n"
    put(bus, 0, [(D, N, 1, 1.0)], 3)
    done = subscribe(bus, path)
    assert (done.sequences, done.breaks) == ((3, 1, 0), 0)
    assert path.read_text().endswith("UB,N, 1,2.000000\nD,N, 1,1.000000\n")


def test_an_update_is_written_though_every_read_brings_one_message(tmp_path: Path) -> None:
    bus, path = new_bus(), tmp_path / "out.csv"
    put(bus, 0, [(UB, N, 1, 2.0)], 1)
    put(bus, 0, [(D, N, 1, 1.0)], 2)
    done = subscribe(DyingBus(bus, 100), path)  # type: ignore[arg-type]
    assert (done.sequences, done.lag_messages) == ((2, 0, 0), 0)


def test_it_waits_for_more_of_every_shard(tmp_path: Path) -> None:
    bus, path, stop, seen = new_bus(), tmp_path / "out.csv", threading.Event(), threading.Semaphore(0)
    report = SubscribeReport(on_progress=lambda _: seen.release())
    rows = OutputRows(FileStyle(), SCHEMA)
    thread = threading.Thread(target=subscribe_file, args=(bus, TOPIC, path, rows, SubscribeOptions(), stop, report))
    thread.start()
    try:
        for shard in (2, 0, 1):
            put(bus, shard, [(I, N, 1000 * shard, 1.0)], 1)
            assert seen.acquire(timeout=30)
    finally:
        stop.set()
        thread.join()
    assert path.read_text() == "I,N, 2000,1.000000\nI,N, 0,1.000000\nI,N, 1000,1.000000\n"


def test_while_it_follows_nothing_stands_between_the_rows_of_an_update(tmp_path: Path) -> None:
    """A read ends with the first row of an update; another shard's row arrives before the second one."""
    bus, path, stop, seen = new_bus(), tmp_path / "out.csv", threading.Event(), threading.Semaphore(0)
    put(bus, 0, [(I, N, 1, 1.0)], 1)
    put(bus, 0, [(UB, N, 1, 2.0)], 2)
    put(bus, 1, [(I, N, 1001, 1.0)], 1)
    report = SubscribeReport(on_progress=lambda _: seen.release())
    rows = OutputRows(FileStyle(), SCHEMA)
    thread = threading.Thread(target=subscribe_file, args=(bus, TOPIC, path, rows, SubscribeOptions(), stop, report))
    thread.start()
    try:
        assert all(seen.acquire(timeout=30) for _ in range(2))
        put(bus, 0, [(D, N, 1, 1.0)], 3)
        assert seen.acquire(timeout=30)
    finally:
        stop.set()
        thread.join()
    assert path.read_text().splitlines() == [
        text((I, N, 1, 1.0)),
        text((I, N, 1001, 1.0)),
        text((UB, N, 1, 2.0)),
        text((D, N, 1, 1.0)),
    ]


def test_a_new_file_begins_with_the_content_of_all_shards(tmp_path: Path) -> None:
    bus, path = new_bus(), tmp_path / "out.csv"
    for shard in range(COUNT):
        put(bus, shard, [(I, N, shard, 1.0), (UB, N, shard, 2.0), (D, N, shard, 1.0)], 1)
    collapsed = SubscribeOptions(RowChoice(UpdateBlocks.COLLAPSED), Opening.SNAPSHOT, Until.END)
    assert subscribe(bus, path, collapsed).sequences == (3, 3, 3)
    put(bus, 1, [(D, N, 1, 2.0)], 4)
    assert subscribe(bus, path, collapsed).breaks == 0
    assert path.read_text() == "".join(f"I,N, {shard},2.000000\n" for shard in range(COUNT)) + "D,N, 1,2.000000\n"


def test_one_shard_alone_is_another_file(tmp_path: Path) -> None:
    bus, path = new_bus(), tmp_path / "out.csv"
    for shard in range(COUNT):
        put(bus, shard, [(I, N, shard, 1.0)], 1)
    assert subscribe(bus, path, partition=2).sequences == (1,)
    assert path.read_text() == "I,N, 2,1.000000\n"
    with pytest.raises(UsageError, match="holds another stream"):
        subscribe(bus, path)


def test_a_break_tells_the_partition(tmp_path: Path) -> None:
    bus, seen, stop = new_bus(), list[SequenceBreak](), threading.Event()
    for first in (1, 4):
        put(bus, 2, [(I, N, first, 1.0)], first)
    report = SubscribeReport(on_sequence_break=seen.append)
    subscribe_file(bus, TOPIC, tmp_path / "out.csv", OutputRows(FileStyle(), SCHEMA), TO_END, stop, report)
    assert seen == [SequenceBreak(1, 4, 2)]
    assert str(seen[0]) == "2 outputs are missing after sequence 1 of partition 2"


@pytest.mark.parametrize("format_", [MessageFormat.CSV, MessageFormat.JSON])
def test_a_client_of_a_socket_gets_all_shards_each_from_where_it_says(format_: MessageFormat) -> None:
    bus = new_bus()
    for shard in range(COUNT):
        put(bus, shard, [(I, N, 1000 * shard + number, 1.0) for number in range(3)], 1)

    def work(stop: threading.Event, bound: object) -> None:
        subscribe_lines(bus, TOPIC, Address("", 0), OutputRows(FileStyle()), format_, stop, bound)  # type: ignore[arg-type]

    with served(work) as port, Client(port) as client:
        client.send(b"after 1 3 0\n")
        lines = [client.line() for _ in range(5)]
        if format_ is MessageFormat.CSV:
            found = [tuple(int(line.split(b",")[i]) for i in (0, 1, 4)) for line in lines]
        else:
            found = [(row["hs:shard"], row["hs:sequence"], row["id"]) for row in map(json.loads, lines)]
        assert sorted(found) == [(0, 2, 1), (0, 3, 2), (2, 1, 2000), (2, 2, 2001), (2, 3, 2002)]
    with served(work) as port, Client(port) as client:
        client.send(b"after 0\n")
        assert client.line() == b"error begin with: after SEQUENCE, one for each of the 3 shards\n"


def test_a_client_of_a_socket_for_one_shard(tmp_path: Path) -> None:
    bus = new_bus()
    put(bus, 1, [(I, N, 7, 1.0)], 1)

    def work(stop: threading.Event, bound: object) -> None:
        rows = OutputRows(FileStyle())
        subscribe_lines(bus, TOPIC, Address("", 0), rows, MessageFormat.CSV, stop, bound, 1)  # type: ignore[arg-type]

    with served(work) as port, Client(port) as client:
        client.send(b"after 0\n")
        assert client.line() == b"1,I,N, 7,1.000000\n"
