"""Topic names (SPEC B1, B2): `<prefix>.<project>.<query>.<window>.I` and `.O`, one `.B` per project, one `<prefix>.M`.

Where a project reads streams of others there is `<prefix>.<project>.T`. Beside a topic `.I` stands `.R` where a bus has
no other place for the records of its publishers.

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
"""Before the number of a shard; it stands in no prefix, no project's name and no topic of Kafka."""


def _checked(topic: str) -> str:
    if len(topic) > TOPIC_NAME_LENGTH_MAX:
        raise UsageError(
            f"topic name {topic} has {len(topic)} characters, {TOPIC_NAME_LENGTH_MAX} are allowed",
            hint="use a shorter --prefix",
        )
    return topic


def checked_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"prefix {prefix!r} cannot be part of a topic name", hint="use letters, digits, '_', '-' and '.'")
    return prefix


def checked_name(name: str) -> str:
    """A project, query or window name that can be part of a topic name; UsageError otherwise."""
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
    """Of a project that reads streams of other projects: where its own engines show that they are alive."""
    return _checked(f"{prefix}.{project}.T")


def metadata_topic(prefix: str) -> str:
    """Where clients learn the schemas of the projects under a prefix (SPEC B4)."""
    return _checked(f"{prefix}.M")


def records_topic(topic: str) -> str:
    """Where the records of those who publish to `topic` are kept."""
    return _checked(f"{topic.removesuffix('.I')}.R")


def group_name(prefix: str, project: str, shard: Shard = WHOLE) -> str:
    """The group of engines that run this shard of `project` under `prefix`; of a project that is not divided, all of it."""
    whole = f"{prefix}.{project}"
    return whole if shard.is_whole else shard_group(whole, shard.number)


def shard_group(whole: str, number: int) -> str:
    """The group of a shard, of a project whose groups are those of `whole`."""
    return f"{whole}{_SHARD}{number}"


def whole_group(group: str) -> str:
    """What the groups of one project's shards have in common; of a group that is no shard's, its own name."""
    whole, mark, number = group.rpartition(_SHARD)
    return whole if mark and number.isdecimal() else group


def own_partition(group: str) -> int:
    """The partition of its output topics to which a group publishes: that of its shard, else 0."""
    return 0 if whole_group(group) == group else int(group.rpartition(_SHARD)[2])


def snapshot_readers(group: str) -> tuple[str, str]:
    """Who stands for a group's newest confirmed snapshot among the readers of a bus (`Bus.note_reader`), and for the one before."""
    return f"group {group}: newest snapshot", f"group {group}: snapshot before the newest"
