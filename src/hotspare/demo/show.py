"""The view of a running demo: sentences, and on a terminal a live table of the engines below them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hotspare.base.errors import HotspareError
from hotspare.base.processes import has_process_ended
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.open import open_coordination
from hotspare.demo.applications import APPLICATIONS, ApplicationsDemo
from hotspare.demo.scenario import Demo
from hotspare.demo.site import Site
from hotspare.testing.applications import application_of

_REFRESH_S = 0.25


TableSource = Callable[[Coordination], Table]
"""A function that returns the current table, from the state in coordination."""


class Show:
    """A context manager that shows one demo at a site. `print_step` prints a sentence with the seconds since the start."""

    def __init__(self, site: Site) -> None:
        self._console = Console(stderr=True)
        self._started = time.monotonic()
        self._coordination = open_coordination(site.coordination_url)
        self._picture: TableSource | None = None
        self._stopped = threading.Event()
        self._live = Live(console=self._console, refresh_per_second=1 / _REFRESH_S, transient=True)
        self._thread = threading.Thread(target=self._run, name="demo-show", daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
            self._live.stop()
        self._coordination.close()

    def print_step(self, sentence: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {sentence}", highlight=False, soft_wrap=True)

    def show_table(self, picture: TableSource) -> None:
        """Shows the table that `picture` returns, refreshed until the next call."""
        self._picture = picture

    def _run(self) -> None:
        while not self._stopped.wait(_REFRESH_S):
            if self._picture is not None:
                self._live.update(self._picture(self._coordination))


def engines_table(demo: Demo) -> TableSource:
    """Returns a source of the table of the engines in the demo's group."""

    def picture(service: Coordination) -> Table:
        table = Table(title=f"group {demo.group}: {demo.sampler.written} of {demo.sampler.events} readings", title_justify="left")
        for column in ("engine", "role", "process", "outputs computed"):
            table.add_column(column)
        try:
            leader = service.leader(demo.group)
            for member in service.members(demo.group):
                engine = demo.cluster.engines.get(member.engine)
                runs = engine is not None and engine.is_running and engine.process.pid == member.process_id
                role = member.role if runs else "gone"
                style = "green" if role == "active" else "red" if role == "gone" else ""
                mark = " ●" if member.engine == leader.holder else ""
                table.add_row(member.engine + mark, role, str(member.process_id), str(sum(member.sequences.values())), style=style)
        except HotspareError:
            table.caption = "coordination does not answer"
        return table

    return picture


def shards_table(demo: ApplicationsDemo) -> TableSource:
    """Returns a source of the table of each application's shards, with the roles of their engines."""

    def picture(service: Coordination) -> Table:
        table = Table(title=f"{demo.sampler.written} of {demo.sampler.events} readings", title_justify="left")
        for column in ("shard", *APPLICATIONS):
            table.add_column(column)
        try:
            for shard, group in enumerate(demo.groups):
                holder = service.leader(group).holder
                table.add_row(str(shard), *(_roles_text(service.members(group), name, holder) for name in APPLICATIONS))
        except HotspareError:
            table.caption = "coordination does not answer"
        return table

    return picture


def _roles_text(members: Sequence[Member], application: str, holder: str) -> str:
    """Returns the roles of an application's engines, as their records report them."""
    said = []
    for member in members:
        if application_of(member) == application:
            is_gone = has_process_ended(member.process_id, member.process_start)
            role = "[red]gone[/red]" if is_gone else f"[green]{member.role}[/green]" if member.engine == holder else member.role
            said.append(f"{role} in executor {member.detail.get('executor', '?')}")
    return ", ".join(said)
