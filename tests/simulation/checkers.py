"""Watches a simulated group from outside: outputs on the topics, their epochs and their senders (SPEC E11, laws 6 and 7).

It knows neither roles nor the beliefs of engines; it sees the bus as a subscriber does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotspare.bus.contract import EPOCH_HEADER, Message, Progress
from hotspare.bus.memory import LandedCommit
from hotspare.model.quality import PRECISE, Quality, QualityKind
from hotspare.testing.quality_checks import DeliveredOutput, Reference, quality_violations


class Violation(BaseException):
    """A property that must always hold was violated."""


@dataclass(frozen=True)
class Gap:
    """Outputs `first`..`last` of a stream that were missing when a later one arrived from `client`."""

    stream: str
    first: int
    last: int
    client: str


@dataclass
class Observer:
    """Checks every commit as it lands, and all of them against a reference at the end.

    A precise stream delivers every output once and in order; the promises of other qualities are checked at the end.
    """

    topics: Mapping[str, str]
    """Stream to output topic."""
    rows_of: Callable[[Message], list[tuple[Any, ...]]]
    """Returns the outputs of a message in the form of the reference."""
    qualities: dict[str, list[Quality]] = field(default_factory=dict)
    """Every quality that a stream has had; PRECISE if it has no entry."""
    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    outputs: dict[str, list[DeliveredOutput]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    epoch_owner: dict[int, str] = field(default_factory=dict)
    newest_change_epoch: int = 0
    commits: int = 0

    def all_qualities(self, stream: str) -> list[Quality]:
        return self.qualities.get(stream) or [PRECISE]

    def is_exact(self, stream: str) -> bool:
        return self.all_qualities(stream) == [PRECISE]

    def holds_all(self, stream: str) -> bool:
        """Whether no output of it may ever be lost."""
        return all(quality.holds_all for quality in self.all_qualities(stream))

    def landed(self, landed: LandedCommit) -> None:
        """Checks a commit that took place, whether or not its sender got the result."""
        self.commits += 1
        for stream, topic in self.topics.items():
            messages = landed.appended.get(topic)
            if messages:
                self._take(landed.client, stream, messages)
            if messages or stream in landed.commit.progress:
                self._check_progress(stream, landed.progress.get(stream))
        for published in landed.commit.progress.values():
            self._check_epoch(landed.client, published.epoch)

    def _take(self, client: str, stream: str, messages: Sequence[Message]) -> None:
        rows, outputs, is_exact = self.rows.setdefault(stream, []), self.outputs.setdefault(stream, []), self.is_exact(stream)
        for message in messages:
            epoch = int(message.header(EPOCH_HEADER) or b"0")
            self._check_epoch(client, epoch)
            for row in self.rows_of(message):
                sequence, expected = row[0], self.newest.get(stream, 0) + 1
                if sequence != expected and is_exact:
                    what = "lost" if sequence > expected else "doubled"
                    raise Violation(f"{what}: output {sequence} of stream {stream} follows output {expected - 1}")
                if sequence > expected:
                    self.gaps.append(Gap(stream, expected, sequence - 1, client))
                self.newest[stream] = max(sequence, expected - 1)
                rows.append(row)
                outputs.append(DeliveredOutput(sequence, epoch))

    def _check_progress(self, stream: str, progress: Progress | None) -> None:
        """Checks that progress matches the end of the topic; for a trimmed stream it may lag by less than its number of outputs."""
        rows = self.rows.get(stream, [])
        trimmed = [q.progress_events for q in self.all_qualities(stream) if q.kind is QualityKind.TRIMMED]
        allowed = max(trimmed, default=1) - 1
        if progress is None:
            if rows and not trimmed:  # without a record of a trimmed stream, a new active reads its topic
                raise Violation(f"progress: none, but stream {stream} has {len(rows)} outputs")
            return
        recorded = next((row for row in reversed(rows) if row[0] == progress.sequence), (0,) * 7)
        newest = self.newest.get(stream, 0)
        if recorded[6] != progress.digest or not 0 <= newest - progress.sequence <= allowed:
            raise Violation(f"progress of stream {stream} is {progress.sequence}, its topic ends with {newest}")

    def _check_epoch(self, client: str, epoch: int) -> None:
        if epoch < self.newest_change_epoch:
            raise Violation(f"one voice: {client} published under epoch {epoch} after epoch {self.newest_change_epoch}")
        owner = self.epoch_owner.setdefault(epoch, client)
        if owner != client:
            raise Violation(f"one voice: {owner} and {client} both published under epoch {epoch}")
        self.newest_change_epoch = epoch

    def delivered(self) -> dict[str, int]:
        """Returns the newest sequence per stream: the count of outputs, if none is missing."""
        return {stream: self.newest.get(stream, 0) for stream in self.topics}

    def compare(self, reference: Mapping[str, Sequence[tuple[object, ...]]], short_of_window: frozenset[int] = frozenset()) -> None:
        """Checks that the delivered outputs equal the reference, one by one and in full precision, and that each stream kept its
        quality.

        `short_of_window`: epochs whose engine had not filled its buffers when it first published.
        """
        for stream in self.topics:
            delivered, expected = self.rows.get(stream, []), reference.get(stream, ())
            for row in delivered:
                number = int(str(row[0]))
                if number > len(expected) or self.compared(row) != self.compared(expected[number - 1]):
                    should = expected[number - 1] if number <= len(expected) else "nothing"
                    raise Violation(f"wrong: output {number} of stream {stream} is {row}, should be {should}")
            if not self.is_exact(stream):
                for complaint in self._complaints(stream, len(expected), short_of_window):
                    raise Violation(f"quality: stream {stream}, {', '.join(map(str, self.all_qualities(stream)))}: {complaint}")

    def compared(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """Returns the part of an output that must equal the reference."""
        return row

    def _complaints(self, stream: str, last: int, short_of_window: frozenset[int]) -> Iterator[str]:
        qualities, outputs = self.all_qualities(stream), self.outputs.get(stream, [])
        if len(qualities) == 1:
            (quality,) = qualities
            last = self.newest.get(stream, 0) if quality.holds_all else last  # completeness is checked elsewhere
            yield from quality_violations(quality, outputs, Reference(last, epochs_short_of_window=short_of_window))
            return
        newest, epoch, repeats = 0, 0, max(q.progress_events for q in qualities)
        for output in outputs:
            if output.sequence > newest + 1 and (self.holds_all(stream) or output.epoch == epoch):
                yield f"outputs {newest + 1} to {output.sequence - 1} lost in epoch {output.epoch}"
            if output.sequence <= newest - repeats:
                yield f"output {output.sequence} came after {newest}"
            newest, epoch = max(newest, output.sequence), output.epoch
