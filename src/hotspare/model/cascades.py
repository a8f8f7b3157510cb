"""Cascaded projects: a source window that reads the output stream of another project (SPEC K10).

The upstream project declares that its stream has beats, so that a reader knows how far time has advanced when nothing is emitted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hotspare.base.errors import Place
from hotspare.model.failover_rules import effective_quality
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import NAME
from hotspare.model.project import Beats, ConnectorDirection, Window, WindowId
from hotspare.model.quality import QualityKind

BEATS = {beats.value: beats for beats in Beats}


@dataclass(frozen=True, slots=True)
class StreamRef:
    """The output stream of a window of another project."""

    project: str
    query: str
    window: str

    @classmethod
    def parse(cls, text: str) -> StreamRef | None:
        """Returns the stream `project/query/window`; None for any other text."""
        names = text.strip().split("/")
        return cls(*names) if len(names) == 3 and all(map(NAME.fullmatch, names)) else None

    def __str__(self) -> str:
        return f"{self.project}/{self.query}/{self.window}"


def check_reads(window: Window, text: str, place: Place, found: Mistakes) -> None:
    """Adds a mistake if `text`, the stream that a source window reads, is not `project/query/window`. Adds one for each connector
    that publishes to this window.
    """
    if StreamRef.parse(text) is None:
        hint = "write project/query/window, a window of another project that is published"
        found.add(place, f"window {window.name} reads {text[:80]!r}, which names no window", hint)
    for connector in window.connectors:
        if connector.direction is ConnectorDirection.PUBLISH:
            message = f"connector {connector.name} publishes to window {window.name}, which reads {text[:80]}"
            found.add(connector.place, message, "publish to another source window, and let both flow into a union")


def check_not_own_stream(project: str, window_id: WindowId, window: Window, reads: str, found: Mistakes) -> None:
    """Adds a mistake if a window reads a stream of its own project. `reads`: the stream as the project writes it, "" for none."""
    stream = StreamRef.parse(reads)
    if stream is not None and stream.project == project:
        found.add(window.place, f"window {window_id} reads {stream}, of its own project", "draw an edge from that window")


def check_beats(window_id: WindowId, window: Window, streams: Collection[WindowId], found: Mistakes) -> None:
    if window.beats is Beats.EXCLUDED:
        return
    if window_id not in streams:
        message = f"window {window_id} has beats, but its outputs are not published"
        found.add(window.place, message, "publish the window, or leave its beats out")
    quality = effective_quality(window)
    if quality.kind is not QualityKind.PRECISE:
        message = f"window {window_id} has beats, but its quality is {quality}"
        found.add(window.place, message, "readers of beats need each output exactly once: write the quality precise")
