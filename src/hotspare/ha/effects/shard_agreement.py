"""All engines divide a project alike: into how many shards, and by which fields, is a fact of each shard's group, compared when an
engine joins.

Where a key belongs depends on it, and so what a shard remembers. A project that is not divided has a group of another name, and no
such fact: engines of before there were shards know none. So each kind looks whether the other one was here first. Of two that begin
at the same moment the topics decide, which have one number of partitions.
"""

from __future__ import annotations

from hotspare.bus.naming import shard_group, whole_group
from hotspare.coordination.contract import Coordination
from hotspare.errors import UsageError
from hotspare.ha.rules.settings import GroupTopics

_FACT = "shards"
_PROJECT = "project"
"""Every group that an engine joined has this fact."""
_HINT = "start all engines with the same --shards; to divide a project otherwise, run it under another --prefix"


def agree_on_shards(coordination: Coordination, group: str, topics: GroupTopics) -> None:
    """UsageError where the project's engines divide it otherwise."""
    whole, own = whole_group(group), _division(topics)
    if topics.shard.is_whole:
        stands = coordination.fact(shard_group(whole, 0), _FACT)
    elif coordination.fact(whole, _PROJECT) is not None:
        stands = b"1"
    else:
        stands = coordination.set_fact_once(group, _FACT, own.encode())
    if stands is not None and stands != own.encode():
        count, *others = stands.decode("utf-8", "replace").splitlines()
        if count != str(topics.shard.count):
            raise UsageError(f"the engines of {whole} run it in {count} shards, this one in {topics.shard.count}", hint=_HINT)
        detail = "\n  ".join(each for each in own.splitlines()[1:] if each not in others)
        raise UsageError(f"the engines of {whole} divide it by other fields than this one", detail=detail, hint=_HINT)


def _division(topics: GroupTopics) -> str:
    """How many shards, and of each topic by which field."""
    count = str(topics.shard.count)
    return "\n".join([count, *(f"{topic.name} by {topic.partition_by}" for topic in topics.inbound if topic.partition_by)])
