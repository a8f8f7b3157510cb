"""What a person sees of the demo while it runs: sentences, and on a terminal a live table of the engines below them."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from hotspare.coordination.open import open_coordination
from hotspare.demo.scenario import Demo, DemoOptions
from hotspare.errors import HotspareError

_REFRESH_S = 0.25


class Show:
    """A context manager around one demo. `say` prints a sentence with the seconds since the start."""

    def __init__(self, options: DemoOptions) -> None:
        self._console = Console(stderr=True)
        self._started = time.monotonic()
        self._coordination = open_coordination(options.site.coordination_url)
        self._demo: Demo | None = None
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

    def say(self, sentence: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {sentence}", highlight=False, soft_wrap=True)

    def follow(self, demo: Demo) -> None:
        """Show this demo's engines from now on."""
        self._demo = demo

    def _run(self) -> None:
        while not self._stopped.wait(_REFRESH_S):
            if self._demo is not None:
                self._live.update(self._table(self._demo))

    def _table(self, demo: Demo) -> Table:
        table = Table(title=f"group {demo.group}: {demo.sampler.written} of {demo.sampler.events} readings", title_justify="left")
        for column in ("engine", "role", "process", "outputs computed"):
            table.add_column(column)
        try:
            leader = self._coordination.leader(demo.group)
            for member in self._coordination.members(demo.group):
                engine = demo.cluster.engines.get(member.engine)
                runs = engine is not None and engine.is_running and engine.process.pid == member.process_id
                role = member.role if runs else "gone"
                style = "green" if role == "active" else "red" if role == "gone" else ""
                mark = " ●" if member.engine == leader.holder else ""
                table.add_row(member.engine + mark, role, str(member.process_id), str(sum(member.sequences.values())), style=style)
        except HotspareError:
            table.caption = "coordination does not answer"
        return table
