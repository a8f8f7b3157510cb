"""Simulated hosts on one machine, for tests over a network: each has its own network stack, host name, and links that can fail.

A `Network` is a bridge; a `Host` is a network namespace that a veth pair joins to it. Processes of a host get its host name too.
The process that created the network can connect to every host, and hosts to it at `Network.address`. All share one kernel, one set
of process ids and one file system, so other differences between machines (boot id, disks, clocks) are not simulated.
Needs root, `ip`, `nft`, `nsenter` and `unshare`, and a kernel that permits namespaces; `why_no_hosts` returns the reason if one is
missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network
from pathlib import Path
from typing import IO

from hotspare.base.errors import ClusterError
from hotspare.testing.server_process import LOOPBACK, ServerProcess

_NETWORKS = tuple(IPv4Network("198.51.100.0/24").subnets(new_prefix=28))
"""Ranges of the addresses for documentation (RFC 5737), which no real host has. A network uses one range, for at most 13 hosts."""
_PROGRAMS = ("ip", "nft", "nsenter", "unshare", "hostname")
_PERSISTED = Path("/run/netns")
_RELAY_PORT = 7_777
RELAY_MARK = 0x4853
"""The mark of a relay's own packets, so that they are not redirected to the relay again."""
_TIMEOUT_S = 60.0


class PacketDirection(Enum):
    """The packets of a link that fail, as the host that owns the link sees them."""

    BOTH = ("input", "output")
    IN = ("input",)
    OUT = ("output",)


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a network. All other hosts reach it at `address`."""

    name: str
    address: str
    namespace: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command that runs `arguments` on this host. The started process becomes the program itself, so it has its
        id."""
        named = 'hostname "$0" && exec "$@"'
        return ["nsenter", f"--net={_PERSISTED / self.namespace}", "unshare", "--uts", "sh", "-c", named, self.name, *arguments]


@dataclass(slots=True)
class _Link:
    """The faults of a host's links, by address of the other host: rules of the packet filter, and the delay of bytes."""

    rules: dict[str, tuple[str, ...]] = field(default_factory=dict)
    delay_ms: dict[str, int] = field(default_factory=dict)
    relay: ServerProcess | None = None

    def ruleset(self) -> str:
        """Returns the input of `nft -f`, which replaces all earlier rules atomically."""
        lines = ["table inet hotspare", "delete table inet hotspare", "table inet hotspare {"]
        for chain in ("input", "output"):
            rules = [rule.partition(" ")[2] for rules in self.rules.values() for rule in rules if rule.startswith(f"{chain} ")]
            lines += [f"chain {chain} {{", f"type filter hook {chain} priority 0", *rules, "}"]
        lines += ["chain relayed {", "type nat hook output priority -100"]
        for address in self.delay_ms:
            lines.append(f"ip daddr {address} meta l4proto tcp meta mark != {RELAY_MARK} redirect to :{_RELAY_PORT}")
        return "\n".join([*lines, "}", "}", ""])


class Network:
    """A context manager for a network of hosts that reach each other until a link fails on request. Logs of relays are in `folder`.
    Entering raises ClusterError if hosts cannot be created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undo = contextlib.ExitStack()
        self._hosts: dict[str, Host] = {}
        self._links: dict[str, _Link] = {}
        self._relays = 0
        self.address = LOOPBACK.address

    def __enter__(self) -> Network:
        reason = why_no_hosts()
        if reason:
            raise ClusterError("simulated hosts cannot be created here", detail=reason)
        with contextlib.ExitStack() as undo:
            number = undo.enter_context(_reserve_network(len(_NETWORKS)))
            self._subnet, self._name = _NETWORKS[number], f"hs{number}"
            self._free = self._subnet.hosts()
            self.address = str(next(self._free))
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            undo.callback(_run, "ip", "link", "del", self._bridge)
            _run("ip", "addr", "add", f"{self.address}/{self._subnet.prefixlen}", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def _bridge(self) -> str:
        return f"{self._name}b"

    def host(self, name: str) -> Host:
        """Returns the host of that name; the first call creates it."""
        if name not in self._hosts:
            self._hosts[name] = self._made(name)
            self._links[name] = _Link()
        return self._hosts[name]

    def _made(self, name: str) -> Host:
        host = Host(name, str(next(self._free)), f"{self._name}-{name}")
        outside = f"{self._name}v{len(self._hosts)}"
        _run("ip", "netns", "add", host.namespace)
        self._undo.callback(_run, "ip", "netns", "del", host.namespace)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        self._undo.callback(_run, "ip", "link", "del", outside)  # its namespace would delete it later, at an unknown time
        _run("ip", "link", "set", outside, "master", self._bridge, "up")
        _run("ip", "-n", host.namespace, "addr", "add", f"{host.address}/{self._subnet.prefixlen}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", host.namespace, "link", "set", device, "up")
        self._undo.callback(self._stop_relay, name)
        return host

    # --- faults of links: each replaces what was wrong with that link before --------------------------------------------

    def cut_links(self, host: Host, *others: Host, way: PacketDirection = PacketDirection.BOTH) -> None:
        """Drops packets between `host` and each of `others` (all other hosts if none is named) silently."""
        self._set(host, others, lambda address: _filter(way, address, "drop"))

    def lose_packets(self, host: Host, *others: Host, percent: int, way: PacketDirection = PacketDirection.BOTH) -> None:
        """Drops `percent` (1 to 99) of the packets between `host` and each of `others` at random."""
        self._set(host, others, lambda address: _filter(way, address, f"numgen random mod 100 < {percent} drop"))

    def refuse_connections(self, host: Host, *others: Host) -> None:
        """Resets connections between `host` and each of `others` and refuses new ones, as a rejecting firewall does."""
        self._set(
            host, others, lambda address: _filter(PacketDirection.BOTH, address, "tcp flags & rst == 0 reject with tcp reset")
        )

    def slow_links(self, host: Host, *others: Host, delay_ms: int) -> None:
        """Delays the bytes of connections that `host` opens from now on by `delay_ms`, in both directions."""
        link = self._links[host.name]
        for address in self._addresses(host, others):
            link.delay_ms[address] = delay_ms
        self._stop_relay(host.name)
        link.relay = self._relay(host, link.delay_ms)
        self._apply(host)

    def remove_faults(self, host: Host, *others: Host) -> None:
        """Removes all faults of the links between `host` and each of `others` (all if none is named)."""
        link = self._links[host.name]
        for address in self._addresses(host, others):
            link.rules.pop(address, None)
            link.delay_ms.pop(address, None)
        self._apply(host)
        if not link.delay_ms:
            self._stop_relay(host.name)

    def _set(self, host: Host, others: Sequence[Host], rules: Callable[[str], tuple[str, ...]]) -> None:
        for address in self._addresses(host, others):
            self._links[host.name].rules[address] = rules(address)
        self._apply(host)

    def _addresses(self, host: Host, others: Sequence[Host]) -> list[str]:
        named = others or [h for h in self._hosts.values() if h.name != host.name]
        return [other.address for other in named] + ([] if others else [self.address])

    def _apply(self, host: Host) -> None:
        _run(*host.command(["nft", "-f", "-"]), text=self._links[host.name].ruleset())

    def _relay(self, host: Host, delay_ms: dict[str, int]) -> ServerProcess:
        late = [f"{address}={delay}" for address, delay in delay_ms.items()]
        program = [sys.executable, "-m", "hotspare.testing.slow_relay", str(_RELAY_PORT), *late]
        self._relays += 1
        relay = ServerProcess(f"relay-{self._relays}-{host.name}", host.command(program), self._folder)
        relay.launch()
        relay.wait_for_log("ready", _TIMEOUT_S)
        return relay

    def _stop_relay(self, name: str) -> None:
        relay, self._links[name].relay = self._links[name].relay, None
        if relay is not None:
            relay.kill()


def _filter(way: PacketDirection, address: str, verdict: str) -> tuple[str, ...]:
    side = {"input": "saddr", "output": "daddr"}
    return tuple(f"{chain} ip {side[chain]} {address} {verdict}" for chain in way.value)


def why_no_hosts() -> str:
    """Returns the reason why hosts cannot be created on this machine; "" if they can."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "only root may create network namespaces"
    probe = ["unshare", "--net", "--uts", "sh", "-c", "ip link add hs type bridge && nft add table inet hs"]
    tried = subprocess.run(probe, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - our own command
    return "" if tried.returncode == 0 else f"the system refuses: {tried.stderr.strip()}"


@contextlib.contextmanager
def _reserve_network(count: int) -> Iterator[int]:
    """Context manager: yields a number below `count` that no other process uses until the block or this process ends. Raises
    ClusterError if all numbers are in use."""
    with contextlib.ExitStack() as given_back:
        for number in range(count):
            lock: IO[str] = (Path(tempfile.gettempdir()) / f"hotspare-network-{number}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            given_back.callback(lock.close)
            _sweep(number)
            yield number
            return
    raise ClusterError(f"all {count} test networks are in use")


def _sweep(number: int) -> None:
    """Removes namespaces and devices that a killed process left in the network of that number."""
    namespaces = [["netns", "del", path.name] for path in _PERSISTED.glob(f"hs{number}-*")]
    devices = [["link", "del", path.name] for kind in "vb" for path in Path("/sys/class/net").glob(f"hs{number}{kind}*")]
    for left in (*devices, *namespaces):
        subprocess.run(["ip", *left], capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603, S607


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    if done.returncode:
        raise ClusterError(f"{' '.join(command)} failed", detail=done.stderr.strip())
