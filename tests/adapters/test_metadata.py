"""Project metadata on the bus: clients get schemas while no engine runs (SPEC B4)."""

from __future__ import annotations

import pytest

from hotspare.adapters.metadata import describe, publish_metadata, read_metadata
from hotspare.base.errors import BusError, UnknownResult
from hotspare.bus.contract import HeaderGuard, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.bus.naming import metadata_topic
from hotspare.projects.load import load_text

PROJECT = """
project: shop
queries:
  sales:
    windows:
      orders: {type: source, opcodes: any, schema: "id*:int64,at:stamp,sum:money"}
      kept: {type: copy, publish: true}
    edges: [orders -> kept]
"""


def resolved(text: str = PROJECT):  # type: ignore[no-untyped-def]
    return load_text(text).resolved


def written(bus: MemoryBusClient) -> int:
    return bus.end_offset(Partition(metadata_topic("p")))


def test_what_is_written_is_read() -> None:
    bus = MemoryBus().client("c")
    assert read_metadata(bus, "p", "shop") is None
    metadata = describe(resolved(), "p")
    assert publish_metadata(bus, "p", metadata)
    assert read_metadata(bus, "p", "shop") == metadata
    orders = metadata.windows["sales/orders"]
    assert (str(orders.schema), orders.inbound, orders.inbound_format, orders.outbound) == (
        "id*:int64,at:stamp,sum:money",
        "p.shop.sales.orders.I",
        "csv",
        "",
    )
    assert metadata.windows["sales/kept"].outbound_format == "arrow"
    assert read_metadata(bus, "p", "sho") is None


def test_the_same_is_written_once_and_a_change_again() -> None:
    bus = MemoryBus().client("c")
    metadata = describe(resolved(), "p")
    assert [publish_metadata(bus, "p", metadata) for _ in range(3)] == [True, False, False]
    other = describe(resolved(PROJECT.replace("project: shop", "project: shoppe")), "p")
    assert publish_metadata(bus, "p", other)
    assert not publish_metadata(bus, "p", metadata)
    changed = describe(resolved(PROJECT.replace("sum:money", "sum:double")), "p")
    assert publish_metadata(bus, "p", changed)
    assert read_metadata(bus, "p", "shop") == changed
    assert written(bus) == 3


def test_a_document_outlives_the_retention_of_its_topic() -> None:
    """SPEC B4: an engine writes it at its start, and then runs for longer than the bus keeps messages."""
    bus = MemoryBus().client("c")
    metadata = describe(resolved(), "p")
    publish_metadata(bus, "p", metadata)
    topic = Partition(metadata_topic("p"))
    bus.trim(topic, bus.end_offset(topic))
    assert read_metadata(bus, "p", "shop") == metadata
    assert not publish_metadata(bus, "p", metadata)


class _Raced(MemoryBusClient):
    """Another engine writes the same document between the check and the append."""

    def append_guarded(
        self, partition: Partition, messages: list[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:  # type: ignore[override]
        super().append_guarded(partition, messages, guard, record)
        return super().append_guarded(partition, messages, guard, record)


def test_two_engines_that_start_together_write_one_document() -> None:
    bus = MemoryBus().client("c")
    bus.__class__ = _Raced
    assert not publish_metadata(bus, "p", describe(resolved(), "p"))
    assert written(bus) == 1


class _Silent(MemoryBusClient):
    """The answer to the first append is lost; `takes_place`: whether the append takes effect."""

    takes_place = True
    answers = 0

    def append_guarded(
        self, partition: Partition, messages: list[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:  # type: ignore[override]
        self.answers += 1
        if self.answers > 1:
            return super().append_guarded(partition, messages, guard, record)
        if self.takes_place:
            super().append_guarded(partition, messages, guard, record)
        raise UnknownResult("no answer came")


@pytest.mark.parametrize("takes_place", [True, False])
def test_an_engine_starts_although_the_answer_to_its_document_is_lost(takes_place: bool) -> None:
    bus = MemoryBus().client("c")
    bus.__class__ = _Silent
    bus.takes_place = takes_place  # type: ignore[attr-defined]
    assert publish_metadata(bus, "p", describe(resolved(), "p")) is not takes_place
    assert written(bus) == 1


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version":1,"windows":[{"window":"w","schema":"x:what"}]}']
)
def test_a_document_that_cannot_be_read_is_an_error(value: bytes) -> None:
    bus = MemoryBus().client("c")
    bus.create_topic(metadata_topic("p"))
    bus.append(Partition(metadata_topic("p")), [Outgoing(value, (("hotspare-project", b"shop@"),))])
    with pytest.raises(BusError, match="cannot be read as the metadata"):
        read_metadata(bus, "p", "shop")


def test_of_a_divided_project_it_is_told_in_which_partition_rows_belong() -> None:
    bus = MemoryBus().client("c")
    text = PROJECT.replace("publish: true", "index: empty, publish: true")
    publish_metadata(bus, "p", describe(resolved(text), "p", shards=3))
    found = read_metadata(bus, "p", "shop")
    assert found is not None
    assert {name: window.partition_by for name, window in found.windows.items()} == {"sales/orders": "id", "sales/kept": ""}
    publish_metadata(bus, "p", describe(resolved(text), "p"))
    whole = read_metadata(bus, "p", "shop")
    assert whole is not None
    assert {window.partition_by for window in whole.windows.values()} == {""}
