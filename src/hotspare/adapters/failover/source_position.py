"""A publisher's memory of its published events: headers of its own messages, and a record that retention never deletes.

`SOURCE_HEADER` holds `name@bytes`: the name of the source, and the bytes of it that are published, this message included.
`CHECK_HEADER` holds a digest of the bytes just before that position, to detect a file that was replaced.

The record of a source holds the same values; the bus writes it in one transaction with the messages. So a source without a record
was never published."""

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
"""The number of bytes before a position that its check covers."""
SOURCE_NAME_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A position in a source. `published_bytes`: the bytes of the source that are on the topic, counted on over repetitions of a
    file. `check`: a digest of the bytes before the position, "" if there is none."""

    published_bytes: int
    check: str = ""


def source_prefix(name: str) -> bytes:
    """Returns the prefix of a source's header values; none is a prefix of another source's. Raises UsageError for an invalid
    name."""
    prefix = quote(name, safe="/:._- ") + "@"
    if not name or len(prefix) > SOURCE_NAME_LENGTH_MAX:
        raise UsageError(
            f"source name {name[:80]!r} is empty or too long", hint=f"use 1 to {SOURCE_NAME_LENGTH_MAX - 1} characters of ASCII"
        )
    return prefix.encode()


def source_headers(prefix: bytes, position: SourcePosition) -> tuple[tuple[str, bytes], ...]:
    return (SOURCE_HEADER, prefix + str(position.published_bytes).encode()), (CHECK_HEADER, position.check.encode())


def tail_digest(tail: bytes) -> str:
    """Returns the check of the bytes before a position: a digest of the last CHECK_BYTES_MAX of `tail`."""
    return content_digest(tail[-CHECK_BYTES_MAX:]) if tail else ""


def content_digest(content: bytes) -> str:
    """Returns the check of a position: a digest of `content`, the complete last piece before the position."""
    return str(xxhash.xxh3_64_hexdigest(content))


class PublishedSource:
    """A source on one partition: its position, and the append of the next piece, exactly once even with concurrent publishers.

    A source that was never published begins at `begin`. Not thread-safe. All calls raise what `Bus` raises.
    """

    def __init__(self, bus: Bus, partition: Partition, name: str, begin: int = 0) -> None:
        self._bus = bus
        self._partition = partition
        self._begin = begin
        self._prefix = source_prefix(name)
        self._since_offset = 0
        self._record: bytes | None = None

    def read_source_position(self) -> SourcePosition:
        """Returns the published position of the source."""
        # the guard of the next append detects writes to the topic after this look
        self._since_offset = self._bus.end_offset(self._partition)
        self._record = self._bus.record(self._partition, self._prefix)
        return SourcePosition(self._begin) if self._record is None else _decoded(self._record, self._partition, self._prefix)

    def append(self, values: Sequence[bytes], positions: Sequence[SourcePosition], message_format: bytes) -> bool:
        """Appends the messages `values`, each with the element of `positions` that is reached after it. Without messages, only
        records `positions[-1]`.

        Returns False, with nothing written, if the topic holds more of the source than `read_source_position` found and this
        object appended since. Call `read_source_position` again then, and after UnknownResult.
        """
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
    """Returns the position of every source that has a record, in order of their names."""
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
            hint="publish under another --source name: another program wrote this record",
        ) from error
