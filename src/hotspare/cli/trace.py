"""`hotspare trace`: shows the outputs of any windows of a running group, without a change to the group (SPEC A40)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import Since
from hotspare.cli.shared.places import BusOption, CoordinationOption, StoreOption

if TYPE_CHECKING:
    import pyarrow as pa


def command(
    group: Annotated[str, typer.Argument(help="Name the group as `hotspare status` shows it; PREFIX.PROJECT/SHARD names a shard.")],
    windows: Annotated[list[str], typer.Argument(metavar="WINDOW...", help="Show these windows, QUERY/WINDOW, published or not.")],
    *,
    bus: BusOption,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    since: Annotated[Since, typer.Option(help="Show events from now on, or all since the newest snapshot.")] = Since.NOW,
    to_end: Annotated[bool, typer.Option("--to-end", help="Stop at the present end of the inbound topics.")] = False,
) -> None:
    """Show the events of windows as they are emitted: window, opcode, flags and fields. Ctrl-C ends it.

    This process computes the same outputs as the group's engines, from the newest snapshot and the inbound topics, and needs the
    memory of an engine. The engines are not affected.
    """
    from hotspare.adapters.files.subscriber import Until
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.operate.groups import existing_bus, existing_coordination, existing_snapshots, single_group_named
    from hotspare.operate.watching import WatchedGroup, Watcher

    with ExitStack() as stack:
        opened = existing_bus(stack, bus)
        service = existing_coordination(stack, coordination, bus)
        place = WatchedGroup(
            single_group_named(service, group), bus, opened, service, existing_snapshots(stack, store, bus, service)
        )
        watcher = Watcher(place, windows, since, _print_trace_warning)
        state = f"snapshot {watcher.restored_from}" if watcher.restored_from else "the beginning"
        typer.echo(f"watches {', '.join(windows)}, with a state from {state}", err=True)
        with stop_on_signal() as stop:
            watcher.run(_show, Until.END if to_end else Until.STOPPED, stop)


def _show(window: str, events: pa.RecordBatch) -> None:
    from hotspare.formats.csv.rows import CsvStyle, row_texts

    for row in row_texts(events, CsvStyle.EXACT):
        typer.echo(f"{window}: {row}")


def _print_trace_warning(sentence: str) -> None:
    typer.echo(f"warning: {sentence}", err=True)
