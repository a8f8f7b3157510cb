"""The options for bus, coordination and store of snapshots, the same for every command. A path or a URL becomes absolute when it is
parsed; arguments use the same parsers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hotspare.base.places import absolute_path, absolute_path_or_url, absolute_url

PATH: dict[str, Any] = {"parser": absolute_path, "metavar": "PATH"}
URL: dict[str, Any] = {"parser": absolute_url, "metavar": "URL"}
PATH_OR_URL: dict[str, Any] = {"parser": absolute_path_or_url, "metavar": "PATH-OR-URL"}

PREFIX = "hotspare"
"""The prefix of topic names if none is given."""
BusOption = Annotated[str, typer.Option(help="Bus, such as sqlite:///demo.db or kafka://broker:9092.", **URL)]
CoordinationOption = Annotated[
    str, typer.Option(help="Coordination, such as zookeeper://host:2181; by default next to the bus.", **URL)
]
StoreOption = Annotated[
    str, typer.Option(help="Store of snapshots, such as file:///shared/folder; by default next to the bus.", **URL)
]
PrefixOption = Annotated[str, typer.Option(help="First part of topic names; with the project's name, the group.")]
