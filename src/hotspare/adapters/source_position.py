"""How a publisher remembers what it has published: in headers of its own messages, written together with them.

`SOURCE_HEADER` holds `name@bytes`: the name of the source and how many bytes of it are published, this message included.
`CHECK_HEADER` holds a digest of the bytes just before, so that a file that was replaced meanwhile is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import xxhash

from hotspare.bus.contract import SOURCE_HEADER, Bus, Message, Partition
from hotspare.errors import BusError, UsageError

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
    return str(xxhash.xxh3_64_hexdigest(tail[-CHECK_BYTES_MAX:])) if tail else ""


def newest_position(bus: Bus, partition: Partition, prefix: bytes) -> SourcePosition:
    """What is published of the source; position 0 if nothing is."""
    message = bus.newest_with_header(partition, SOURCE_HEADER, prefix)
    return SourcePosition(0) if message is None else _position_of(message, partition, prefix)


def _position_of(message: Message, partition: Partition, prefix: bytes) -> SourcePosition:
    text = (message.header(SOURCE_HEADER) or b"")[len(prefix) :]
    if not text.isdigit():
        raise BusError(
            f"message {message.offset} of {partition.topic} has a source header that cannot be read",
            detail=repr(text[:80]),
            hint="another program wrote to this topic; publish under another --source name",
        )
    return SourcePosition(int(text), (message.header(CHECK_HEADER) or b"").decode(errors="replace"))
