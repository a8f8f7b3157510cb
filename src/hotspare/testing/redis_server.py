"""A real Redis for tests, from the operating system's packages, on the loopback interface, with a password. It writes each change
to disk before it answers."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hotspare.base.errors import ClusterError
from hotspare.testing.server_process import ServerProcess, free_ports
from hotspare.testing.store_server import StoreServer

_PASSWORD = "not-a-secret"  # noqa: S105 - of a server that only tests reach


def why_no_redis() -> str:
    """Returns the reason why Redis cannot be started; "" if its program is installed."""
    return "" if shutil.which("redis-server") else "redis-server not found"


class RedisServer(StoreServer):
    def __init__(self) -> None:
        """Starts the server and waits until it answers. Raises ClusterError if it is not installed or does not start."""
        program = shutil.which("redis-server")
        if program is None:
            raise ClusterError(why_no_redis())
        folder = Path(tempfile.mkdtemp(prefix="hotspare-redis-"))
        port = free_ports(1)[0]
        settings = {"port": port, "bind": "127.0.0.1", "dir": folder, "requirepass": _PASSWORD}
        settings |= {"appendonly": "yes", "appendfsync": "always"}
        given = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        process = ServerProcess("redis", [program, *given], folder)
        super().__init__(process, folder, f"redis://:{_PASSWORD}@127.0.0.1:{port}/0", _PASSWORD)
