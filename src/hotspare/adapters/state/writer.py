"""Writes records into a state database (SPEC G13): each output of a stream once and in order, whoever dies when.

What is written and how far the stream is are one script on the server, which checks epoch and sequence first. So a promotion
repeats nothing, and an engine that thaws writes nothing. The stream stays on the bus: who finds the note further back, because the
server lost its last second, goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from hotspare.adapters.state import scripts
from hotspare.adapters.state.layout import indexes_key, key_fields_key, note_key, told_indexes
from hotspare.base.errors import BusError, BusUnavailable, Fenced, UnknownResult
from hotspare.bus.topic_writer import Placed
from hotspare.model.statedb import RecordKeeping
from hotspare.stores.redis.server import server_of

RECORDS_MAX = 500
"""In one script, while which the server does nothing else."""
_FINAL = ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "ERR Error")
"""How answers begin that come again however often one asks."""


class StateWriter:
    """A `TopicWriter` (bus.topic_writer) of one stream under an epoch. `stream` names it among all that write there. A script
    writes at most `records_max` records."""

    def __init__(self, kept: RecordKeeping, stream: str, epoch: int, records_max: int = RECORDS_MAX) -> None:
        """UsageError where the address cannot be read."""
        self._kept, self._records_max = kept, records_max
        self._server: Any = server_of(kept.server, "a state database")
        self._open, self._write = (self._server.register_script(script) for script in (scripts.OPEN, scripts.WRITE))
        self._note = note_key(kept.prefix, stream)
        self._epoch = epoch
        self._sequence = 0
        self.topic = f"{kept.prefix}:"

    def partitions(self) -> int:
        return 1

    def open(self) -> bytes | None:
        """As the contract says; Fenced where a newer epoch has written."""
        kept = self._kept
        keys = [self._note, key_fields_key(kept.prefix), indexes_key(kept.prefix)]
        indexes = [(name, [kept.stored(each) for each in fields]) for name, fields in kept.indexes]
        told: list[str | int] = [self._epoch, ";".join(map(kept.stored, kept.key)), told_indexes(indexes)]
        with _as_bus_error(BusUnavailable):
            is_open, *found = self._open(keys=keys, args=told)
        if not is_open:
            raise Fenced(f"records {kept.prefix}: are written under a newer epoch of the group")
        self._sequence = int(found[0])
        return found[1] or None

    def write(self, messages: Sequence[Placed], position: bytes) -> None:
        """In parts, the last of which notes the position: what a part wrote is written, and known by its sequence."""
        left = [each.message for each in messages if int(each.message.key or b"0") > self._sequence]
        parts = [left[at : at + self._records_max] for at in range(0, len(left), self._records_max)] or [[]]
        for number, part in enumerate(parts, 1):
            behind = int(part[-1].key or b"0") if part else self._sequence
            records = b"[" + b",".join(each.value for each in part) + b"]"
            place = position if number == len(parts) else b""
            with _as_bus_error(UnknownResult):
                done = self._write(keys=[self._note], args=[self._epoch, self._sequence, behind, place, records])
            if not done:
                raise Fenced(f"records {self._kept.prefix}: are written by another engine, or the server lost some")
            self._sequence = behind

    def close(self) -> None:
        self._server.close()


@contextmanager
def _as_bus_error(without_answer: type[BusError]) -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        told = " ".join(str(error).split())[:300]
        if isinstance(error, redis.ResponseError) and told.startswith(_FINAL):
            raise BusError("the state database refuses records", detail=told) from None
        raise without_answer("the state database does not answer as it should", detail=told) from None
