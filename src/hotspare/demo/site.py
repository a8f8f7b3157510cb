"""Where a demo takes place: the three services that engines share, and the servers behind them that it may stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hotspare.coordination.open import default_coordination_url
from hotspare.stores.open import default_store_url
from hotspare.testing.hosts import Host, Network


class Stoppable(Protocol):
    """Servers of one service, of which one can be stopped for a while."""

    def stop_one(self) -> str:
        """End one with SIGKILL and say which."""

    def start_again(self) -> None:
        """Start the one that was stopped; returns when it takes part again."""


@dataclass(frozen=True, slots=True)
class Site:
    """URLs as `hotspare run` takes them. `brokers` and `coordinators` are None where the service is a file.

    `network` is None where everything runs on this machine; otherwise `places` says on which of its hosts an engine runs, or the
    driver of an application. `spark_url` is that of the master of a cluster of Spark, "" where there is none.
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
    """The default that needs no server: everything in files of `folder`."""
    bus_url = f"sqlite:///{folder / name}"
    return Site(bus_url, default_coordination_url(bus_url), default_store_url(bus_url))
