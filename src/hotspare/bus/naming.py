"""Names of topics and groups (SPEC B1, B2).

    <prefix>.<project>.<query>.<window>.I   input of a source window
    <prefix>.<project>.<query>.<window>.R   records of the publishers to that input, on a bus that stores records in topics
    <prefix>.<project>.<query>.<window>.O   outputs of a published window
    <prefix>.<project>.B                    bad events of the project
    <prefix>.<project>.T                    ticks of the engines of a project that reads streams of other projects
    <prefix>.M                              schemas of all projects under the prefix

The group of a shard is named `<prefix>.<project>/<k>`; it publishes to partition k of its topics. All shards share the topics.
"""

from __future__ import annotations

import re

from hotspare.base.errors import UsageError
from hotspare.base.shard import WHOLE, Shard

_NAME = re.compile(r"[A-Za-z0-9_\-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]*")
TOPIC_NAME_LENGTH_MAX = 249
_SHARD = "/"
"""Separates the number of a shard in a group's name. No prefix, project name or Kafka topic name contains this character."""


def _checked(topic: str) -> str:
    if len(topic) > TOPIC_NAME_LENGTH_MAX:
        raise UsageError(
            f"topic name {topic} has {len(topic)} characters; the limit is {TOPIC_NAME_LENGTH_MAX}",
            hint="use a shorter --prefix",
        )
    return topic


def checked_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"prefix {prefix!r} cannot be part of a topic name", hint="use letters, digits, '_', '-' and '.'")
    return prefix


def checked_name(name: str) -> str:
    """Returns `name`, that of a project, query or window. Raises UsageError if it cannot be part of a topic name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"name {name!r} cannot be part of a topic name", hint="use letters, digits, '_' and '-'")
    return name


def inbound_topic(prefix: str, project: str, query: str, window: str) -> str:
    return _checked(f"{prefix}.{project}.{query}.{window}.I")


def outbound_topic(prefix: str, project: str, query: str, window: str) -> str:
    return _checked(f"{prefix}.{project}.{query}.{window}.O")


def bad_topic(prefix: str, project: str) -> str:
    return _checked(f"{prefix}.{project}.B")


def ticks_topic(prefix: str, project: str) -> str:
    """Returns the topic to which the engines of a project that reads streams of other projects append ticks."""
    return _checked(f"{prefix}.{project}.T")


def metadata_topic(prefix: str) -> str:
    """Returns the topic with the schemas of all projects under a prefix, which clients read (SPEC B4)."""
    return _checked(f"{prefix}.M")


def records_topic(topic: str) -> str:
    """Returns the name of the topic that stores the records of the publishers to `topic`."""
    return _checked(f"{topic.removesuffix('.I')}.R")


def group_name(prefix: str, project: str, shard: Shard = WHOLE) -> str:
    """Returns the name of the group that runs `shard` of `project` under `prefix`. The shard WHOLE is an undivided project."""
    whole = f"{prefix}.{project}"
    return whole if shard.is_whole else shard_group(whole, shard.number)


def shard_group(whole: str, number: int) -> str:
    """Returns the group name of shard `number`. `whole`: the group name of the undivided project."""
    return f"{whole}{_SHARD}{number}"


def whole_group(group: str) -> str:
    """Returns a group's name without the number of its shard, if it has one."""
    whole, mark, number = group.rpartition(_SHARD)
    return whole if mark and number.isdecimal() else group


def own_partition(group: str) -> int:
    """Returns the partition number to which a group publishes in all its output topics: the number of its shard, 0 for an undivided
    project."""
    return 0 if whole_group(group) == group else int(group.rpartition(_SHARD)[2])


def snapshot_readers(group: str) -> tuple[str, str]:
    """Returns the reader names (`Bus.record_reader`) of a group's newest confirmed snapshot, and of the snapshot before."""
    return f"group {group}: newest snapshot", f"group {group}: snapshot before the newest"
