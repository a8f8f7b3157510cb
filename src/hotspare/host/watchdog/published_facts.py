"""The memory in which an engine publishes its metrics and the facts of its health for its parent, which answers HTTP requests.

The parent never waits for the engine, and the engine never for the parent. The engine writes alternately to two areas, and then the
number of the newest one. The parent reads that area; its checksum, not the order in which a processor shows writes, decides whether
it is whole. So the parent sees the newest text that was whole, however the engine ends.

    header    3 numbers: the start of the engine that may write, the count of its publications, the size of an area
    2 areas   4 numbers: start, publication, length and checksum of the content; the content: a JSON document, a zero byte, a text

All numbers are unsigned 64-bit integers in native order.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotspare.host.watchdog.shared_memory import FACTS_VARIABLE

CONTENT_BYTES_MAX = 1 << 20
_HEADER = struct.Struct("=QQQ")
_AREA_HEADER = struct.Struct("=QQQQ")
_AREAS_BEGIN = mmap.PAGESIZE
_READS_MAX = 4
"""The maximum of tries to read: an area that is being read is overwritten only if two publications happen meanwhile."""


@dataclass(frozen=True, slots=True)
class PublishedFacts:
    """A publication: `facts` is a JSON object, `text` the metrics of the engine in Prometheus' format."""

    facts: Mapping[str, Any]
    text: bytes


class FactsMemory:
    """The parent's side: creates the memory, and reads what the engine published. `read` may be called from any thread."""

    def __init__(self, content_bytes_max: int = CONTENT_BYTES_MAX) -> None:
        self._area = _AREA_HEADER.size + content_bytes_max
        self.descriptor = os.memfd_create("hotspare-facts")
        """Shared with child processes. The system provides only the pages that are written."""
        os.set_inheritable(self.descriptor, True)  # noqa: FBT003 - takes it by place only
        os.ftruncate(self.descriptor, _AREAS_BEGIN + 2 * self._area)
        self.begin_start(0)

    def begin_start(self, start: int) -> None:
        """Forgets what was published. From now on `read` returns only publications of the engine with this number of start. Call
        it before that engine runs, and after the one before has ended."""
        os.pwrite(self.descriptor, _HEADER.pack(start, 0, self._area), 0)

    def read(self) -> PublishedFacts | None:
        """Returns the newest publication that is whole; None without any."""
        for _ in range(_READS_MAX):
            start, publication, _ = _HEADER.unpack(os.pread(self.descriptor, _HEADER.size, 0))
            if not publication:
                return None
            content = self._content(start, publication)
            if content is not None:
                document, _, text = content.partition(b"\0")
                return PublishedFacts(json.loads(document), text)
        return None

    def _content(self, start: int, publication: int) -> bytes | None:
        """Returns the content of a publication; None if its area has another one, or is being written."""
        begin = _AREAS_BEGIN + publication % 2 * self._area
        *written, length, checksum = _AREA_HEADER.unpack(os.pread(self.descriptor, _AREA_HEADER.size, begin))
        if written != [start, publication] or length > self._area:
            return None
        content = os.pread(self.descriptor, length, begin + _AREA_HEADER.size)
        return content if zlib.crc32(content) == checksum else None


class FactsPublisher:
    """The engine's side. Not thread-safe."""

    def __init__(self, descriptor: int, start: int) -> None:
        """`descriptor`: that of the memory, which the publisher closes. `start`: the number of this engine's start."""
        self._start = start
        self._publication = 0
        self._area = int(_HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))[2])
        self._memory = mmap.mmap(descriptor, _AREAS_BEGIN + 2 * self._area)
        os.close(descriptor)

    @property
    def content_bytes_max(self) -> int:
        """The maximum size of a publication: of its JSON document, one byte, and its text."""
        return self._area - _AREA_HEADER.size

    def text_bytes_max(self, facts: Mapping[str, Any]) -> int:
        """Returns the maximum size of a text that is published with `facts`; negative if the facts alone are too long."""
        return self.content_bytes_max - len(json.dumps(facts).encode()) - 1

    def publish(self, facts: Mapping[str, Any], text: bytes) -> None:
        """Publishes `facts`, a JSON object, and `text`. Raises ValueError, and leaves the publication before, if they are too
        long."""
        content = json.dumps(facts).encode() + b"\0" + text
        if len(content) > self.content_bytes_max:
            raise ValueError(f"the published facts have {len(content)} bytes, at most {self.content_bytes_max} are possible")
        number = self._publication + 1
        begin = _AREAS_BEGIN + number % 2 * self._area
        _AREA_HEADER.pack_into(self._memory, begin, self._start, number, len(content), zlib.crc32(content))
        begin += _AREA_HEADER.size
        self._memory[begin : begin + len(content)] = content
        self._publication = number
        _HEADER.pack_into(self._memory, 0, self._start, number, self._area)


def publisher_of_parent() -> FactsPublisher | None:
    """Returns the publisher for the parent of this process; None if no parent answers requests. Call it at most once."""
    descriptor, _, start = os.environ.pop(FACTS_VARIABLE, "").partition(":")
    return FactsPublisher(int(descriptor), int(start)) if descriptor else None
