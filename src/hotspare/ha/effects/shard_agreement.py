"""All engines divide a project into as many shards: how many is a fact of each shard's group, compared when an engine joins.

Where a key belongs depends on it, and so what a shard remembers. A project that is not divided has a group of another name, and no
such fact: engines of before there were shards know none. So each kind looks whether the other one was here first. Of two that begin
at the same moment the topics decide, which have one number of partitions.
"""

from __future__ import annotations

from hotspare.bus.naming import shard_group, whole_group
from hotspare.coordination.contract import Coordination
from hotspare.errors import UsageError
from hotspare.shard import Shard

_FACT = "shards"
_PROJECT = "project"
"""Every group that an engine joined has this fact."""
_HINT = "start all engines with the same --shards; to divide a project otherwise, run it under another --prefix"


def agree_on_shards(coordination: Coordination, group: str, shard: Shard) -> None:
    """UsageError where the project's engines divide it otherwise."""
    whole = whole_group(group)
    if shard.is_whole:
        stands = coordination.fact(shard_group(whole, 0), _FACT)
    elif coordination.fact(whole, _PROJECT) is not None:
        stands = b"1"
    else:
        stands = coordination.set_fact_once(group, _FACT, str(shard.count).encode())
    if stands is not None and stands != str(shard.count).encode():
        found = stands.decode("utf-8", "replace")
        raise UsageError(f"the engines of {whole} run it in {found} shards, this one in {shard.count}", hint=_HINT)
