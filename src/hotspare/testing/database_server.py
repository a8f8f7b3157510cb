"""Real PostgreSQL and MariaDB servers for tests, from the operating system's packages, on the loopback interface."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from enum import Enum
from pathlib import Path

from hotspare.base.errors import ClusterError
from hotspare.testing.server_process import ServerProcess, free_ports
from hotspare.testing.store_server import StoreServer

_USER, _PASSWORD = "hotspare", "not a secret"
_FOLDERS = (Path("/usr/sbin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
"""The folders in which Debian installs servers that are not on the path."""
_OWNERS = ("postgres", "nobody")
"""The users as which PostgreSQL may run if this process is root, because PostgreSQL refuses to run as root."""


class DatabaseKind(Enum):
    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"


_PROGRAMS = {DatabaseKind.POSTGRESQL: ("initdb", "postgres"), DatabaseKind.MARIADB: ("mariadb-install-db", "mariadbd")}


def _program(name: str) -> str | None:
    found = shutil.which(name, path=os.pathsep.join([*map(str, _FOLDERS), os.environ.get("PATH", "")]))
    return str(Path(found).resolve()) if found else None


def why_no_server(kind: DatabaseKind) -> str:
    """Returns the reason why the server cannot be started, which names the missing programs; "" if none is missing."""
    missing = [name for name in _PROGRAMS[kind] if _program(name) is None]
    return f"{', '.join(missing)} of {kind.value} not found" if missing else ""


class DatabaseServer(StoreServer):
    """A database server with one empty database. `url` opens it as a snapshot store."""

    def __init__(self, kind: DatabaseKind) -> None:
        """Starts the server and waits until it answers. Raises ClusterError if a program is missing or the server does not
        start."""
        reason = why_no_server(kind)
        if reason:
            raise ClusterError(reason)
        folder = Path(tempfile.mkdtemp(prefix=f"hotspare-{kind.value}-"))
        port = free_ports(1)[0]
        address = f"{_USER}:{_PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}"
        url = f"{kind.value}://{address}/" + ("postgres" if kind is DatabaseKind.POSTGRESQL else "hotspare")
        made = _postgresql(folder, port) if kind is DatabaseKind.POSTGRESQL else _mariadb(folder, port)
        super().__init__(ServerProcess(kind.value, made, folder), folder, url, _PASSWORD)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise ClusterError(f"{Path(command[0]).name} failed", detail=(done.stderr or done.stdout)[-1000:])


def _postgresql(folder: Path, port: int) -> list[str]:
    """Creates the server's data in `folder`; returns the command that runs the server."""
    initdb, server = (_program(name) or name for name in _PROGRAMS[DatabaseKind.POSTGRESQL])
    password, data = folder / "password", folder / "data"
    password.write_text(_PASSWORD)
    as_user: list[str] = []
    if os.geteuid() == 0:
        owner = next(entry for entry in pwd.getpwall() if entry.pw_name in _OWNERS)
        for path in (folder, password):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        as_user = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    _run([*as_user, initdb, "-D", str(data), "-U", _USER, f"--pwfile={password}", "-A", "scram-sha-256", "-E", "UTF8", "--no-sync"])
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "max_connections": 50}
    return [*as_user, server, "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())]


def _mariadb(folder: Path, port: int) -> list[str]:
    install, server = (_program(name) or name for name in _PROGRAMS[DatabaseKind.MARIADB])
    data, begin = folder / "data", folder / "begin.sql"
    user = pwd.getpwuid(os.geteuid()).pw_name
    _run(
        [
            install,
            "--no-defaults",
            f"--user={user}",
            f"--datadir={data}",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]
    )
    begin.write_text(
        f"CREATE DATABASE IF NOT EXISTS hotspare CHARACTER SET utf8mb4;\n"
        f"CREATE USER IF NOT EXISTS {_USER}@'127.0.0.1' IDENTIFIED BY '{_PASSWORD}';\n"
        f"GRANT ALL ON hotspare.* TO {_USER}@'127.0.0.1';\n"
    )
    settings = {"user": user, "datadir": data, "port": port, "bind-address": "127.0.0.1", "socket": folder / "socket"}
    settings |= {"init-file": begin, "skip-name-resolve": 1, "innodb-buffer-pool-size": "32M"}
    return [server, "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]
