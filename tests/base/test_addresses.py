"""The notation of addresses, and the choice of an address of this machine that other machines can reach."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.addresses import LOOPBACK, PORT_MAX, HostPort, address_towards, checked_host_port, parse_host_port
from hotspare.base.errors import UsageError
from hotspare.host.options import EngineOptions
from hotspare.host.process import peer_addresses

ELSEWHERE = "198.51.100.7"
"""An address for documentation; nothing is sent there."""
hosts = st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z]{2,5})?", fullmatch=True))


@given(hosts, st.integers(0, PORT_MAX))
def test_what_is_written_can_be_read_back(host: str, port: int) -> None:
    assert parse_host_port(str(HostPort(host, port))) == HostPort(host, port)


@pytest.mark.parametrize("text", ["", ":7", "a b", "a:", "a:99999", "a:-1", "2001:db8::1", "a:1:2", "user@host:1", "\n"])
def test_what_is_no_address_is_refused_with_its_form(text: str) -> None:
    assert parse_host_port(text) is None
    with pytest.raises(UsageError, match="--address") as refused:
        checked_host_port(text, "--address")
    assert "[2001:db8::1]:7001" in refused.value.hint


def own_address() -> str:
    """Returns this machine's address towards others; skips the test without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
        except OSError:
            pytest.skip("this machine has no way to others")
        return str(probe.getsockname()[0])


def test_while_all_servers_are_here_nobody_else_has_to_reach_this_machine() -> None:
    assert address_towards(()) == LOOPBACK
    assert address_towards((HostPort("127.0.0.1", 2181), HostPort("localhost", 9092), HostPort("127.8.8.8", 1))) == LOOPBACK


def test_one_server_elsewhere_is_enough_to_need_an_address() -> None:
    assert address_towards((HostPort("localhost", 2181), HostPort(ELSEWHERE, 9092))) == own_address()


def test_a_server_that_nobody_knows_leads_nowhere() -> None:
    with pytest.raises(UsageError, match=r"no route to no-such-host\.invalid") as refused:
        address_towards((HostPort("no-such-host.invalid", 2181),))
    assert "--address" in refused.value.hint


def options(bus_url: str, address: str = "", listen: str = "") -> EngineOptions:
    return EngineOptions(Path("p.yaml"), bus_url, address=address, listen=listen)


def test_an_engine_is_reached_from_this_machine_alone_while_everything_is_on_it() -> None:
    for bus, coordination in (
        ("sqlite:///b.db", "sqlite:///b.db-coord"),
        ("memory://b", "memory://b"),
        ("kafka://127.0.0.1:9092", "zookeeper://localhost:2181/x"),
    ):
        assert peer_addresses(options(bus), coordination) == (HostPort(LOOPBACK), HostPort(LOOPBACK))


def test_an_engine_of_a_group_on_several_machines_is_reached_from_them() -> None:
    own = own_address()
    for bus, coordination in (
        (f"kafka://{ELSEWHERE}:9092", "zookeeper://127.0.0.1:2181"),
        ("kafka://127.0.0.1:9092", f"zookeeper://127.0.0.1:2181,{ELSEWHERE}:2181/x"),
    ):
        assert peer_addresses(options(bus), coordination) == (HostPort(own), HostPort(own))
        assert peer_addresses(options(bus, listen="0.0.0.0:7001"), coordination) == (HostPort("0.0.0.0", 7001), HostPort(own, 7001))


def test_what_is_told_goes_before_what_is_found() -> None:
    bus, coordination = f"kafka://{ELSEWHERE}:9092", f"zookeeper://{ELSEWHERE}"
    one, other = HostPort("engine.example", 7001), HostPort("10.0.0.1", 8001)
    assert peer_addresses(options(bus, address=str(one)), coordination) == (one, one)
    assert peer_addresses(options(bus, listen=str(other)), coordination) == (other, other)
    assert peer_addresses(options(bus, str(one), str(other)), coordination) == (other, one)


@pytest.mark.parametrize("wrong", [{"address": "a b"}, {"listen": "2001:db8::1"}])
def test_an_option_that_is_no_address_is_refused_by_name(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(wrong))}"):
        options("memory://b", **wrong)
