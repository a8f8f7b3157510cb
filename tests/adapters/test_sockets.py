"""Lines from and to sockets: counted, acknowledged, and continued after a broken connection (SPEC I7, C14, C15)."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from hotspare.adapters.files.canonical import FileFormat, RowForm
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.sockets.line_socket import CLIENTS_MAX, LINE_BYTES_MAX, Address, SocketSide, parse_address
from hotspare.adapters.sockets.publisher import LineOptions, publish_lines
from hotspare.adapters.sockets.subscriber import subscribe_lines
from hotspare.base.errors import TopicMissing, UsageError
from hotspare.bus.contract import FORMAT_HEADER, Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.formats import arrow_block
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat
from hotspare.rows.routing import Routing
from tests.adapters.outputs import I, N, block
from tests.adapters.test_file_publisher import StopsAfter
from tests.rows.test_routing import plain_murmur2

IN = Partition("p.project.cq.source.I")
OUT = Partition("p.project.cq.window.O")
TIMEOUT_S = 120.0


@pytest.fixture
def bus() -> Bus:
    bus = MemoryBus().client("c")
    bus.create_topic(IN.topic)
    bus.create_topic(OUT.topic)
    return bus


@contextlib.contextmanager
def served(work: Callable[[threading.Event, Callable[[int], None]], None]) -> Iterator[int]:
    """Yields the port of an adapter that runs in a thread."""
    stop, ports = threading.Event(), queue.Queue[int]()
    thread = threading.Thread(target=work, args=(stop, ports.put))
    thread.start()
    try:
        yield ports.get(timeout=TIMEOUT_S)
    finally:
        stop.set()
        thread.join()


def publisher(
    bus: Bus, options: LineOptions | None = None, routing: RowRouting | None = None
) -> contextlib.AbstractContextManager[int]:
    made = options or LineOptions()
    return served(lambda stop, bound: publish_lines(bus, IN, Address("", 0), made, stop, bound, routing))


def subscriber(bus: Bus, format_: MessageFormat) -> contextlib.AbstractContextManager[int]:
    rows = OutputRows(FileStyle())
    return served(lambda stop, bound: subscribe_lines(bus, OUT.topic, Address("", 0), rows, format_, stop, bound))


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        return self.file.readline()

    def until(self, line: bytes) -> None:
        while (found := self.line()) != line:
            assert found, f"closed before {line!r}"


def published(bus: Bus) -> list[bytes]:
    messages = bus.read(IN, 0, messages_max=10_000, bytes_max=1 << 24)
    return [row for message in messages for row in message.value.split(b"\n")]


def test_a_client_that_counts_loses_and_doubles_nothing(bus: Bus) -> None:
    """The connection breaks, the adapter is another one: the client sends again from the acknowledged line."""
    lines = [b"i,n,%d,x" % number for number in range(1000)]
    sent = 0
    for upto in (300, 777, 1000):
        with publisher(bus) as port, Client(port) as client:
            client.send(b"source sensor 1\n")
            answer = client.line()
            assert answer == b"at %d\n" % sent
            client.send(b"".join(line + b"\n" for line in lines[sent:upto]) + b"i,n,torn")
            client.until(b"at %d\n" % upto)
            sent = upto
    assert published(bus) == lines


def test_two_connections_of_one_source_write_no_line_twice(bus: Bus) -> None:
    with publisher(bus) as port, Client(port) as first, Client(port) as second:
        for client in (first, second):
            client.send(b"source s\n")
            assert client.line() == b"at 0\n"
        first.send(b"i,n,1,a\n")
        assert first.line() == b"at 1\n"
        second.send(b"i,n,1,a\n")
        assert second.line().startswith(b"error this source is published by another connection")
        assert second.line() == b""
    assert published(bus) == [b"i,n,1,a"]


def test_a_client_that_does_not_count(bus: Bus) -> None:
    options = LineOptions(RowForm(delimiter=";"))
    with publisher(bus, options) as port, Client(port) as client:
        client.send(b"i;n;1;a,b\r\ni;n;2;c\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.line() == b""
    assert published(bus) == [b'i,n,1,"a,b"', b"i,n,2,c"]


def test_json_lines(bus: Bus) -> None:
    with publisher(bus, LineOptions(RowForm(format=FileFormat.JSON))) as port, Client(port) as client:
        client.send(b'source s\n{"id":1}\n{"id":2}\n')
        client.until(b"at 2\n")
    (message,) = bus.read(IN, 0, messages_max=10, bytes_max=1 << 20)
    assert (message.value, message.header(FORMAT_HEADER)) == (b'{"id":1}\n{"id":2}', b"json")


COUNT = 3
ROUTING = RowRouting(Schema((Field("id", FieldType.INT64, KeyRole.KEY),)), Routing(0, FieldType.INT64, COUNT))


@pytest.fixture
def divided() -> MemoryBusClient:
    bus = MemoryBus().client("c")
    bus.create_topic(IN.topic, COUNT)
    return bus


def published_of(bus: Bus, number: int) -> list[bytes]:
    messages = bus.read(Partition(IN.topic, number), 0, messages_max=10_000, bytes_max=1 << 24)
    return [row for message in messages for row in message.value.split(b"\n")]


def place(number: int) -> int:
    return (plain_murmur2(b"%d" % number) & 0x7FFFFFFF) % COUNT


def test_lines_of_a_divided_project_go_where_they_belong(divided: MemoryBusClient) -> None:
    """Each line once and in order, though the connection breaks and the adapter is another one each time."""
    lines = [b"i,n,%d" % number for number in range(500)]
    sent = 0
    for upto in (100, 333, 500):
        with publisher(divided, routing=ROUTING) as port, Client(port) as client:
            client.send(b"source s\n")
            assert client.line() == b"at %d\n" % sent
            client.send(b"".join(line + b"\n" for line in lines[sent:upto]))
            client.until(b"at %d\n" % upto)
            sent = upto
    for partition in range(COUNT):
        assert published_of(divided, partition) == [line for number, line in enumerate(lines) if place(number) == partition]


@pytest.mark.parametrize("appends", range(8))
@pytest.mark.parametrize("after", [0, 1])
def test_a_client_never_has_to_go_back_behind_what_it_was_told(divided: MemoryBusClient, appends: int, after: int) -> None:
    """The adapter dies before or after it has written to any of the partitions; the client keeps only unacknowledged lines."""
    lines = [b"i,n,%d" % (number % 4) for number in range(9)]
    kept, dying = 0, StopsAfter(divided, appends, after=after)

    def until_it_dies(stop: threading.Event, bound: Callable[[int], None]) -> None:
        with contextlib.suppress(StopsAfter.Killed):
            publish_lines(dying, IN, Address("", 0), LineOptions(), stop, bound, ROUTING)  # type: ignore[arg-type]

    with served(until_it_dies) as port, Client(port) as client, contextlib.suppress(ConnectionError):
        client.send(b"source s\n")
        while answer := client.line():
            kept = int(answer[3:])
            if kept == len(lines):
                break
            client.send(lines[kept] + b"\n")
    with publisher(divided, routing=ROUTING) as port, Client(port) as client:
        client.send(b"source s\n")
        begin = int(client.line()[3:])
        assert begin >= kept
        client.send(b"".join(line + b"\n" for line in lines[begin:]))
        if begin < len(lines):
            client.until(b"at 9\n")
    for partition in range(COUNT):
        assert published_of(divided, partition) == [line for n, line in enumerate(lines) if place(n % 4) == partition]


def test_json_lines_of_a_divided_project_of_a_client_that_does_not_count(divided: MemoryBusClient) -> None:
    lines = [b'{"id":%d}' % number for number in range(20)] + [b'{"id":"none"}', b"[", b'{"id":"3"}']
    with publisher(divided, LineOptions(RowForm(format=FileFormat.JSON)), ROUTING) as port, Client(port) as client:
        client.send(b"".join(line + b"\n" for line in lines))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.line() == b""
    places = [place(number) for number in range(20)] + [0, 0, place(3)]
    for partition in range(COUNT):
        assert published_of(divided, partition) == [line for line, at in zip(lines, places, strict=True) if at == partition]


def test_a_line_with_an_open_quote_takes_no_other_into_it(bus: Bus) -> None:
    with publisher(bus) as port, Client(port) as client:
        client.send(b'source s\ni,n,1,"a\ni,n,2,b"\ni,n,3,c\ni,n,4,d\n')
        client.until(b"at 4\n")
    messages = [message.value for message in bus.read(IN, 0, messages_max=10, bytes_max=1 << 20)]
    assert published(bus) == [b'i,n,1,"a', b'i,n,2,b"', b"i,n,3,c", b"i,n,4,d"]
    assert b'i,n,1,"a' in messages


def test_what_a_client_may_not_do(bus: Bus) -> None:
    with publisher(bus) as port:
        with Client(port) as client:
            client.send(b"source \n")
            assert client.line().startswith(b"error source name ''")
        with Client(port) as client, contextlib.suppress(ConnectionError):
            client.send(b"x" * (LINE_BYTES_MAX + 100_000))
            assert client.line().startswith(b"error a line is longer")
    assert published(bus) == []


def put_outputs(bus: Bus, first: int, count: int) -> None:
    for sequence in range(first, first + count, 3):
        bus.append(OUT, [Outgoing(arrow_block.encode(block([(I, N, s, s / 2) for s in range(sequence, sequence + 3)], sequence)))])


def test_a_subscriber_gets_each_output_once_from_where_it_says(bus: Bus) -> None:
    put_outputs(bus, 1, 3000)
    with subscriber(bus, MessageFormat.CSV) as port:
        for after in (0, 1, 1500, 2999):
            with Client(port) as client:
                client.send(b"after %d\n" % after)
                assert client.line() == b"%d,I,N, %d,%.6f\n" % (after + 1, after + 1, (after + 1) / 2)
        with Client(port) as client:
            client.send(b"after 2998\n")
            assert [client.line()[:4] for _ in range(2)] == [b"2999", b"3000"]
            put_outputs(bus, 3001, 3)
            assert client.line()[:4] == b"3001"


def test_clients_that_left_make_room_though_nothing_comes(bus: Bus) -> None:
    put_outputs(bus, 1, 3)
    with subscriber(bus, MessageFormat.CSV) as port:
        for _ in range(CLIENTS_MAX + 1):
            with Client(port) as client:
                client.send(b"after 0\n")
                assert client.line()[:2] == b"1,"


def test_a_subscriber_in_json(bus: Bus) -> None:
    put_outputs(bus, 1, 3)
    with subscriber(bus, MessageFormat.JSON) as port, Client(port) as client:
        client.send(b"after 1\n")
        assert [json.loads(client.line())["hs:sequence"] for _ in range(2)] == [2, 3]


def test_a_subscriber_is_told_what_the_topic_no_longer_holds(bus: Bus) -> None:
    put_outputs(bus, 1, 9)
    bus.trim(OUT, 1)
    with subscriber(bus, MessageFormat.CSV) as port:
        with Client(port) as client:
            client.send(b"after 0\n")
            assert client.line() == b"error the topic begins with sequence 4\n"
        with Client(port) as client:
            client.send(b"hello\n")
            assert client.line() == b"error begin with: after SEQUENCE\n"


def test_addresses() -> None:
    assert parse_address("tcp://:7000") == Address("", 7000)
    assert parse_address("tcp://0.0.0.0:7000") == Address("0.0.0.0", 7000)
    assert parse_address("tcp://[::1]:7000") == Address("::1", 7000)
    assert parse_address("tcp-connect://far:7000") == Address("far", 7000, SocketSide.CONNECT)
    assert parse_address("a.csv") is None
    for text in ("tcp-connect://:7000", "tcp-connect://far:0"):
        with pytest.raises(UsageError):
            parse_address(text)
    with pytest.raises(UsageError, match="port 70000"):
        parse_address("tcp://:70000")


@contextlib.contextmanager
def accepting() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        yield listener


@contextlib.contextmanager
def connecting(work: Callable[[Address, threading.Event], None], listener: socket.socket) -> Iterator[None]:
    """Runs an adapter that connects to `listener`, in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(Address("127.0.0.1", listener.getsockname()[1], SocketSide.CONNECT), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_publisher_that_connects_comes_back_and_goes_on_where_it_was(bus: Bus) -> None:
    lines = [b"i,n,%d,x" % number for number in range(100)]
    with accepting() as listener, connecting(lambda address, stop: publish_lines(bus, IN, address, LineOptions(), stop), listener):
        for begin, end in ((0, 60), (60, 100)):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                connection.settimeout(TIMEOUT_S)
                connection.sendall(b"source s\n")
                assert file.readline() == b"at %d\n" % begin
                connection.sendall(b"".join(line + b"\n" for line in lines[begin:end]))
                while file.readline() != b"at %d\n" % end:
                    pass
    assert published(bus) == lines


def test_a_subscriber_that_connects_is_told_where_to_begin(bus: Bus) -> None:
    put_outputs(bus, 1, 6)

    def work(address: Address, stop: threading.Event) -> None:
        subscribe_lines(bus, OUT.topic, address, OutputRows(FileStyle()), MessageFormat.CSV, stop)

    with accepting() as listener, connecting(work, listener):
        for after in (0, 4):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                connection.settimeout(TIMEOUT_S)
                connection.sendall(b"after %d\n" % after)
                assert [file.readline().split(b",")[0] for _ in range(6 - after)] == [b"%d" % n for n in range(after + 1, 7)]


def test_an_adapter_that_connects_to_nobody_stops_when_it_is_asked_to(bus: Bus) -> None:
    with accepting() as listener:
        port = listener.getsockname()[1]
    stop = threading.Event()
    stop.set()
    publish_lines(bus, IN, Address("127.0.0.1", port, SocketSide.CONNECT), LineOptions(), stop)


def test_what_is_wrong_with_the_bus_ends_an_adapter_that_connects() -> None:
    nothing = MemoryBus().client("c")
    with accepting() as listener:
        address = Address("127.0.0.1", listener.getsockname()[1], SocketSide.CONNECT)

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"source s\n")
                with contextlib.suppress(ConnectionResetError):  # if it ends before it has read all data
                    assert connection.recv(100) == b""

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(TopicMissing):
            publish_lines(nothing, IN, address, LineOptions(), threading.Event())
        thread.join()
