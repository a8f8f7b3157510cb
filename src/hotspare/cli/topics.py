"""`hotspare topics`: what stands on a bus (SPEC B17)."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hotspare.bus.contract import Bus

_READ_BYTES_MAX = 1 << 20


def command(
    *,
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db")],
    prefix: Annotated[str, typer.Option(help="Only topics whose name begins with this.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")] = False,
) -> None:
    """List the topics of a bus: partitions, offsets, and when the newest message came."""
    from hotspare.bus.open import open_bus
    from hotspare.cli.display import print_table

    opened = open_bus(bus)
    try:
        rows = [
            row
            for topic, partitions in opened.topics().items()
            if topic.startswith(prefix)
            for row in _rows(opened, topic, partitions)
        ]
    finally:
        opened.close()
    if as_json:
        typer.echo(json.dumps({"topics": rows}, indent=2, sort_keys=True))
        return
    columns = ("topic", "kind", "partition", "begin_offset", "end_offset", "newest_time")
    print_table("Topics", columns, [tuple("" if row[name] is None else row[name] for name in columns) for row in rows])


def _rows(bus: Bus, topic: str, partitions: int) -> list[dict[str, Any]]:
    from hotspare.bus.contract import Partition

    found = []
    for number in range(partitions):
        partition = Partition(topic, number)
        begin, end = bus.begin_offset(partition), bus.end_offset(partition)
        newest = bus.read(partition, end - 1, messages_max=1, bytes_max=_READ_BYTES_MAX) if end > begin else ()
        newest_us = newest[-1].append_time_us if newest else None
        found.append(
            {
                "topic": topic,
                "kind": _kind(topic),
                "partition": number,
                "begin_offset": begin,
                "end_offset": end,
                "newest_time_us": newest_us,
                "newest_time": None if newest_us is None else time_text(newest_us),
            }
        )
    return found


def _kind(topic: str) -> str:
    return {"I": "input", "O": "output", "B": "bad events"}.get(topic.rpartition(".")[2], "other")


def time_text(time_us: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_us)
    return moment.isoformat(timespec="milliseconds")
