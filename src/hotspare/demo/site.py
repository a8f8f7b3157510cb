"""The site of a demo: the three services that engines share, and the servers behind them that the demo may stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hotspare.coordination.open import default_coordination_url
from hotspare.stores.open import default_store_url
from hotspare.testing.hosts import Host, Network


class Stoppable(Protocol):
    """The servers of one service. One of them at a time can be stopped and started again."""

    def stop_one(self) -> str:
        """Kills one server by SIGKILL and returns its name."""

    def restart_stopped(self) -> None:
        """Starts the stopped server. Returns when the server takes part in the service again."""


@dataclass(frozen=True, slots=True)
class Site:
    """The services of a demo, as URLs for the options of `hotspare run`. `brokers` and `coordinators`: the servers that can be
    stopped, None if the service is a file.

    `network`: None if everything runs on this machine. Otherwise `places` has the host of each engine, or of each application's
    driver. `spark_url`: the master of a Spark cluster, "" without one.
    """

    bus_url: str
    coordination_url: str
    store_url: str
    brokers: Stoppable | None = None
    coordinators: Stoppable | None = None
    network: Network | None = None
    places: Mapping[str, Host] = field(default_factory=dict)
    spark_url: str = ""


def embedded(folder: Path, name: str = "demo.db") -> Site:
    """Returns the default site, which needs no servers: all services are files in `folder`."""
    bus_url = f"sqlite:///{folder / name}"
    return Site(bus_url, default_coordination_url(bus_url), default_store_url(bus_url))
