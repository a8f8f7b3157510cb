"""The committed progress of a group and its newest epoch, stored as records in the group's partition of a compacted topic.

The shards of a project share the topic, and each has the partition of its number. If two transactional ids wrote to one partition,
an open transaction of one id would hide commits of the other.

The record of key `epoch` holds the newest epoch that fenced; a record of key `stream/NAME` holds that stream's progress. Values are
JSON, which any Kafka client can read. All records are written in transactions of the group's transactional id, so their order is
that of the fences.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hotspare.base.errors import BusError
from hotspare.bus import limits
from hotspare.bus.contract import OutputId, Partition, Progress
from hotspare.bus.kafka.read import KafkaReader
from hotspare.bus.naming import own_partition, whole_group

EPOCH_KEY = b"epoch"
_STREAM = b"stream/"
_READ_MESSAGES = 10_000
_READ_BYTES = 16 << 20


def progress_topic(group: str) -> str:
    return f"{whole_group(group)}.progress"


def progress_partition(group: str) -> Partition:
    return Partition(progress_topic(group), own_partition(group))


def stream_key(stream: str) -> bytes:
    return _STREAM + stream.encode()


def encode_epoch(epoch: int) -> bytes:
    return json.dumps({"epoch": epoch}).encode()


def encode_progress(progress: Progress) -> bytes:
    cause = progress.output_id
    place = None if cause is None else [cause.topic, cause.partition, cause.offset, cause.index, cause.ordinal]
    record = {"sequence": progress.sequence, "output_id": place, "digest": f"{progress.digest:016x}", "epoch": progress.epoch}
    return json.dumps(record).encode()


def decode_progress(value: bytes) -> Progress:
    """Returns the progress that `encode_progress` encoded. Raises ValueError, KeyError or TypeError for any other value."""
    record = json.loads(value)
    place = record["output_id"]
    cause = None if place is None else OutputId(*(int(number) for number in place))
    return Progress(int(record["sequence"]), cause, int(record["digest"], 16), int(record["epoch"]))


@dataclass
class GroupRecord:
    """The newest recorded epoch of a group (0 if none is recorded), and its committed progress by stream."""

    epoch: int = 0
    progress: dict[str, Progress] = field(default_factory=dict)


class TopicFollower:
    """Follows a partition of one of hotspare's own topics. Each call of `follow` passes the records since the last call to `take`;
    if the topic was re-created, `restart` is called first. Callers must hold `lock` while they call `follow` or read what `take`
    stored."""

    def __init__(
        self, reader: KafkaReader, partition: Partition, take: Callable[[int, bytes, bytes], None], restart: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._apply_record = take
        self._restart = restart
        self._next_offset = 0
        self.lock = threading.Lock()

    def follow(self) -> None:
        """Calls `take` with offset, key and value of every record that was committed since the last call. The caller must hold
        `lock`."""
        begin, end = self._reader.offsets(self._partition)
        if end < self._next_offset:  # the topic was re-created
            self._next_offset = 0
            self._restart()
        while self._next_offset < end:
            offset = max(begin, self._next_offset)
            found = self._reader.read_keyed(self._partition, offset, _READ_MESSAGES, _READ_BYTES, 0, (begin, end))
            for key, message in found:
                self._apply_record(message.offset, key, message.value)
            self._next_offset = found[-1][1].offset + 1 if found else end


class ProgressReader:
    """Reads the progress and the epoch of one group. Thread-safe."""

    def __init__(self, reader: KafkaReader, group: str) -> None:
        self._record = GroupRecord()
        self._looked_s = -math.inf
        self.took_s = 0.0
        """The duration of the last `read`, in seconds."""
        place = progress_partition(group)
        self._topic = place.topic
        self._follower = TopicFollower(reader, place, self._apply_record, self._restart)

    def read(self) -> GroupRecord:
        """Returns a copy of the group's record as committed by now. Raises TopicMissing, BusUnavailable; BusError for a record that
        hotspare did not write."""
        with self._follower.lock:
            requested_s = time.monotonic()
            self._follower.follow()
            self._looked_s, self.took_s = requested_s, time.monotonic() - requested_s
            return self._copy()

    def recent(self, age_s_max: float) -> GroupRecord:
        """Returns the result of the last `read` if that began at most `age_s_max` seconds ago, else calls `read`."""
        with self._follower.lock:
            if time.monotonic() - self._looked_s <= age_s_max:
                return self._copy()
        return self.read()

    def _copy(self) -> GroupRecord:
        return GroupRecord(self._record.epoch, limits.frozen_progress(self._record.progress))

    def _restart(self) -> None:
        self._record = GroupRecord()

    def _apply_record(self, offset: int, key: bytes, value: bytes) -> None:
        try:
            if key == EPOCH_KEY:
                self._record.epoch = int(json.loads(value)["epoch"])
            elif key.startswith(_STREAM):
                self._record.progress[key.removeprefix(_STREAM).decode()] = decode_progress(value)
        except (ValueError, KeyError, TypeError) as error:
            raise foreign_record(self._topic, offset, key) from error


def foreign_record(topic: str, offset: int, key: bytes) -> BusError:
    return BusError(
        f"topic {topic} holds a record that hotspare did not write",
        detail=f"offset {offset}, key {key[:80]!r}",
        hint="only engines of hotspare may write to this topic: check its permissions",
    )
