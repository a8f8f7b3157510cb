"""`hotspare quality`: shows the quality of service of a group's streams, or changes one while the group runs (SPEC D1, Z16)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.cli.shared.places import BusOption, CoordinationOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hotspare.operate.quality import StreamQuality


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
    from hotspare.model.quality import parse_quality
    from hotspare.operate.groups import group_coordination, groups_named
    from hotspare.operate.quality import await_quality, request_quality, stream_qualities

    if bool(stream) is not bool(quality):
        raise UsageError(
            "a stream and its new quality must be given together", hint="give both, or neither to show the present ones"
        )
    wanted = parse_quality(quality) if quality else None
    with ExitStack() as stack:
        service = group_coordination(stack, bus, coordination)
        names = groups_named(service, group)
        if wanted is not None:
            versions = request_quality(service, names, stream, wanted)
            changes = ", ".join(map(str, dict.fromkeys(versions.values())))
            typer.echo(f"requested {wanted} of stream {stream}, as change {changes}{_shards_suffix(names)}")
            await_quality(service, versions, timeout_s)
        found = {name: stream_qualities(service, name) for name in names}
    for line in _merged_lines({name: _quality_lines(each) for name, each in found.items()}):
        typer.echo(line)


def _shards_suffix(groups: Sequence[str]) -> str:
    return f" of each of {len(groups)} shards" if len(groups) > 1 else ""


def _merged_lines(by_group: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the lines of all groups: only once if they are equal for all groups, else under each group's name."""
    first, *others = by_group.values()
    if all(each == first for each in others):
        return list(first)
    return [line for group, each in by_group.items() for line in (f"group {group}:", *each)]


def _quality_lines(found: Sequence[StreamQuality]) -> list[str]:
    """Returns a line with the requested quality of each stream, followed by a line for each engine that is behind."""
    lines = []
    for each in found:
        lines.append(f"{each.stream}  {each.requested}")
        for behind in each.behind:
            is_pending = behind.uses == each.requested
            what = "does not hold all uncommitted outputs yet" if is_pending else f"still uses {behind.uses}"
            lines.append(f"  {behind.engine} {what}")
    return lines
