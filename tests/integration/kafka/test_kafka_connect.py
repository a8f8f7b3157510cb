"""Kafka Connect reads outputs in JSON with its own converters, into a file by its own sink: one record per row, with its key."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks._java import CONNECT_JSON, fetched, program

from hotspare.bus.contract import Commit, Progress
from hotspare.bus.open import open_bus
from hotspare.formats import arrow_block
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.ha.rules.settings import OutputStream
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat, output_schema
from hotspare.runners.spark.jars import Jar
from hotspare.testing.kafka_jars import class_path
from hotspare.testing.kafka_server import KafkaServers

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]
JARS = (
    Jar("org.apache.kafka:connect-api:4.1.1", "9e8fe3277d31410e3dd6c84b34967230bb5643b8424d3b96320ce1c43b4b5152"),
    Jar("org.apache.kafka:connect-file:4.1.1", "9f7653f48fcc3e76690fa663f770c75a8f4efbb745c1e3d3e65611ff0ecbed67"),
    *CONNECT_JSON,
)
KEY = Field("id", FieldType.INT64, KeyRole.KEY)
SCHEMA = Schema((KEY, Field("card", FieldType.STRING), Field("amount", FieldType.DOUBLE)))
ROWS = 50


def test_the_file_sink_writes_a_line_for_each_output(kafka: KafkaServers, tmp_path: Path) -> None:
    topic = f"{tmp_path.name}.O".replace("_", "-")
    number = list(range(ROWS))
    columns = [*([number] * 7), [1] * ROWS, [1] * ROWS, number, [f'"{each}\n' for each in number], [each / 2 for each in number]]
    schema = output_schema(SCHEMA)
    rows = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    output = OutputStream("q/w", topic, format=MessageFormat.JSON, message_key=(KEY,))
    with contextlib.closing(open_bus(kafka.url)) as bus:
        bus.create_topic(topic)
        producer = bus.producer(f"group.{topic}", [topic])
        producer.fence(1)
        (block,) = MessageSizes(8).split_messages([rows], output, 1, arrow_block)
        producer.publish(1, Commit({topic: block.messages}, {"q/w": Progress(ROWS, None, 1, 1)}))
    jars = [*class_path().split(os.pathsep), *fetched(JARS, "connect")]
    file = tmp_path / "outputs.txt"
    sink = program(Path(__file__).with_name("FileSink.java"), jars, ("-Xmx128m",))
    done = subprocess.run(
        [*sink, kafka.bootstrap, topic, str(file), str(ROWS)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert [int(each) for each in re.findall(r"\bid=(\d+)", text)] == number
    assert [float(each) for each in re.findall(r"amount=([\d.]+)", text)] == [each / 2 for each in number]
    assert [int(each) for each in re.findall(r'card="(\d+)\n', text)] == number
