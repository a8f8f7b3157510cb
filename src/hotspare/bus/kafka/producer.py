"""Publishing for one engine: fencing by Kafka's own producer fencing, ordered by epochs that stand in the group's topic.

The broker lets only the last writer that was opened commit, whoever opened it. An engine that won an old epoch and slept may open
it last; so the first commit after a fence holds its epoch, and whoever finds a newer one there gives way. The newer engine, whose
writer was taken by that, fences again (contract: the same epoch may). A commit of its own for the epoch would say so earlier, and
cost a failover a tenth of a second; an engine asks coordination again before it publishes, which tells it the same. For a newer
epoch that published while this one fenced, or since the spare last read along, it is looked once, with the progress that is read
then, or before the first commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from hotspare.base.errors import BusError, Fenced, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import Commit, Progress
from hotspare.bus.kafka.client import KafkaSettings
from hotspare.bus.kafka.progress import (
    EPOCH_KEY,
    GroupRecord,
    ProgressReader,
    encode_epoch,
    encode_progress,
    progress_partition,
    stream_key,
)
from hotspare.bus.kafka.writer import Deliveries, Record, Writer, Writers, keyed_record, patience_s, records_of


class KafkaProducer:
    """A `Producer` (contract)."""

    def __init__(
        self, group: str, topics: tuple[str, ...], writers: Writers, record: ProgressReader, settings: KafkaSettings
    ) -> None:
        self._group, self._settings = group, settings
        self._place = progress_partition(group)
        self._topics = topics
        self._writers = writers
        self._record = record
        self._writer: Writer | None = None
        self._epoch = 0
        self._fenced_before = 0
        """The newest epoch under which this engine ever asked for the right to publish."""
        self._is_checked = False
        """Whether no newer epoch stood in the topic when this one had fenced."""
        self._unsaid: list[Record] = []
        """Under which epoch this engine publishes, until it stands in the topic."""

    def fence(self, epoch: int) -> None:
        limits.check_epoch(epoch)
        self._give_up()
        self._look_first(epoch)
        self._writer, self._epoch, self._is_checked = self._writers.open(patience_s(self._record.took_s)), epoch, False
        self._unsaid = [keyed_record(self._place, EPOCH_KEY, encode_epoch(epoch))]

    def progress(self) -> Mapping[str, Progress]:
        if self._writer is not None and not self._is_checked:
            return self._check().progress
        return self._record.read().progress

    def publish(self, epoch: int, commit: Commit) -> None:
        limits.check_epoch(epoch)
        limits.check_commit(self._group, self._topics, commit, self._settings.message_bytes_max)
        writer = self._writer
        if writer is None or epoch != self._epoch:
            raise limits.fenced(self._group, epoch, self._epoch)
        if not self._is_checked:
            self._check()
        number = self._place.number
        if not any(commit.messages.values()) and not commit.progress:
            return
        outputs = (records_of(topic, number, messages) for topic, messages in commit.messages.items())
        progress = (
            keyed_record(self._place, stream_key(stream), encode_progress(each)) for stream, each in commit.progress.items()
        )
        try:
            writer.commit(chain(*outputs, progress, self._unsaid), Deliveries.SAMPLED)
        except Fenced as error:
            self._give_up()
            raise self._fenced(epoch, error) from error
        except UnknownResult:
            self._give_up()
            raise
        if self._unsaid:
            self._unsaid = []
            self._writers.warm_up()

    def close(self) -> None:
        self._give_up()

    def _give_up(self) -> None:
        self._writer, self._epoch = None, 0

    def _look_first(self, epoch: int) -> None:
        """Before it takes the right from an engine that has it rightly. What a spare read a moment ago is new enough for an epoch
        that it has just won; whoever fences again has a reason to look."""
        record = self._record.recent(self._settings.recent_s) if epoch > self._fenced_before else self._record.read()
        self._fenced_before = max(epoch, self._fenced_before)
        _refuse_older(self._group, epoch, record)

    def _check(self) -> GroupRecord:
        """What is committed; Fenced where a newer epoch published while this one fenced."""
        try:
            record = self._record.read()
            _refuse_older(self._group, self._epoch, record)
        except Fenced:
            self._give_up()
            raise
        self._is_checked = True
        return record

    def _fenced(self, epoch: int, error: Fenced) -> Fenced:
        """Under which epoch the other one publishes, where it says so already."""
        try:
            newest = self._record.read().epoch
        except BusError:
            return error
        return limits.fenced(self._group, epoch, newest) if newest > epoch else error


def _refuse_older(group: str, epoch: int, record: GroupRecord) -> None:
    if record.epoch > epoch:
        raise limits.fenced(group, epoch, record.epoch)
