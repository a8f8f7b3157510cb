"""A bus that an engine of a small project has used."""

from __future__ import annotations

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.bus.open import open_bus
from hotspare.projects.load import load_text

_PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: 'id*:int64'}
      all: {type: copy}
    edges: [orders -> all]
"""


def open_shop(url: str) -> None:
    """Prepares the bus as an engine that has started."""
    bus = open_bus(url)
    bus.create_topic("hotspare.shop.q.orders.I")
    publish_metadata(bus, "hotspare", describe(load_text(_PROJECT).resolved, "hotspare"))
    bus.close()
