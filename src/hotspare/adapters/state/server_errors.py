"""Converts errors of a state database to errors of the bus, in one way for look-ups and writers: by whether a retry can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from hotspare.base.errors import BusError

_REFUSALS = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError)
_IN_PIPELINE = "of pipeline caused error: "
_DETAIL_LENGTH_MAX = 300


@contextmanager
def as_bus_error(without_answer: type[BusError]) -> Iterator[None]:
    """Raises BusError if the database refuses the request for good, and `without_answer` for any other error of the database."""
    try:
        yield
    except redis.RedisError as error:
        told = " ".join(str(error).rpartition(_IN_PIPELINE)[2].split())[:_DETAIL_LENGTH_MAX]
        if _is_final(error, told):
            hint = "check the user and the password in its address, and that no other program writes keys with the same prefix"
            raise BusError("the state database refuses the request", detail=told, hint=hint) from None
        raise without_answer("the state database did not answer, or reported an error", detail=told) from None


def _is_final(error: redis.RedisError, text: str) -> bool:
    """Whether a retry is useless. The client removes the code ERR from a text, but not a code for which it has no class, such as
    BUSY or WRONGTYPE."""
    code = text.partition(" ")[0]
    return isinstance(error, _REFUSALS) or (type(error) is redis.ResponseError and (code == "WRONGTYPE" or not code.isupper()))
