"""Writes records into a state database (SPEC G13): each output of a stream once and in order, whichever process dies.

One script on the server writes records and the progress of the stream; it checks epoch and sequence first. So a promotion repeats
nothing, and an engine that thaws writes nothing. The progress is a hash under the prefix of the stream's records: the epoch of
its writer, the last sequence, and the position to read from next. The stream stays on the bus: if the server lost its last
second, a writer finds older progress and continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hotspare.adapters.state.layout import format_indexes, indexes_key, key_fields_key, stream_progress_key
from hotspare.adapters.state.server_errors import as_bus_error
from hotspare.base.errors import BusUnavailable, Fenced, UnknownResult
from hotspare.bus.topic_writer import RoutedMessage
from hotspare.model.statedb import RecordKeeping
from hotspare.stores.redis.server import server_of

RECORDS_MAX = 500
"""Limit on the records of one script, which blocks the server."""
_OPEN_SCRIPT = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return {0} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
if ARGV[3] == '' then redis.call('DEL', KEYS[3]) else redis.call('SET', KEYS[3], ARGV[3]) end
return {1, redis.call('HGET', KEYS[1], 'sequence') or '0', redis.call('HGET', KEYS[1], 'position') or ''}
"""
"""Begins to write under an epoch. KEYS note, fields of the key, indexes; ARGV epoch, and the values of the latter two keys. Returns
0 if a newer epoch has written."""
_WRITE_SCRIPT = """
local known = redis.call('HMGET', KEYS[1], 'epoch', 'sequence')
if known[1] ~= ARGV[1] or (known[2] or '0') ~= ARGV[2] then return 0 end
for _, record in ipairs(cjson.decode(ARGV[5])) do
  local key = record.key
  local indexed = redis.call('HGET', key, '_hotspare_indexed_')
  if indexed and not record.partial then
    for _, index in ipairs(cjson.decode(indexed)) do redis.call('ZREM', index, key) end
  end
  if not record.values then
    redis.call('DEL', key)
  else
    if not record.partial then redis.call('DEL', key) end
    redis.call('HSET', key, unpack(record.values))
    if record.indexes then
      for _, index in ipairs(record.indexes) do
        redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. record.dead)
        redis.call('ZADD', index, record.dies, key)
        local last = redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')[2]
        redis.call('PEXPIREAT', index, string.format('%.0f', math.floor((tonumber(last) + record.after) / 1000)))
      end
      redis.call('HSET', key, '_hotspare_indexed_', cjson.encode(record.indexes))
    end
    if record.expire then redis.call('PEXPIREAT', key, record.expire) end
  end
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'position', ARGV[4]) end
return 1
"""
"""Writes records. KEYS note; ARGV epoch, sequence before, sequence after, position after or "", records. Returns 0 if the
note has another epoch or sequence."""


class StateWriter:
    """A `TopicWriter` (bus.topic_writer) of one stream under an epoch. `stream` identifies it among all streams in the database. A
    script writes at most `records_max` records."""

    def __init__(self, kept: RecordKeeping, stream: str, epoch: int, records_max: int = RECORDS_MAX) -> None:
        """Raises UsageError if the address cannot be parsed."""
        self._kept, self._records_max = kept, records_max
        self._server: Any = server_of(kept.server, "a state database")
        self._open, self._write = (self._server.register_script(script) for script in (_OPEN_SCRIPT, _WRITE_SCRIPT))
        self._note = stream_progress_key(kept.prefix, stream)
        self._epoch = epoch
        self._sequence = 0
        self.topic = f"{kept.prefix}:"

    def partitions(self) -> int:
        return 1

    def open(self) -> bytes | None:
        """Implements `TopicWriter.open`. Raises Fenced if a newer epoch has written."""
        kept = self._kept
        keys = [self._note, key_fields_key(kept.prefix), indexes_key(kept.prefix)]
        indexes = [(name, [kept.record_field(each) for each in fields]) for name, fields in kept.indexes]
        told: list[str | int] = [self._epoch, ";".join(map(kept.record_field, kept.key)), format_indexes(indexes)]
        with as_bus_error(BusUnavailable):
            is_open, *found = self._open(keys=keys, args=told)
        if not is_open:
            raise Fenced(f"records with prefix {kept.prefix!r} are written under a newer epoch of the group")
        self._sequence = int(found[0])
        return found[1] or None

    def write(self, messages: Sequence[RoutedMessage], position: bytes) -> None:
        """Implements `TopicWriter.write`, in parts of at most `records_max` records, the last of which records the position.
        Messages that are written already are skipped by their sequences. Raises Fenced if another engine writes the records,
        UnknownResult if the server did not answer."""
        left = [each.message for each in messages if int(each.message.key or b"0") > self._sequence]
        parts = [left[at : at + self._records_max] for at in range(0, len(left), self._records_max)] or [[]]
        for number, part in enumerate(parts, 1):
            behind = int(part[-1].key or b"0") if part else self._sequence
            records = b"[" + b",".join(each.value for each in part) + b"]"
            place = position if number == len(parts) else b""
            with as_bus_error(UnknownResult):
                done = self._write(keys=[self._note], args=[self._epoch, self._sequence, behind, place, records])
            if not done:
                raise Fenced(f"records with prefix {self._kept.prefix!r} are written by another engine, or the server lost some")
            self._sequence = behind

    def close(self) -> None:
        self._server.close()
