"""A group with snapshots in a store, of a project whose windows keep rows in several ways."""

from __future__ import annotations

from pathlib import Path

from hotspare.bus.open import open_bus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.ha.effects.joining import agreed_project
from hotspare.host.definition import project_identity
from hotspare.projects.load import load_text
from hotspare.stores.contract import Store
from hotspare.stores.open import default_store_url, open_store
from tests.cases.case import Case, parse_case, raw_batches

GROUP = "hotspare.shop"
PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: 'id*:int64,item:string,price:double'}
      items: {type: source, opcodes: any, schema: 'item*:string,weight:int64'}
      recent: {type: copy, retention: {bycount_sliding: 3}}
      weighed:
        type: join
        kind: leftouter
        conditions: {item: item}
        outputs: {price: l_price, weight: r_weight}
      spent: {type: aggregate, schema: 'item*:string,total:double', outputs: {total: ESP_aSum(price)}}
    edges: [orders -> recent, recent -> spent, orders -> weighed as left, items -> weighed as right]
"""
SCRIPT = """
at 1 s items: I,N,pen,5
at 2 s orders: I,N,1,pen,1.5 | I,N,2,"ink, blue",2.25
at 3 s orders: I,N,3,,0.1
at 3 s tick
at 4 s orders: U,N,1,pen,2.5 | I,N,4,pen,4
at 5 s orders: D,N,2,"ink, blue",2.25
at 6 s tick
"""
FIRST, SECOND = 4, 7
"""Numbers of messages after which the two snapshots are taken."""


def case() -> Case:
    return parse_case(f"{PROJECT}---\n{SCRIPT}", "shop")


def put_snapshots(store: Store, group: str = GROUP) -> list[str]:
    """Writes two confirmed snapshots, and a candidate equal to the second; returns their names."""
    known = case()
    pipeline, names = Pipeline.fresh(known.plan), []
    batches = [Head.from_plan(known.plan).decode(raw) for raw in raw_batches(known)]
    for order, (begin, end) in enumerate(((0, FIRST), (FIRST, SECOND), (SECOND, SECOND)), 1):
        for batch in batches[begin:end]:
            pipeline.feed(batch)
        frozen, name = pipeline.freeze(), f"{order:04d}-e"
        store.write_candidate(group, name, "e", order, frozen.header, frozen.contents())
        names.append(name)
        if order < 3:
            store.confirm(group, name)
    return names


def kept_bus(folder: Path) -> str:
    """Returns the URL of a bus in `folder`, next to which the group has its snapshots and facts."""
    url = f"sqlite:///{folder / 'demo.db'}"
    open_bus(url).close()
    coordination = open_coordination(default_coordination_url(url))
    agreed_project(coordination, GROUP, project_identity(load_text(PROJECT).project, case().plan))
    coordination.close()
    put_snapshots(open_store(default_store_url(url)))
    return url
