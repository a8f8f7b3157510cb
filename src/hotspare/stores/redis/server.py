"""A client of a Redis server by URL, shared by all modules that store data there."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit, urlunsplit

import redis

from hotspare.base.passwords import password_alone
from hotspare.stores.limits import invalid_url

_CONNECT_S, _CALL_S = 5, 30


def server_of(url: str, what: str) -> redis.Redis:
    """Returns a client for the server at `url`, without connecting. `what`, such as `a Redis store`, describes the URL in errors.
    Raises UsageError if the URL names no server, or its password cannot be read."""
    try:
        parts = urlsplit(url)
        is_one = bool(parts.hostname) and (parts.path.strip("/") or "0").isdecimal() and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise invalid_url(what, "redis://host:6379/0")
    password = password_alone({name: values[-1] for name, values in parse_qs(parts.query).items()}, what)
    given = {} if password is None else {"password": password}
    plain = urlunsplit(parts._replace(query="", fragment=""))
    return redis.Redis.from_url(plain, socket_connect_timeout=_CONNECT_S, socket_timeout=_CALL_S, **given)
