"""Parses `zookeeper://a:2181,b:2181/path?option=value` before any connection is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from hotspare.base.addresses import HOST_PORT, PORT_MAX
from hotspare.base.errors import UsageError
from hotspare.base.passwords import PASSWORD_ENV, PASSWORD_FILE, named_password

PORT = 2181
ROOT = "/hotspare"
HOSTS_MAX = 20
PATH_LENGTH_MAX = 500
_NUMBERS = {"session_timeout_ms": (200, 60_000), "call_timeout_ms": (10, 60_000), "connect_timeout_ms": (10, 600_000)}
_TEXTS = ("user", "password", PASSWORD_FILE, PASSWORD_ENV)
_HINT = "write zookeeper://host:port[,host:port ...][/path][?option=value&...]"
_OPTIONS = f"options are {', '.join((*_NUMBERS, *_TEXTS))}"


@dataclass(frozen=True, slots=True)
class ZooKeeperTarget:
    """The servers and options of a URL. `hosts`: `host:port` of each server, separated by commas. `root`: the node below which all
    nodes are created, "" for the top.

    `session_timeout_ms`    how long the servers wait for a sign of this client before they remove its members
    `call_timeout_ms`       how long a call of an engine waits for an answer
    `connect_timeout_ms`    how long opening waits for a connection
    `user`, `password`      digest credentials; with them, new nodes are accessible to this user alone
    """

    hosts: str
    root: str = ROOT
    session_timeout_ms: int = 4_000
    call_timeout_ms: int = 150
    connect_timeout_ms: int = 10_000
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def credential(self) -> str:
        return f"{self.user}:{self.password}" if self.user else ""


def parse_zookeeper_url(url: str) -> ZooKeeperTarget:
    """Parses a URL; without a path, the root is `/hotspare`. Raises UsageError for an invalid URL; the message never contains a
    secret."""
    rest, _, query = url.partition("://")[2].partition("?")
    hosts, slash, path = rest.partition("/")
    target: dict[str, str | int] = {"hosts": _hosts(hosts)}
    if slash and path.strip("/"):
        target["root"] = _root(path)
    options = _options(query)
    for name, (least, most) in _NUMBERS.items():
        if name in options:
            target[name] = _number(name, options[name], least, most)
    target |= _credentials(options)
    return ZooKeeperTarget(**target)  # type: ignore[arg-type]


def _hosts(text: str) -> str:
    if "@" in text:
        raise UsageError("a zookeeper:// URL must not have a user before the host", hint="write ?user=NAME&password=WORD")
    names = text.split(",")
    found = [HOST_PORT.fullmatch(name) for name in names]
    bad = next((name for name, match in zip(names, found, strict=True) if match is None or not _is_port(match["port"])), None)
    if bad is not None or len(names) > HOSTS_MAX:
        raise UsageError(f"{(bad if bad is not None else text)[:80]!r} is not a zookeeper host", hint=_HINT)
    return ",".join(f"{match['host']}:{match['port'] or PORT}" for match in found if match is not None)


def _is_port(text: str | None) -> bool:
    return text is None or 1 <= int(text) <= PORT_MAX


def _root(path: str) -> str:
    parts = unquote(path).strip("/").split("/")
    text = "/" + "/".join(parts)
    is_usable = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    if not is_usable or len(text) > PATH_LENGTH_MAX or parts[0] == "zookeeper":
        raise UsageError(f"zookeeper path {text[:80]!r} cannot be used", hint="use /name/name; /zookeeper is reserved by zookeeper")
    return text


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _NUMBERS and name not in _TEXTS:
            raise UsageError(f"option {name[:40]!r} of a zookeeper:// URL is not known", hint=_OPTIONS)
        if name in options:
            raise UsageError(f"option {name!r} of a zookeeper:// URL is given twice", hint=_OPTIONS)
        options[name] = value
    return options


def _number(name: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise UsageError(f"option {name}={text[:20]!r} of a zookeeper:// URL cannot be used", hint=f"use {least} to {most}")
    return int(text)


def _credentials(options: dict[str, str]) -> dict[str, str]:
    user, password = options.get("user", ""), named_password(options)
    if password is None:
        password = options.get("password", "")
    if not user and not password:
        return {}
    if not user or not password or ":" in user:
        raise UsageError(
            "a zookeeper:// URL needs both user and password, or neither", hint="a user's name must not contain a colon"
        )
    return {"user": user, "password": password}
