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
"""The default prefix of topic names."""
BusOption = Annotated[str, typer.Option(help="Use this bus, such as sqlite:///demo.db or kafka://broker:9092.", **URL)]
CoordinationOption = Annotated[
    str, typer.Option(help="Use this coordination, such as zookeeper://host:2181; by default the one next to the bus.", **URL)
]
StoreOption = Annotated[
    str, typer.Option(help="Use this store of snapshots, such as file:///shared/folder; by default the one next to the bus.", **URL)
]
PrefixOption = Annotated[str, typer.Option(help="Begin topic names with this; with the project's name it names the group.")]
