"""Topic names (SPEC B1, B2): `<prefix>.<project>.<query>.<window>.I` and `.O`, one `.B` per project, one `<prefix>.M`.

Beside a topic `.I` stands `.R` where a bus has no other place for the records of its publishers.
"""

from __future__ import annotations

import re

from hotspare.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_\-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]*")
TOPIC_NAME_LENGTH_MAX = 249


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


def metadata_topic(prefix: str) -> str:
    """Where clients learn the schemas of the projects under a prefix (SPEC B4)."""
    return _checked(f"{prefix}.M")


def records_topic(topic: str) -> str:
    """Where the records of those who publish to `topic` are kept."""
    return _checked(f"{topic.removesuffix('.I')}.R")


def group_name(prefix: str, project: str) -> str:
    """The group of engines that run `project` under `prefix`."""
    return f"{prefix}.{project}"


def snapshot_readers(group: str) -> tuple[str, str]:
    """Who stands for a group's newest confirmed snapshot among the readers of a bus (`Bus.note_reader`), and for the one before."""
    return f"group {group}: newest snapshot", f"group {group}: snapshot before the newest"
