"""Opens coordination by its URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, `zookeeper://a:2181,b:2181/path`, or
`memory://name` (within one process)."""

from __future__ import annotations

from uuid import uuid4

from hotspare.base.addresses import HostPort, parse_host_port
from hotspare.base.errors import UsageError
from hotspare.base.sqlite_file import parse_sqlite_url
from hotspare.coordination.contract import Coordination
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.sqlite import BUSY_TIMEOUT_MS, SqliteCoordination
from hotspare.coordination.zookeeper.url import parse_zookeeper_url

FILE_SUFFIX = "-coord"
_SHARED: dict[str, MemoryCoordination] = {}


def open_coordination(url: str) -> Coordination:
    """Opens the coordination that `url` names. Raises UsageError for an invalid URL, CoordinationSuspended if no server answers.

    `?busy_timeout_ms=n` sets how long a call waits for a file's lock; the options of ZooKeeper are those of `ZooKeeperTarget`.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        path, busy_timeout_ms = parse_sqlite_url(url, BUSY_TIMEOUT_MS)
        return SqliteCoordination(path, busy_timeout_ms)
    if separator and scheme == "memory" and rest:
        return _SHARED.setdefault(rest, MemoryCoordination()).client(uuid4().hex)
    if separator and scheme == "zookeeper":
        from hotspare.coordination.zookeeper.coordination import ZooKeeperCoordination

        return ZooKeeperCoordination(parse_zookeeper_url(url))
    what = "memory:// needs a name" if scheme == "memory" and separator else f"{scheme[:20]!r} is not a kind of coordination"
    raise UsageError(
        what,
        hint="write sqlite:///file.db, zookeeper://host:port/path or memory://name",
    )


def coordination_servers(url: str) -> tuple[HostPort, ...]:
    """Returns the servers that a URL of `open_coordination` names; empty for SQLite and memory, which are on this machine."""
    if not url.startswith("zookeeper://"):
        return ()
    named = (parse_host_port(text) for text in parse_zookeeper_url(url).hosts.split(","))
    return tuple(server for server in named if server is not None)


def default_coordination_url(bus_url: str) -> str:
    """Returns the URL of the coordination that belongs to a SQLite bus or a named bus in memory, for a command without
    --coordination. Raises UsageError for other buses."""
    scheme, separator, rest = bus_url.partition("://")
    if separator and scheme == "memory" and rest:
        return bus_url
    if separator and scheme == "sqlite":
        path, question, options = rest.partition("?")
        return f"sqlite://{path}{FILE_SUFFIX}{question}{options}"
    raise UsageError("this bus has no coordination of its own", hint="give --coordination URL")
