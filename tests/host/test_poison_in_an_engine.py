"""A whole engine, without Spark, whose input has an event on which a window fails: it continues after that event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotspare.base.choices import RunnerKind
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import bad_topic, inbound_topic, outbound_topic
from hotspare.bus.sqlite import SqliteBus
from hotspare.flow.plan import BAD_SCHEMA, compile_plan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host import process
from hotspare.host.options import EngineOptions
from hotspare.projects.load import load_text
from hotspare.testing.cluster import wait_until
from hotspare.testing.recorder import output_table
from hotspare.windows.copy.operator import CopyOperator

PROJECT = """
project: p
queries:
  cq:
    windows:
      loose: {type: source, opcodes: any, schema: "id*:int64,v:int64"}
      kept: {type: copy, publish: true}
    edges: [loose -> kept]
"""
POISON, LAST = 13, 99
WAIT_S = 60.0


def values(bus: SqliteBus, topic: str, column: str) -> list[Any]:
    if topic not in bus.topics():
        return []
    messages = bus.read(Partition(topic), 0, messages_max=1_000, bytes_max=1 << 24)
    schema = BAD_SCHEMA if topic.endswith(".B") else compile_plan(load_text(PROJECT).resolved).stream_schemas["cq/kept"]
    found: list[Any] = output_table(messages, schema).column(column).to_pylist()
    return found


def test_an_engine_goes_on_behind_an_event_on_which_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window has changed its state when it fails; the engine continues as if the event had been refused."""
    project, path = tmp_path / "p.yaml", tmp_path / "b.db"
    project.write_text(PROJECT)
    bus = SqliteBus(path)
    given, kept = inbound_topic("hotspare", "p", "cq", "loose"), outbound_topic("hotspare", "p", "cq", "kept")
    bus.create_topic(given)
    for number, value in enumerate([1, POISON, 2, LAST]):
        bus.append(Partition(given), [Outgoing(f"i,n,{number},{value}".encode())])
    apply, stops, is_over = CopyOperator.process_chunks, list[Callable[[], None]](), threading.Event()

    def failing(self: CopyOperator, page: Any, inputs: Any, *rest: Any) -> Any:
        applied = apply(self, page, inputs, *rest)
        if np.any(inputs[0].lanes[:, 1] == POISON):
            raise ZeroDivisionError("planted")
        return applied

    @contextmanager
    def stop_asked(stop: Callable[[], None]) -> Iterator[None]:
        stops.append(stop)
        yield

    def stop_behind_the_last() -> None:
        with closing(SqliteBus(path)) as watching:
            try:
                wait_until(lambda: is_over.is_set() or LAST in values(watching, kept, "v"), "the last row", WAIT_S)
            finally:
                for stop in stops:
                    stop()

    monkeypatch.setattr(CopyOperator, "process_chunks", failing)
    monkeypatch.setattr(process, "stop_on_signals", stop_asked)
    watcher = threading.Thread(target=stop_behind_the_last)
    watcher.start()
    try:
        settings = GroupSettings(lease_ms=10_000)
        options = EngineOptions(project=project, bus_url=f"sqlite:///{path}", runner=RunnerKind.LOCAL, settings=settings)
        status = process.run_engine(options)
    finally:
        is_over.set()
        watcher.join()
    assert status == process.EXIT_OK
    assert values(bus, kept, "v") == [1, 2, LAST]
    assert values(bus, bad_topic("hotspare", "p"), "text") == ["I,1,13"]
    bus.close()
