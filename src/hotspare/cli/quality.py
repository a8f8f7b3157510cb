"""`hotspare quality`: shows the quality of service of a group's streams, or changes one while the group runs (SPEC D1, Z16)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.retry import Retry
from hotspare.cli.shared.places import BusOption, CoordinationOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hotspare.coordination.contract import Coordination, Member
    from hotspare.ha.outputs.qualities import Qualities

_POLL_S = 0.05


def command(
    group: Annotated[
        str, typer.Argument(help="Name the group as `hotspare status` shows it, as PREFIX.PROJECT, or by the project alone.")
    ],
    stream: Annotated[str, typer.Argument(help="Change this output stream, QUERY/WINDOW; by default show all.")] = "",
    quality: Annotated[
        str, typer.Argument(help='Set this quality: precise, simple, "buffered 15 seconds", "trimmed 10 events".')
    ] = "",
    bus: BusOption = "",
    coordination: CoordinationOption = "",
    timeout_s: Annotated[float, typer.Option(help="Wait at most this many seconds until the engines have read the change.")] = 5.0,
) -> None:
    """Show the requested quality of each stream, and each engine that does not act by it yet; with STREAM and QUALITY, change it.
    No engine restarts.

    If the project is in shards, all of them are changed and reported together; PREFIX.PROJECT/SHARD is one of them.
    """
    from hotspare.base.errors import UsageError
    from hotspare.ha.outputs import qualities
    from hotspare.model.quality import parse_quality
    from hotspare.operate.groups import group_coordination, groups_named

    if bool(stream) is not bool(quality):
        raise UsageError(
            "a stream and its new quality must be given together", hint="give both, or neither to show the present ones"
        )
    wanted = parse_quality(quality) if quality else None
    with ExitStack() as stack:
        service = group_coordination(stack, bus, coordination)
        names = groups_named(service, group)
        known = {name: _current_qualities(service, name) for name in names}
        if wanted is not None:
            for each in known.values():
                qualities.checked_stream(each, stream)
            versions = {name: qualities.request_quality_change(service, name, stream, wanted) for name in names}
            told = ", ".join(map(str, dict.fromkeys(versions.values())))
            typer.echo(f"requested {wanted} of stream {stream}, as change {told}{_shards_suffix(names)}")
            _wait(service, versions, timeout_s)
            known = {name: _current_qualities(service, name) for name in names}
        for line in merge_group_lines({name: quality_lines(known[name], _members(service, name)) for name in names}):
            typer.echo(line)


def _current_qualities(service: Coordination, group: str) -> Qualities:
    """Returns the requested qualities of a group. Raises UsageError if no engine of the group ever started."""
    from hotspare.ha.effects.joining import never_started_error
    from hotspare.ha.outputs import qualities

    known = qualities.current_qualities(service, group)
    if known is None:
        raise never_started_error(group)
    return known


def _shards_suffix(groups: Sequence[str]) -> str:
    return f" of each of {len(groups)} shards" if len(groups) > 1 else ""


def merge_group_lines(by_group: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the lines of all groups: only once if they are equal for all groups, else under each group's name."""
    first, *others = by_group.values()
    if all(each == first for each in others):
        return list(first)
    return [line for group, each in by_group.items() for line in (f"group {group}:", *each)]


def quality_lines(known: Qualities, members: Sequence[Member]) -> list[str]:
    """Returns a line with the requested quality of each stream, followed by a line for each engine that does not use it yet."""
    found = []
    for stream, quality in known.by_stream.items():
        found.append(f"{stream}  {quality}")
        for member in members:
            acts_by = json.loads(member.detail.get("qualities", "{}")).get(stream, "unknown")
            if acts_by != str(quality):
                found.append(f"  {member.engine} still uses {acts_by}")
            elif stream in json.loads(member.detail.get("qualities_pending", "[]")):
                found.append(f"  {member.engine} does not hold all uncommitted outputs yet")
    return found


def _members(service: Coordination, group: str) -> list[Member]:
    """Returns the records of the engines with a recent heartbeat."""
    from hotspare.ha.rules.membership import recently_seen
    from hotspare.operate.groups import SILENT_MS_MAX

    return recently_seen(service.members(group), SILENT_MS_MAX)


def _wait(service: Coordination, versions: Mapping[str, int], timeout_s: float) -> None:
    """Waits until all engines of each group have read the change of this version; returns in any case after `timeout_s`."""
    for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
        if all(
            int(m.detail.get("quality_version", "0")) >= version for g, version in versions.items() for m in _members(service, g)
        ):
            return
