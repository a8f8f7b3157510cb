"""Errors of a state database: which are final, for look-ups and writers alike (SPEC G13)."""

from __future__ import annotations

import pytest
import redis

from hotspare.adapters.state.server_errors import as_bus_error
from hotspare.base.errors import BusError, BusUnavailable

LINE = "Command # 1 (ZRANGEBYSCORE a 0 +inf) of pipeline caused error: "


@pytest.mark.parametrize(
    "error",
    [
        redis.AuthenticationError("invalid username-password pair or user is disabled."),
        redis.exceptions.NoPermissionError("this user has no permissions to run the 'set' command"),
        redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        redis.ResponseError(f"{LINE}WRONGTYPE Operation against a key holding the wrong kind of value"),
        redis.ResponseError("user_script:1: too many results to unpack script: 5f1c, on @user_script:1."),
        redis.ResponseError("unknown command 'ZRANGEBYSCORE', with args beginning with: "),
    ],
)
def test_what_a_retry_cannot_help(error: redis.RedisError) -> None:
    with pytest.raises(BusError, match="refuses the request") as told, as_bus_error(BusUnavailable):
        raise error
    assert not told.value.retryable


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("Connection refused"),
        redis.TimeoutError("Timeout reading from socket"),
        redis.BusyLoadingError("Redis is loading the dataset in memory"),
        redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        redis.ResponseError("BUSY Redis is busy running a script."),
        redis.ResponseError(f"{LINE}BUSY Redis is busy running a script."),
        redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk."),
    ],
)
def test_what_may_pass(error: redis.RedisError) -> None:
    with pytest.raises(BusUnavailable), as_bus_error(BusUnavailable):
        raise error
