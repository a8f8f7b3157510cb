"""Agrees on how a project is divided: the count of shards and the fields that divide it are a fact of each shard's group, compared
at each join.

The shard of a key depends on both, and so does the state of a shard. The group of an undivided project has another name, and no
such fact. So engines of either kind check whether the other kind was first. If both kinds begin at the same moment, the topics
decide, which have one count of partitions. So an engine checks the topics after `refuse_other_shards` and before `agree_on_shards`:
an engine that the topics refuse has agreed on nothing.
"""

from __future__ import annotations

from hotspare.base.errors import UsageError
from hotspare.bus.naming import shard_group, whole_group
from hotspare.coordination.contract import Coordination
from hotspare.ha.rules.settings import GroupTopics

_FACT = "shards"
_PROJECT = "project"
"""The name of a fact that exists in every group that an engine ever joined."""
_HINT = "start all engines with the same --shards; to divide a project otherwise, run it under another --prefix"


def refuse_other_shards(coordination: Coordination, group: str, topics: GroupTopics) -> None:
    """Raises UsageError if the project's engines divide it by another count of shards or by other fields. Changes nothing."""
    whole = whole_group(group)
    if topics.shard.is_whole:
        _compare(whole, topics, coordination.fact(shard_group(whole, 0), _FACT))
    elif coordination.fact(whole, _PROJECT) is not None:
        _compare(whole, topics, b"1")
    else:
        _compare(whole, topics, coordination.fact(group, _FACT))


def agree_on_shards(coordination: Coordination, group: str, topics: GroupTopics) -> None:
    """Makes the first engine's division the project's. Raises UsageError as `refuse_other_shards` does."""
    refuse_other_shards(coordination, group, topics)
    if not topics.shard.is_whole:
        _compare(whole_group(group), topics, coordination.set_fact_once(group, _FACT, _division(topics).encode()))


def recorded_shard_count(coordination: Coordination, group: str) -> int:
    """Returns the count of shards into which the engines of this shard's group divide the project; 1 if none of them ever
    started."""
    stands = (coordination.fact(group, _FACT) or b"").decode("utf-8", "replace").partition("\n")[0]
    return int(stands) if stands.isdigit() else 1


def _compare(whole: str, topics: GroupTopics, stands: bytes | None) -> None:
    own = _division(topics)
    if stands is not None and stands != own.encode():
        count, *others = stands.decode("utf-8", "replace").splitlines()
        if count != str(topics.shard.count):
            raise UsageError(f"--shards {topics.shard.count}: the engines of {whole} run it in {count} shards", hint=_HINT)
        detail = "\n  ".join(each for each in own.splitlines()[1:] if each not in others)
        raise UsageError(f"the engines of {whole} divide it by other fields than this engine", detail=detail, hint=_HINT)


def _division(topics: GroupTopics) -> str:
    """Returns the division as lines of text: the count of shards, then the field by which each topic is divided."""
    count = str(topics.shard.count)
    return "\n".join([count, *(f"{topic.name} by {topic.partition_by}" for topic in topics.inbound if topic.partition_by)])
