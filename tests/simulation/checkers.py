"""Watches a simulated group from outside: what came onto the output topics, under which epoch, from whom (SPEC E11, laws 6 and 7).

It knows nothing of roles or of what engines believe; it sees the bus as a subscriber does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from hotspare.bus.contract import Commit, Message, Progress


class Violation(Exception):
    """Something that must never happen, has."""


@dataclass
class Observer:
    """Checks every commit as it lands, and all of them against a reference at the end."""

    topics: Mapping[str, str]
    """Stream to output topic."""
    decode: object
    rows: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    epoch_owner: dict[int, str] = field(default_factory=dict)
    newest_epoch: int = 0
    commits: int = 0

    def landed(
        self, engine: str, commit: Commit, appended: Mapping[str, Sequence[Message]], progress: Mapping[str, Progress]
    ) -> None:
        """A commit of `engine` took place, whether or not it was told so. `progress` is what the bus says afterwards."""
        self.commits += 1
        for stream, topic in self.topics.items():
            if appended.get(topic):
                self._take(stream, appended[topic])
                self._check_progress(stream, progress.get(stream))
        for published in commit.progress.values():
            self._check_epoch(engine, published.epoch)

    def _take(self, stream: str, messages: Sequence[Message]) -> None:
        rows = self.rows.setdefault(stream, [])
        for message in messages:
            batch: pa.RecordBatch = self.decode(message.value)  # type: ignore[operator]
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                expected = len(rows) + 1
                if row[0] != expected:
                    what = "lost" if row[0] > expected else "doubled"
                    raise Violation(f"{what}: output {row[0]} of stream {stream} follows output {expected - 1}")
                rows.append(row)

    def _check_progress(self, stream: str, progress: Progress | None) -> None:
        rows = self.rows[stream]
        if progress is None:
            if rows:
                raise Violation(f"progress: none, but stream {stream} has {len(rows)} outputs")
            return
        last = rows[-1] if rows else (0,) * 7
        if (progress.sequence, progress.digest) != (last[0], last[6]):
            raise Violation(f"progress of stream {stream} is {progress.sequence}, its topic ends with {last[0]}")

    def _check_epoch(self, engine: str, epoch: int) -> None:
        if epoch < self.newest_epoch:
            raise Violation(f"one voice: {engine} published under epoch {epoch} after epoch {self.newest_epoch}")
        owner = self.epoch_owner.setdefault(epoch, engine)
        if owner != engine:
            raise Violation(f"one voice: {owner} and {engine} both published under epoch {epoch}")
        self.newest_epoch = epoch

    def delivered(self) -> dict[str, int]:
        return {stream: len(self.rows.get(stream, ())) for stream in self.topics}

    def compare(self, reference: Mapping[str, Sequence[tuple[object, ...]]]) -> None:
        """What was delivered is the beginning of the reference, in its order, in full precision."""
        for stream in self.topics:
            delivered, expected = self.rows.get(stream, []), reference.get(stream, ())
            for number, row in enumerate(delivered):
                if number >= len(expected) or row != expected[number]:
                    should = expected[number] if number < len(expected) else "nothing"
                    raise Violation(f"wrong: output {number + 1} of stream {stream} is {row}, should be {should}")
