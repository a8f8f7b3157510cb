"""The connection between a task and its driver: a peer without the secret can neither send nor receive."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hotspare.base.addresses import LOOPBACK, HostPort
from hotspare.base.link import (
    Channel,
    LinkBrokenError,
    LinkServer,
    Message,
    accept_channel,
    connect_channel,
    new_secret,
)
from hotspare.testing.cluster import wait_until

WAIT_S = 60.0
SECRET = new_secret()


@contextmanager
def serving(secret: bytes = SECRET) -> Iterator[tuple[LinkServer, list[Message]]]:
    """Yields a server that answers each message with its count."""
    heard: list[Message] = []

    def on_message(channel: Channel, message: Message) -> None:
        heard.append(message)
        channel.send({"count": len(heard)})

    server = LinkServer(LOOPBACK, secret, on_message, WAIT_S)
    try:
        yield server, heard
    finally:
        server.close()


def test_both_sides_say_what_they_want_in_order() -> None:
    with serving() as (server, heard):
        channel = connect_channel(server.address, SECRET, WAIT_S, WAIT_S)
        said = [{"kind": "report", "text": "ä" * size} for size in (0, 1, 70_000)]
        for message in said:
            channel.send(message)
        assert [channel.receive(WAIT_S) for _ in said] == [{"count": count} for count in (1, 2, 3)]
        assert heard == said
        assert channel.receive(0.0) is None
        channel.close()


@pytest.mark.parametrize("own", [new_secret(), b""], ids=["another", "none"])
def test_who_does_not_know_the_secret_is_not_let_in(own: bytes) -> None:
    """Tries a task without the secret, and a driver without it."""
    with serving() as (server, heard), pytest.raises(LinkBrokenError):
        connect_channel(server.address, own, WAIT_S, WAIT_S)
    assert heard == []


def test_a_task_says_nothing_to_a_driver_that_does_not_know_the_secret() -> None:
    listener = socket.create_server((LOOPBACK, 0))
    heard: list[bytes] = []

    def impostor() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"hotspare-link-1\n" + bytes(32))
            heard.append(connection.recv(1_000))
            connection.sendall(bytes(32))
            heard.append(connection.recv(1_000))

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(LinkBrokenError, match="does not know the secret"):
        connect_channel(HostPort(LOOPBACK, listener.getsockname()[1]), SECRET, WAIT_S, WAIT_S)
    thread.join(WAIT_S)
    listener.close()
    assert [len(part) for part in heard] == [64, 0]
    assert SECRET not in heard[0]


@contextmanager
def tapped() -> Iterator[tuple[Channel, Channel, socket.socket, socket.socket]]:
    """Yields (the task's end, the driver's end, the task's wire, the driver's wire): the test forwards each side's bytes or not."""
    task_end, task_wire = socket.socketpair()
    driver_end, driver_wire = socket.socketpair()
    listener = socket.create_server((LOOPBACK, 0))
    found: list[Channel] = []
    thread = threading.Thread(target=lambda: found.append(accept_channel(driver_end, SECRET, WAIT_S, WAIT_S)))
    thread.start()
    port = listener.getsockname()[1]
    dialled: list[Channel] = []
    dialling = threading.Thread(target=lambda: dialled.append(connect_channel(HostPort(LOOPBACK, port), SECRET, WAIT_S, WAIT_S)))
    dialling.start()
    wire, _ = listener.accept()
    for source, target, count in ((driver_wire, wire, 48), (wire, driver_wire, 64), (driver_wire, wire, 32)):
        target.sendall(_exactly(source, count))
    thread.join(WAIT_S)
    dialling.join(WAIT_S)
    try:
        yield dialled[0], found[0], wire, driver_wire
    finally:
        for each in (task_end, task_wire, driver_wire, wire, listener):
            each.close()
        dialled[0].close()
        found[0].close()


def _exactly(source: socket.socket, count: int) -> bytes:
    source.settimeout(WAIT_S)
    said = b""
    while len(said) < count:
        said += source.recv(count - len(said))
    return said


def _sent(channel: Channel, wire: socket.socket, message: Message) -> bytes:
    channel.send(message)
    head = _exactly(wire, 8)
    return head + _exactly(wire, 32 + int.from_bytes(head[:4], "big") + int.from_bytes(head[4:], "big"))


def test_a_message_that_was_passed_on_is_taken() -> None:
    with tapped() as (task, driver, from_task, to_driver):
        to_driver.sendall(_sent(task, from_task, {"n": 1}))
        assert driver.receive(WAIT_S) == {"n": 1}


@pytest.mark.parametrize("mischief", ["changed", "repeated", "left out", "turned back"])
def test_a_message_that_was_tampered_with_ends_the_connection(mischief: str) -> None:
    with tapped() as (task, driver, from_task, to_driver):
        first = _sent(task, from_task, {"n": 1})
        second = _sent(task, from_task, {"n": 2})
        receiver = driver
        if mischief == "changed":
            to_driver.sendall(first[:-2] + b"9}")
        elif mischief == "repeated":
            to_driver.sendall(first)
            assert driver.receive(WAIT_S) == {"n": 1}
            to_driver.sendall(first)
        elif mischief == "left out":
            to_driver.sendall(second)
        else:
            receiver = task
            from_task.sendall(first)
        with pytest.raises(LinkBrokenError, match="invalid authentication code"):
            receiver.receive(WAIT_S)


def test_the_end_of_one_side_is_seen_by_the_other() -> None:
    with serving() as (server, heard):
        channel = connect_channel(server.address, SECRET, WAIT_S, WAIT_S)
        channel.send({})
        wait_until(lambda: heard == [{}], "it is heard", WAIT_S)
        assert channel.receive(WAIT_S) == {"count": 1}
        server.close()
        with pytest.raises(LinkBrokenError):
            channel.receive(WAIT_S)
        channel.close()
