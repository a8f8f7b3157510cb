"""A task that reads outputs as a table needs no more than the driver sent it."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.formats.outputs import decode_outputs, encode_outputs
from hotspare.host.project import checked_project
from hotspare.rows.batch import MessageFormat
from hotspare.spark.output_stream import Range, StreamOptions, TableReader

PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: "id*:int64,amount:double"}
      big: {type: filter, condition: amount > 10, publish: true}
    edges: [orders -> big]
"""
TOPIC = "hotspare.shop.q.big.O"


def table() -> StructType:
    types = {"opcode": StringType(), "flags": StringType(), "id": LongType(), "amount": DoubleType()}
    types |= {"shard": IntegerType(), "sequence": LongType(), "output_id": StringType()}
    found = StructType()
    for name, type_ in types.items():
        found = found.add(name, type_)
    return found


def test_a_task_has_neither_the_projects_file_nor_the_drivers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC K4."""
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "shop.yaml"
    project.write_text(PROJECT)
    resolved = checked_project(project, {}).resolved
    outputs = decode_outputs(b"i,n,1,11", MessageFormat.CSV, resolved.schema(resolved.streams[0]), 1)
    with closing(open_bus("sqlite:///bus.db")) as bus:
        bus.create_topic(TOPIC)
        bus.append(Partition(TOPIC), [Outgoing(encode_outputs(outputs, MessageFormat.ARROW))])
    options = StreamOptions.from_options({"bus": "sqlite:///bus.db", "window": "shop/q/big", "project": "shop.yaml"})
    sent = pickle.dumps(TableReader(options, table()))
    project.unlink()
    monkeypatch.chdir("/")
    (rows,) = pickle.loads(sent).read(Range(0, 0, 1))
    assert rows.select(["opcode", "id", "amount", "sequence"]).to_pylist() == [
        {"opcode": "I", "id": 1, "amount": 11.0, "sequence": 1}
    ]
