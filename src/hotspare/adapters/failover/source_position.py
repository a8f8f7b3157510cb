"""How a publisher remembers what it has published: in headers of its own messages, and in a record that retention does not take.

`SOURCE_HEADER` holds `name@bytes`: the name of the source and how many bytes of it are published, this message included.
`CHECK_HEADER` holds a digest of the bytes just before, so that a file that was replaced meanwhile is noticed.
The record of a source says the same; the bus writes it in one transaction with the messages. Headers without a record are those of
a publisher of before there were records. Where a topic has forgotten its beginning, a source of which it knows nothing may have
been there; unless the topic's record for all sources says that each one ever published has a record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import xxhash

from hotspare.bus.contract import FORMAT_HEADER, SOURCE_HEADER, Bus, HeaderGuard, Message, Outgoing, Partition
from hotspare.errors import BusError, PositionLost, UnknownResult, UsageError

CHECK_HEADER = "hotspare-source-check"
CHECK_BYTES_MAX = 256
"""How many bytes before a position its check covers."""
SOURCE_NAME_LENGTH_MAX = 1024
ALL_SOURCES = b""
"""Key of the record that says that every source ever published to the partition has a record."""
_COMPLETE = b'{"complete": true}'


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
    """One source on one partition: what is published of it, and the next piece, which is written once whoever else writes it.

    `begin` is where a source begins of which nothing is known; None for at 0, if it is sure that nothing was published. Not
    thread-safe. All calls raise what `Bus` raises.
    """

    def __init__(self, bus: Bus, partition: Partition, name: str, begin: int | None = None) -> None:
        self._bus = bus
        self._partition = partition
        self._name = name
        self._begin = begin
        self._prefix = source_prefix(name)
        self._since_offset = 0
        self._record: bytes | None = None

    def look(self) -> SourcePosition:
        """What is published. PositionLost where that cannot be known."""
        # what is written to the topic after this look is seen by the guard of the next append
        self._since_offset = self._bus.end_offset(self._partition)
        self._record = self._bus.record(self._partition, self._prefix)
        known = None if self._record is None else _decoded(self._record, self._partition, self._prefix)
        since_offset = 0 if known is None else known[1]
        message = self._bus.newest_with_header(self._partition, SOURCE_HEADER, self._prefix, since_offset)
        found = [] if known is None else [known[0]]
        if message is not None:
            found.append(_position_of(message, self._partition, self._prefix))
        return max(found, key=lambda position: position.published_bytes) if found else self._beginning()

    def append(self, values: Sequence[bytes], positions: Sequence[SourcePosition], message_format: bytes) -> bool:
        """Append messages, each with the position behind it; without any, note the one position. False where the topic holds more
        of the source than the last look and the appends since have shown, and nothing was written. UnknownResult: look again."""
        messages = [
            Outgoing(value, (*source_headers(self._prefix, position), (FORMAT_HEADER, message_format)))
            for value, position in zip(values, positions if values else (), strict=True)
        ]
        guard = HeaderGuard(SOURCE_HEADER, self._prefix, self._since_offset, self._record)
        record = _encoded(positions[-1], self._since_offset)
        first = self._bus.append_guarded(self._partition, messages, guard, record)
        if first is None:
            return False
        self._since_offset, self._record = first + len(messages), record
        return True

    def _beginning(self) -> SourcePosition:
        """Of a source of which nothing is known."""
        if note_all_sources(self._bus, self._partition) or self._begin is not None:
            return SourcePosition(self._begin or 0)
        begin = self._bus.begin_offset(self._partition)
        if begin == 0:
            return SourcePosition(0)
        raise PositionLost(
            f"whether source {self._name} was published to topic {self._partition.topic} is not known",
            detail=f"the topic has forgotten what stood before offset {begin}, and has no record of this source",
            hint="say where to begin (`--begin`, or the connector's property begin): 0 if nothing of it was published",
        )


def note_all_sources(bus: Bus, partition: Partition) -> bool:
    """Whether every source ever published to the partition has a record. Notes it where the topic shows it: it still has its
    beginning, and no message of any source. As `PublishedSource`, raises what `Bus` raises."""
    if bus.record(partition, ALL_SOURCES) is not None:
        return True
    if bus.begin_offset(partition) > 0:
        return False
    end = bus.end_offset(partition)
    if bus.newest_with_header(partition, SOURCE_HEADER, b"") is not None or bus.begin_offset(partition) > 0:
        return False
    try:
        return bus.append_guarded(partition, [], HeaderGuard(SOURCE_HEADER, ALL_SOURCES, end), _COMPLETE) is not None
    except UnknownResult:
        return False


def published_sources(bus: Bus, partition: Partition) -> Mapping[str, SourcePosition]:
    """Of every source that has a record, what is published, in order of their names."""
    records = bus.records(partition)
    found = {key: _decoded(record, partition, key)[0] for key, record in records.items() if key.endswith(b"@")}
    return {unquote(key.decode().removesuffix("@")): position for key, position in sorted(found.items())}


def _encoded(position: SourcePosition, since_offset: int) -> bytes:
    """A record. All messages that it is about stand at or after `since_offset`."""
    return json.dumps({"position": position.published_bytes, "check": position.check, "since_offset": since_offset}).encode()


def _decoded(record: bytes, partition: Partition, key: bytes) -> tuple[SourcePosition, int]:
    try:
        values = json.loads(record)
        return SourcePosition(int(values["position"]), str(values["check"])), int(values["since_offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise BusError(
            f"the record of source {key.decode(errors='replace')[:80]} of topic {partition.topic} cannot be read",
            detail=repr(record[:80]),
            hint="another program wrote it; publish under another --source name",
        ) from error


def _position_of(message: Message, partition: Partition, prefix: bytes) -> SourcePosition:
    text = (message.header(SOURCE_HEADER) or b"")[len(prefix) :]
    if not text.isdigit():
        raise BusError(
            f"message {message.offset} of {partition.topic} has a source header that cannot be read",
            detail=repr(text[:80]),
            hint="another program wrote to this topic; publish under another --source name",
        )
    return SourcePosition(int(text), (message.header(CHECK_HEADER) or b"").decode(errors="replace"))
