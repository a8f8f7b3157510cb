"""How a publisher remembers what it has published: in headers of its own messages, and in a record that retention does not take.

`SOURCE_HEADER` holds `name@bytes`: the name of the source and how many bytes of it are published, this message included.
`CHECK_HEADER` holds a digest of the bytes just before, so that a file that was replaced meanwhile is noticed.
The record of a source holds the same; the bus writes it in one transaction with the messages. So a source without a record was
never published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import xxhash

from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import FORMAT_HEADER, SOURCE_HEADER, Bus, HeaderGuard, Outgoing, Partition

CHECK_HEADER = "hotspare-source-check"
CHECK_BYTES_MAX = 256
"""How many bytes before a position its check covers."""
SOURCE_NAME_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """`published_bytes` of the source are on the topic; the repetitions of a file count on. `check` is "" for none."""

    published_bytes: int
    check: str = ""


def source_prefix(name: str) -> bytes:
    """What the header of every message of a source begins with; no source's prefix begins another's."""
    prefix = quote(name, safe="/:._- ") + "@"
    if not name or len(prefix) > SOURCE_NAME_LENGTH_MAX:
        raise UsageError(f"source name {name[:80]!r} cannot be used", hint=f"use 1 to {SOURCE_NAME_LENGTH_MAX - 1} characters")
    return prefix.encode()


def source_headers(prefix: bytes, position: SourcePosition) -> tuple[tuple[str, bytes], ...]:
    return (SOURCE_HEADER, prefix + str(position.published_bytes).encode()), (CHECK_HEADER, position.check.encode())


def digest_of(tail: bytes) -> str:
    """Check of the bytes that stand before a position."""
    return digest_of_all(tail[-CHECK_BYTES_MAX:]) if tail else ""


def digest_of_all(content: bytes) -> str:
    """Check of all that stands in the last piece before a position."""
    return str(xxhash.xxh3_64_hexdigest(content))


class PublishedSource:
    """A source on one partition: its position, and the next piece, which is written once though other publishers write it, too.

    A source that was never published begins at `begin`. Not thread-safe. All calls raise what `Bus` raises.
    """

    def __init__(self, bus: Bus, partition: Partition, name: str, begin: int = 0) -> None:
        self._bus = bus
        self._partition = partition
        self._begin = begin
        self._prefix = source_prefix(name)
        self._since_offset = 0
        self._record: bytes | None = None

    def look(self) -> SourcePosition:
        """Returns what is published."""
        # what is written to the topic after this look is seen by the guard of the next append
        self._since_offset = self._bus.end_offset(self._partition)
        self._record = self._bus.record(self._partition, self._prefix)
        return SourcePosition(self._begin) if self._record is None else _decoded(self._record, self._partition, self._prefix)

    def append(self, values: Sequence[bytes], positions: Sequence[SourcePosition], message_format: bytes) -> bool:
        """Append messages, each with the position behind it; without any, note the one position. False where the topic holds more
        of the source than the last look and the appends since have shown, and nothing was written. UnknownResult: look again."""
        messages = [
            Outgoing(value, (*source_headers(self._prefix, position), (FORMAT_HEADER, message_format)))
            for value, position in zip(values, positions if values else (), strict=True)
        ]
        guard = HeaderGuard(SOURCE_HEADER, self._prefix, self._since_offset, self._record)
        record = _encoded(positions[-1])
        first = self._bus.append_guarded(self._partition, messages, guard, record)
        if first is None:
            return False
        self._since_offset, self._record = first + len(messages), record
        return True


def published_sources(bus: Bus, partition: Partition) -> Mapping[str, SourcePosition]:
    """Of every source that has a record, what is published, in order of their names."""
    records = bus.records(partition)
    found = {key: _decoded(record, partition, key) for key, record in records.items() if key.endswith(b"@")}
    return {unquote(key.decode().removesuffix("@")): position for key, position in sorted(found.items())}


def _encoded(position: SourcePosition) -> bytes:
    return json.dumps({"position": position.published_bytes, "check": position.check}).encode()


def _decoded(record: bytes, partition: Partition, key: bytes) -> SourcePosition:
    try:
        values = json.loads(record)
        return SourcePosition(int(values["position"]), str(values["check"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BusError(
            f"the record of source {key.decode(errors='replace')[:80]} of topic {partition.topic} cannot be read",
            detail=repr(record[:80]),
            hint="another program wrote it; publish under another --source name",
        ) from error
