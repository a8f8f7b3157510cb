"""Shows the quality of service of a group's output streams, and changes one while the group runs (SPEC D1, Z16)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotspare.base.retry import Retry
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.effects.joining import never_started_error
from hotspare.ha.outputs import qualities
from hotspare.model.quality import Quality
from hotspare.operate.groups import recent_members

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class EngineBehind:
    """An engine that does not act fully by the requested quality of a stream. `uses`: the quality that it reports, `unknown` if it
    reports none. If that is the requested one, the engine does not hold all uncommitted outputs yet."""

    engine: str
    uses: str


@dataclass(frozen=True, slots=True)
class StreamQuality:
    """The requested quality of an output stream, QUERY/WINDOW, as `parse_quality` reads it, and the engines that are behind."""

    stream: str
    requested: str
    behind: tuple[EngineBehind, ...]


def stream_qualities(service: Coordination, group: str) -> tuple[StreamQuality, ...]:
    """Returns the quality of each output stream of a group; only engines with a recent record count. Raises UsageError if no engine
    of the group ever started, StateError if the qualities cannot be read."""
    known, members = _current(service, group), recent_members(service, group)
    return tuple(
        StreamQuality(stream, str(quality), _behind(members, stream, str(quality))) for stream, quality in known.by_stream.items()
    )


def _behind(members: Sequence[Member], stream: str, requested: str) -> tuple[EngineBehind, ...]:
    found = []
    for member in members:
        uses = json.loads(member.detail.get("qualities", "{}")).get(stream, "unknown")
        if uses != requested or stream in json.loads(member.detail.get("qualities_pending", "[]")):
            found.append(EngineBehind(member.engine, uses))
    return tuple(found)


def request_quality(service: Coordination, groups: Sequence[str], stream: str, quality: Quality) -> dict[str, int]:
    """Requests the quality of a stream in all `groups`, the shards of a project; returns the number of the change by group. Engines
    follow it without a restart.

    Raises UsageError before any request if a group never started, or the quality of the stream cannot be changed.
    """
    for group in groups:
        qualities.checked_stream(_current(service, group), stream)
    return {group: qualities.request_quality_change(service, group, stream, quality) for group in groups}


def await_quality(service: Coordination, versions: Mapping[str, int], timeout_s: float) -> bool:
    """Waits until all engines with a recent record have read the change of their group in `versions`. Returns False if that takes
    longer than `timeout_s`."""
    return any(
        all(
            int(member.detail.get("quality_version", "0")) >= version
            for group, version in versions.items()
            for member in recent_members(service, group)
        )
        for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries()
    )


def _current(service: Coordination, group: str) -> qualities.Qualities:
    known = qualities.current_qualities(service, group)
    if known is None:
        raise never_started_error(group)
    return known
