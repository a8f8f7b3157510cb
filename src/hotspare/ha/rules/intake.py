"""Decides about the input of one engine: which partitions are read, when a runner counts as hanging, and which partitions would
never be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hotspare.ha.rules.facts import InboundFacts, Intake, OtherMember
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.rows.batch import NextInput

PARTITION_COUNT_HINT = (
    "partitions cannot be removed: start the engine with as many --shards as the topic has partitions; or start it under another "
    "--prefix, where it creates its topics, and publish there; if other applications write this topic, import it by `hotspare "
    "publish --topic` or a kafka connector that names it"
)


class WaitingRows(Protocol):
    """The waiting rows of a core (`ha.core.Core`)."""

    @property
    def waiting_rows(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def awaited_partition(self) -> tuple[int, int]: ...


class BatchProgress(Protocol):
    """The part of a core (`ha.core.Core`) that shows whether a batch is complete."""

    @property
    def is_between_batches(self) -> bool: ...


def partition_to_read_alone(settings: GroupSettings, known: tuple[int, int] | None, core: WaitingRows) -> tuple[int, int] | None:
    """Returns the only partition to read, once more rows or bytes wait for it than the settings permit; None (all are read) again
    once at most half of that waits. `known`: the previous result."""
    part = 1 if known is None else 2
    is_too_much = part * core.waiting_rows > settings.waiting_rows_max or part * core.waiting_bytes > settings.waiting_bytes_max
    return core.awaited_partition if is_too_much else None


@dataclass(frozen=True, slots=True)
class InputEvidence:
    """The evidence of pending input: the next offsets of this engine, the ticks that it appended, and the positions of other
    engines."""

    next_offsets: Mapping[tuple[int, int], int]
    inbound: Sequence[InboundFacts]
    others: Sequence[OtherMember]

    @property
    def is_input_pending(self) -> bool:
        """Whether input is known to be pending: another engine has read more, or a tick of this engine was not delivered.

        Without such evidence the runner is not at fault: without publishers and without ticks of an active engine no batch arrives.
        """
        order = sum(self.next_offsets.values())
        ticked = (each for each in self.inbound if each.ticked_offset >= 0)
        is_ahead = any(other.order > order for other in self.others)
        return is_ahead or any(each.ticked_offset >= self.next_offsets.get((each.topic_index, each.number), 0) for each in ticked)


def stalled_ms(known_ms: int, watched_ms: int, sight: InputEvidence, settings: GroupSettings) -> int:
    """Returns the milliseconds for which pending input was not delivered: `known_ms` before, and `watched_ms` more; 0 without
    pending input.

    Of `watched_ms` at most two intervals of member refresh count, because the engine itself may have been stopped for longer.
    """
    return known_ms + max(0, min(watched_ms, 2 * settings.member_refresh_ms)) if sight.is_input_pending else 0


def after_part(known: Intake, next_input: NextInput, core: BatchProgress) -> Intake:
    """Returns `known` after the core computed a part: until the batch is complete input is AT_HAND, and the stall time is 0."""
    now = next_input if core.is_between_batches else NextInput.AT_HAND
    return known if (known.next_input, known.stalled_ms) == (now, 0) else replace(known, next_input=now, stalled_ms=0)


def partition_count_mismatch(found: Mapping[str, int], topics: GroupTopics) -> str:
    """Returns a sentence on the topics whose partition count is not the one that the group reads, as events would never be read; ""
    if all agree.

    `found`: the partition counts by topic. A missing topic agrees.
    """
    return "; ".join(
        f"inbound topic {topic.name} has {found[topic.name]} partitions, the group reads {topic.partitions}"
        for topic in topics.inbound
        if found.get(topic.name, topic.partitions) != topic.partitions
    )
