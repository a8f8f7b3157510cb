"""The site of a measurement, by its name on the command line, and the load during it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from benchmarks._latency import start_feeder

from hotspare.demo.servers import BROKERS, kafka_and_zookeeper
from hotspare.demo.site import Site, embedded
from hotspare.testing.kafka_server import TEST_TUNING, BrokerTuning


def opened(kind: str, folder: Path, brokers: int = BROKERS, tuning: BrokerTuning = TEST_TUNING) -> AbstractContextManager[Site]:
    """Opens a site. `kafka`: real brokers and a ZooKeeper, which end with it; any other name: the embedded bus in `folder`."""
    return kafka_and_zookeeper(folder, brokers, tuning) if kind == "kafka" else nullcontext(embedded(folder))


@contextmanager
def fed(url: str, rate: int, seconds: float, topic: str) -> Iterator[None]:
    """Runs another process that appends `rate` events a second, for at most `seconds`; none if `rate` is 0."""
    if not rate:
        yield
        return
    feeder = start_feeder(url, rate, seconds, topic)
    try:
        yield
    finally:
        feeder.kill()
        feeder.wait()
