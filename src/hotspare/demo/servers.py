"""Sites with real servers that run as long as a demo: Kafka brokers and a ZooKeeper, on this machine or on separate hosts,
optionally with a Spark cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hotspare.demo.site import Site
from hotspare.testing.hosts import Network
from hotspare.testing.kafka_server import TEST_TUNING, BrokerTuning, KafkaServers
from hotspare.testing.spark_cluster import StandaloneCluster
from hotspare.testing.zookeeper_server import ZooKeeperServer

BROKERS = 3


class _OneBroker:
    """The brokers of a demo's site. `stop_one` kills one broker, at each call the next one in turn."""

    def __init__(self, servers: KafkaServers) -> None:
        self._servers = servers
        self._stopped = 0
        self._next = 1

    def stop_one(self) -> str:
        self._stopped, self._next = self._next, self._next % len(self._servers.brokers) + 1
        self._servers.kill(self._stopped)
        return f"broker {self._stopped} of {len(self._servers.brokers)}"

    def restart_stopped(self) -> None:
        self._servers.restart(self._stopped)


class _ZooKeeper:
    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server

    def stop_one(self) -> str:
        self._server.stop()
        return "zookeeper"

    def restart_stopped(self) -> None:
        self._server.restart()


@contextmanager
def kafka_and_zookeeper(folder: Path, brokers: int = BROKERS, tuning: BrokerTuning = TEST_TUNING) -> Iterator[Site]:
    """Starts the servers with their data in `folder` and yields their site. Stops the servers after the block."""
    with (
        KafkaServers.start(folder, brokers, tuning=tuning) as kafka,
        ZooKeeperServer.start(folder / "zookeeper") as zookeeper,
    ):
        stoppable = _OneBroker(kafka) if brokers > 1 else None
        store = (folder / "snapshots").as_uri()
        yield Site(kafka.url, zookeeper.url, store, stoppable, _ZooKeeper(zookeeper))


BUS_HOST, COORDINATION_HOST, MASTER_HOST = "bus", "coord", "master"


@contextmanager
def on_hosts(folder: Path, engines: int) -> Iterator[Site]:
    """Yields a site of a broker, a ZooKeeper and `engines` engines `engine-1` and so on, each on a host of its own in one network.
    All hosts share the store.

    Raises ClusterError if hosts cannot be created (`hosts.why_no_hosts`).
    """
    with _services_on_hosts(folder, [f"engine-{number}" for number in range(1, engines + 1)]) as site:
        yield site


@contextmanager
def spark_on_hosts(folder: Path, applications: Sequence[str], workers: int) -> Iterator[Site]:
    """Yields a site as `on_hosts`, with a host for the driver of each application instead of engines. A standalone Spark cluster
    has a master and `workers` workers of one core, also on hosts of their own.
    """
    with _services_on_hosts(folder, applications) as site:
        network = site.network
        assert network is not None
        places = [network.host(f"worker-{number}") for number in range(1, workers + 1)]
        with StandaloneCluster(folder / "spark", network.host(MASTER_HOST), places) as cluster:
            yield replace(site, spark_url=cluster.url)


@contextmanager
def _services_on_hosts(folder: Path, names: Sequence[str]) -> Iterator[Site]:
    with Network(folder) as network:
        places = {name: network.host(name) for name in names}
        bus, coordination = network.host(BUS_HOST), network.host(COORDINATION_HOST)
        with (
            KafkaServers.start(folder, places=(bus,)) as kafka,
            ZooKeeperServer.start(folder / "zookeeper", coordination) as zookeeper,
        ):
            store = (folder / "snapshots").as_uri()
            yield Site(kafka.url, zookeeper.url, store, None, _ZooKeeper(zookeeper), network, places)
