"""The output stream that a subscribing command reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hotspare.cli.shared.turns import LineFormat


@dataclass(frozen=True, slots=True)
class Stream:
    """The outputs of `window`, or the bad events of the project `bad` if that is not "". `project`: the project file, if given."""

    prefix: str
    window: str
    bad: str = ""
    project: Path | None = None
    properties: tuple[str, ...] = ()
    format: LineFormat = LineFormat.csv
    partition: int | None = None
    """The partition to read; None: the outputs of all shards."""
