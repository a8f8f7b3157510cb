"""Sends an output stream to an external topic, each output once, whichever process dies (SPEC I3, E9).

The outputs, and the position in the stream up to which they go, are written in one transaction in the external cluster. A writer
that opens fences its predecessor, and gets the recorded position, so no other source is needed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from hotspare.adapters.changelog_reading import (
    decode_group,
    ends_in_update,
    first_sequence,
    group_for_decoding,
    last_sequence,
    sequence_breaks,
)
from hotspare.adapters.failover.bus_retries import BusRetries, StopRequested
from hotspare.adapters.failover.subscriber_position import PartitionPosition
from hotspare.adapters.files.subscriber import SubscribeProgress, SubscribeReport, Until
from hotspare.adapters.topics.position import slice_by_bytes
from hotspare.adapters.topics.send_form import SentPosition, StreamForm
from hotspare.base.errors import Fenced, TopicMissing, UnknownResult, UsageError
from hotspare.base.retry import Retry
from hotspare.bus.contract import Bus, Message
from hotspare.bus.limits import partitions_of
from hotspare.bus.topic_reader import BusTopicReader, ReceivedMessage
from hotspare.bus.topic_writer import RoutedMessage, TopicWriter

_READ_MESSAGES_MAX = 2_000
_READ_WAIT_MS = 100
_COMMIT_BYTES_MAX = 4 << 20
_TOPIC_MISSING = Retry(pause_s=0.1)


@dataclass(frozen=True)
class SendOptions:
    """Options of sending a stream to an external topic. `source_name`: the key of the position. `partition`: the partition of the
    external topic to write; None: the one of each row's key."""

    source_name: str
    form: StreamForm
    partition: int | None = None
    until: Until = Until.STOPPED


def send_topic(
    bus: Bus,
    topic: str,
    writer: TopicWriter,
    options: SendOptions,
    stop: threading.Event,
    report: SubscribeReport | None = None,
    partition: int | None = None,
) -> SubscribeProgress:
    """Sends the outputs of all partitions of the output topic, or of one, until `stop`, or up to their present ends.

    Waits for an output topic that does not exist yet. Raises PositionLost if the output topic no longer holds the next message;
    MessageTooLarge if the external topic rejects an output; UsageError if it lacks `options.partition`; BusError if a bus stays
    unreachable.
    """
    sending = _Sending(bus, topic, partition, writer, options, stop, report or SubscribeReport())
    with contextlib.suppress(StopRequested):
        sending.run()
    return sending.progress


class _Overtaken(Exception):
    """Raised if a write is not known to have taken effect: another writer of the source was opened, or the external topic did not
    answer. The caller opens the writer again, which returns the recorded position."""


class _Sending:
    """A call of `send_topic`: its arguments, and the position up to which the stream is sent."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        partition: int | None,
        writer: TopicWriter,
        options: SendOptions,
        stop: threading.Event,
        report: SubscribeReport,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._only = partition
        self._writer = writer
        self._options = options
        self._stop = stop
        self._report = report
        self._retried = BusRetries(stop, report.on_trouble)
        self._reader = BusTopicReader(bus, topic)
        self._position = SentPosition(topic)
        self._count = 1
        self._opening = list[RoutedMessage]()
        self.progress = SubscribeProgress()

    def run(self) -> None:
        numbers = self._partitions()
        ends = {number: self._retried(lambda n=number: self._reader.bounds(n)[1]) for number in numbers}  # type: ignore[misc]
        while not self._stop.is_set():
            try:
                self._begin(numbers)
                self._follow(ends if self._options.until is Until.END else None)
            except _Overtaken:
                continue
            else:
                return

    def _partitions(self) -> list[int]:
        """Returns the output topic's partitions that are sent, once the topic exists. With Until.END raises TopicMissing if it does
        not exist."""

        def wait(pause_s: float) -> None:
            if self._stop.wait(pause_s):
                raise StopRequested

        for _ in _TOPIC_MISSING.tries(wait):
            try:
                found = self._retried(lambda: partitions_of(self._bus.topics(), self._topic))
            except TopicMissing:
                if self._options.until is Until.END:
                    raise
                continue
            if found:
                return [each.number for each in found if self._only in (None, each.number)]
        raise StopRequested

    def _begin(self, numbers: Sequence[int]) -> None:
        """Acquires the right to write, and continues at the recorded position; a new stream begins with the oldest output."""
        self._count = self._retried(self._writer.partitions)
        if self._options.partition is not None and self._options.partition >= self._count:
            what = f"topic {self._writer.topic} has no partition {self._options.partition}"
            raise UsageError(what, hint=f"it has {self._count}, the first is 0")
        record = self._retried(self._writer.open)
        name = self._options.source_name
        known = SentPosition(self._topic) if record is None else SentPosition.from_record(record, self._topic, name)
        for number in numbers:
            if number not in known.places:
                begin, _ = self._retried(lambda n=number: self._reader.bounds(n))  # type: ignore[misc]
                known = known.with_partition_place(number, PartitionPosition(begin))
        self._position = known
        self._opening = self._options.form.opening_messages(self._count, self._options.partition) if record is None else []
        offsets = {number: known.places[number].offset for number in numbers}
        self._retried(lambda: self._reader.seek(offsets))

    def _follow(self, ends: dict[int, int] | None) -> None:
        while not self._stop.is_set() and not self._is_at(ends):
            arrived = self._retried(lambda: self._reader.read(_READ_MESSAGES_MAX, 0 if ends else _READ_WAIT_MS))
            for cut in slice_by_bytes([len(each.message.value) for each in arrived], _COMMIT_BYTES_MAX):
                self._send(arrived[cut])
            if not arrived and ends:
                return

    def _is_at(self, ends: dict[int, int] | None) -> bool:
        return ends is not None and all(self._position.places[number].offset >= end for number, end in ends.items())

    def _send(self, arrived: Sequence[ReceivedMessage]) -> None:
        """Writes the outputs of these messages, with the position after them."""
        position, placed, count = self._position, [*self._opening], 0
        for number, given in _together(arrived):
            place = replace(position.places[number], offset=given[-1].offset + 1)
            rows = decode_group(self._topic, self._options.form.decode, given)
            if len(rows):
                self._check_sequence(number, place.sequence, first_sequence(rows))
                self._report_breaks(rows, place.sequence, number)
                chosen = self._options.form.choice.select_rows(rows, update_open=int(place.update_open))
                placed += self._options.form.route_rows(chosen, self._count, self._options.partition, given[0])
                count += len(chosen)
                place = replace(place, sequence=last_sequence(rows), update_open=ends_in_update(rows))
            position = position.with_partition_place(number, place)
        try:
            self._retried(lambda: self._writer.write(placed, position.to_record()))
        except (Fenced, UnknownResult) as error:
            self._retried.pause(error)  # the external topic has the position
            raise _Overtaken from None
        self._retried.clear_trouble()
        self._position, self._opening = position, []
        self._show(count)

    def _check_sequence(self, number: int, before: int, first: int) -> None:
        if not before and first != 1:
            self.progress.first_sequence = first
            self._report.on_incomplete(first)

    def _report_breaks(self, rows: object, before: int, number: int) -> None:
        for place in sequence_breaks(rows, before, number):
            self.progress.breaks += 1
            self._report.on_sequence_break(place)

    def _show(self, count: int) -> None:
        progress, places = self.progress, [place for _, place in sorted(self._position.places.items())]
        progress.rows += count
        progress.sequences = tuple(place.sequence for place in places)
        progress.sequence = sum(progress.sequences)
        progress.offset = sum(place.offset for place in places)
        self._report.on_progress(progress)


def _together(arrived: Sequence[ReceivedMessage]) -> Iterator[tuple[int, Sequence[Message]]]:
    """Yields groups of messages that one call decodes, each with its partition."""
    for number, group in groupby(arrived, key=lambda each: each.partition):
        yield from ((number, given) for given in group_for_decoding([each.message for each in group]))
