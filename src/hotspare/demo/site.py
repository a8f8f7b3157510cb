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
    """The servers of one service, of which one can be stopped for a while."""

    def stop_one(self) -> str:
        """Ends one server with SIGKILL and returns its name."""

    def restart_stopped(self) -> None:
        """Starts the stopped one; returns when it takes part again."""


@dataclass(frozen=True, slots=True)
class Site:
    """The services of a demo, by URLs as for `hotspare run`. `brokers` and `coordinators` are None if the service is a file.

    `network` is None if everything runs on this machine; otherwise `places` has the host of each engine, or of an application's
    driver. `spark_url` is that of the master of a cluster of Spark, "" if there is none.
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
    """Returns the default site without servers: everything is in files of `folder`."""
    bus_url = f"sqlite:///{folder / name}"
    return Site(bus_url, default_coordination_url(bus_url), default_store_url(bus_url))
