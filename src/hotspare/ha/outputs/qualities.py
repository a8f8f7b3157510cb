"""Agrees, within a group, on the quality of service of each output stream, and on every change while the group runs (SPEC D1, Z16).

A group's qualities are facts in coordination: number 0 holds those of its first engine's project, every later number one change. An
engine that has not read the newest change uses an older quality. Until all engines have read it, the weaker of the two qualities
holds; neither determines which engine may publish. So a change needs no restart, and no engine has to wait for another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hotspare.base.errors import RESET_HINT, HotspareError, StateError, UsageError
from hotspare.coordination.contract import Coordination
from hotspare.ha.rules.settings import GroupTopics
from hotspare.model.quality import PRECISE, Quality, parse_quality
from hotspare.rows.batch import BAD_STREAM

CHANGES_MAX = 10_000
_FACT = "quality-"
_FIXED = "streams with beats"


@dataclass(frozen=True, slots=True)
class Qualities:
    """The quality of every output stream as far as this engine has read. `version` is the number of the newest change read.

    `changed`: the streams whose quality was ever changed while the group ran. An engine whose state began under a weaker quality
    may lack outputs that are not committed. The new quality is guaranteed once every engine holds all outputs after
    the committed ones. `unreadable`: sentences on invalid changes. `fixed`: the streams with beats, whose quality never changes.
    """

    by_stream: Mapping[str, Quality]
    version: int = 0
    changed: frozenset[str] = field(default_factory=frozenset)
    unreadable: tuple[str, ...] = ()
    fixed: frozenset[str] = field(default_factory=frozenset)

    def stream_quality(self, stream: str) -> Quality:
        return self.by_stream.get(stream, PRECISE)


def declared_qualities(topics: GroupTopics) -> Qualities:
    """Returns the qualities that a project declares for its output streams, as version 0."""
    fixed = frozenset(output.stream for output in topics.outbound if output.has_beats)
    return Qualities({output.stream: output.quality for output in topics.outbound}, fixed=fixed)


def current_qualities(coordination: Coordination, group: str) -> Qualities | None:
    """Returns the present qualities in the group's facts; None if no engine of the group ever started. Raises StateError if they
    are unreadable."""
    stands = coordination.fact(group, f"{_FACT}0")
    if stands is None:
        return None
    fixed = frozenset(filter(None, (coordination.fact(group, _FIXED) or b"").decode("utf-8", "replace").split("\n")))
    return with_later_changes(coordination, group, Qualities(_parsed(group, stands), fixed=fixed))


def agree_on_qualities(coordination: Coordination, group: str, topics: GroupTopics) -> Qualities:
    """Returns the group's qualities with all changes so far; records those of this engine's project as version 0 if it is the
    first. Raises StateError if they are unreadable."""
    own = declared_qualities(topics)
    if own.fixed:
        coordination.set_fact_once(group, _FIXED, "\n".join(sorted(own.fixed)).encode())
    document = {stream: str(quality) for stream, quality in own.by_stream.items()}
    stands = coordination.set_fact_once(group, f"{_FACT}0", json.dumps(document, separators=(",", ":")).encode())
    stored = {stream: quality for stream, quality in _parsed(group, stands).items() if stream in own.by_stream}
    return with_later_changes(coordination, group, replace(own, by_stream={**own.by_stream, **stored}))


def _parsed(group: str, value: bytes) -> dict[str, Quality]:
    try:
        return {str(stream): parse_quality(text) for stream, text in json.loads(value).items()}
    except (ValueError, TypeError, AttributeError, HotspareError) as error:
        what = f"the qualities of group {group} cannot be read"
        raise StateError(what, detail=str(error), hint=RESET_HINT) from error


def with_later_changes(coordination: Coordination, group: str, known: Qualities) -> Qualities:
    """Returns `known` with all later changes of the group. An invalid change has no effect except a sentence in
    `Qualities.unreadable`."""
    known = replace(known, unreadable=())
    while known.version < CHANGES_MAX and (value := coordination.fact(group, f"{_FACT}{known.version + 1}")) is not None:
        known = _changed(known, value)
    return known


def _changed(known: Qualities, value: bytes) -> Qualities:
    version = known.version + 1
    try:
        stream, text = json.loads(value)
        by_stream = {**known.by_stream, checked_stream(known, stream): parse_quality(text)}
    except (ValueError, TypeError, AttributeError, HotspareError) as error:
        sentence = f"change {version} of a quality is invalid and has no effect: {error}"
        return replace(known, version=version, unreadable=(*known.unreadable, sentence))
    return replace(known, by_stream=by_stream, version=version, changed=known.changed | {stream})


def checked_stream(known: Qualities, stream: str) -> str:
    """Returns `stream`; raises UsageError if its quality cannot be changed: unknown streams, bad events, and streams with beats."""
    if stream == BAD_STREAM:
        raise UsageError("bad events are always precise")
    if stream not in known.by_stream:
        raise UsageError(f"output stream {stream} does not exist", hint="streams are: " + ", ".join(known.by_stream))
    if stream in known.fixed:
        raise UsageError(f"stream {stream} has beats: other projects read it, and need each output once", hint="leave it precise")
    return stream


def request_quality_change(coordination: Coordination, group: str, stream: str, quality: Quality) -> int:
    """Adds a change of the quality of `stream` to the group's facts; returns its version. Raises UsageError after CHANGES_MAX
    changes."""
    wanted = json.dumps([stream, str(quality)], separators=(",", ":")).encode()
    version = 1
    while version <= CHANGES_MAX:
        if coordination.fact(group, f"{_FACT}{version}") is None and _is_first(coordination, group, version, wanted):
            return version
        version += 1
    raise UsageError(
        f"qualities of group {group} were changed {CHANGES_MAX} times, which is the limit",
        hint="run the project under a new --prefix",
    )


def _is_first(coordination: Coordination, group: str, version: int, wanted: bytes) -> bool:
    """Whether the change `wanted` is stored as number `version` after trying to store it. An equal change of another command counts
    as this one."""
    return coordination.set_fact_once(group, f"{_FACT}{version}", wanted) == wanted
