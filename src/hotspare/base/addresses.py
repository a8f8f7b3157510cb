"""Addresses of servers and engines: their notation, and the address of this machine that reaches a server.

An engine records its address for engines on other machines. So it may be a loopback address only if all servers are on this
machine.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from hotspare.base.errors import UsageError

HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
PORT_MAX = 65_535
LOOPBACK = "127.0.0.1"
_ANY_PORT = 9
"""The port of the probe socket if a server has none. No packet is sent; only the route to the host counts."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host and a port. `host` is a name, or an IPv4 or IPv6 address without brackets. Port 0 is one that the system chooses."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_host_port(text: str) -> HostPort | None:
    """Parses `HOST` or `HOST:PORT`, an IPv6 address in brackets; None for any other text. A missing port is 0."""
    match = HOST_PORT.fullmatch(text)
    if match is None or int(match["port"] or 0) > PORT_MAX:
        return None
    return HostPort(match["host"].strip("[]"), int(match["port"] or 0))


def checked_host_port(text: str, option: str) -> HostPort:
    """Returns the result of `parse_host_port`. Raises UsageError that names the option if the text is not an address."""
    address = parse_host_port(text)
    if address is None:
        raise UsageError(
            f"{option} {text[:80]!r}: not an address", hint=f"write {option} HOST or HOST:PORT, [2001:db8::1]:7001 for IPv6"
        )
    return address


def address_towards(servers: Sequence[HostPort]) -> str:
    """Returns this machine's address on the route to the first of `servers` that is on another machine; `LOOPBACK` if all are here.

    Raises UsageError if no server is on another machine, and the name of some server is unknown or has no route.
    """
    lost = ""
    for server in servers:
        own = _own_address_towards(server)
        if own is None:
            lost = lost or server.host
        elif not ip_address(own).is_loopback:
            return own
    if lost:
        raise UsageError(
            f"this machine has no route to {lost}", hint="name the address at which the other engines reach it: --address HOST:PORT"
        )
    return LOOPBACK


def _own_address_towards(server: HostPort) -> str | None:
    """Returns the address that the system would send from. None without a route, or if it is link-local, which other hosts cannot
    use."""
    try:
        found = socket.getaddrinfo(server.host, server.port or _ANY_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                own = str(probe.getsockname()[0])
        except OSError:
            continue
        if not (family == socket.AF_INET6 and ip_address(own).is_link_local):
            return own
    return None
