"""Rules about the input of one engine: what is read, when a runner counts as hanging, and which partitions would be missed."""

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
    """The rows that wait in a core (`ha.core.Core`)."""

    @property
    def waiting_rows(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def awaited_partition(self) -> tuple[int, int]: ...


class BatchProgress(Protocol):
    """A core between two parts of a batch (`ha.core.Core`)."""

    @property
    def is_between_batches(self) -> bool: ...


def partition_to_read_alone(settings: GroupSettings, known: tuple[int, int] | None, core: WaitingRows) -> tuple[int, int] | None:
    """Returns the only partition to read while too many rows wait for it. None (all are read) once at most half of the limit
    wait."""
    part = 1 if known is None else 2
    is_too_much = part * core.waiting_rows > settings.waiting_rows_max or part * core.waiting_bytes > settings.waiting_bytes_max
    return core.awaited_partition if is_too_much else None


@dataclass(frozen=True, slots=True)
class InputEvidence:
    """The evidence of pending input: how far this engine has read, what it ticked, and the others' descriptions."""

    next_offsets: Mapping[tuple[int, int], int]
    inbound: Sequence[InboundFacts]
    others: Sequence[OtherMember]

    @property
    def is_input_pending(self) -> bool:
        """Whether input is known to be pending, as others have read it or this engine wrote ticks.

        Without such a sign nothing is wrong: without publishers and without ticks of an active engine no batch arrives.
        """
        order = sum(self.next_offsets.values())
        ticked = (each for each in self.inbound if each.ticked_offset >= 0)
        is_ahead = any(other.order > order for other in self.others)
        return is_ahead or any(each.ticked_offset >= self.next_offsets.get((each.topic_index, each.number), 0) for each in ticked)


def stalled_ms(known_ms: int, watched_ms: int, sight: InputEvidence, settings: GroupSettings) -> int:
    """Returns for how long pending input has not been delivered, `watched_ms` after it was `known_ms`.

    Only time in which the engine itself was awake counts, so that one that was stopped for an hour continues when it wakes.
    """
    return known_ms + max(0, min(watched_ms, 2 * settings.member_refresh_ms)) if sight.is_input_pending else 0


def after_part(known: Intake, next_input: NextInput, core: BatchProgress) -> Intake:
    """Returns `known` after the core took a part: input is AT_HAND until the batch is whole, and the stall time is 0."""
    return replace(known, next_input=next_input if core.is_between_batches else NextInput.AT_HAND, stalled_ms=0)


def partition_count_mismatch(found: Mapping[str, int], topics: GroupTopics) -> str:
    """Returns a sentence on topics whose count of partitions is not the one that the group reads: some would never be read. "" if
    none.

    A missing topic is fine.
    """
    return "; ".join(
        f"inbound topic {topic.name} has {found[topic.name]} partitions, the group reads {topic.partitions}"
        for topic in topics.inbound
        if found.get(topic.name, topic.partitions) != topic.partitions
    )
