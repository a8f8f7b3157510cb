"""The commands of pages work as written there, except for addresses: blocks that need brokers or a ZooKeeper."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent

import pyarrow as pa
import pytest

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.flow.plan import compile_plan
from hotspare.formats import arrow_block
from hotspare.formats.outputs import decode_outputs, encode_outputs
from hotspare.ha.outputs.blocks import MessageSizes
from hotspare.host.project import checked_project
from hotspare.host.topics import group_topics
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.contract.kafka_door import empty
from tests.documents.blocks import ROOT, Block, shows
from tests.documents.play import PageFolder

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture
def bus(kafka: KafkaServers) -> Iterator[Bus]:
    empty(kafka.bootstrap)
    opened = open_bus(kafka.url)
    yield opened
    opened.close()
    empty(kafka.bootstrap)


@pytest.fixture
def places(kafka: KafkaServers, zookeeper: ZooKeeperServer, bus: Bus, tmp_path: Path) -> dict[str, str]:
    """The servers and folders of this machine, by those that pages name."""
    return {
        **dict.fromkeys(("ours:9092", "theirs:9092", "broker:9092"), kafka.bootstrap),
        "zookeeper://zk:2181": f"{zookeeper.url}/{tmp_path.name}",
        "file:///shared": tmp_path.as_uri(),
    }


def rows(bus: Bus, topic: str) -> list[bytes]:
    if topic not in bus.topics():
        return []
    end = bus.end_offset(Partition(topic))
    messages = bus.read(Partition(topic), 0, messages_max=1_000, bytes_max=1 << 20) if end else []
    return [row for message in messages for row in message.value.split(b"\n") if row]


@shows(
    "docs/topics.md",
    "hotspare publish --bus kafka://ours:9092",
    "hotspare subscribe --bus kafka://ours:9092",
)
def test_topics_of_others(shown: list[Block], tmp_path: Path, bus: Bus, places: dict[str, str]) -> None:
    for topic in ("sensors", "alerts"):
        bus.create_topic(topic)
    bus.append(Partition("sensors"), [Outgoing(b'{"id": 1, "amount": 200}'), Outgoing(b'{"id": 2, "amount": 1}')])
    with PageFolder(tmp_path, "empty", ["docs/topics.md"], places) as page:
        resolved = checked_project(page.folder / "shop.yaml", {}).resolved
        publish_metadata(bus, "hotspare", describe(resolved, "hotspare"))
        (large,) = resolved.streams
        for topic in ("orders.I", "large.O"):
            bus.create_topic(f"hotspare.shop.sales.{topic}")
        outputs = decode_outputs(b"i,n,1,200", MessageFormat.CSV, resolved.schema(large), 1)
        bus.append(Partition("hotspare.shop.sales.large.O"), [Outgoing(encode_outputs(outputs, MessageFormat.ARROW))])
        for block in shown:
            page.play(block)
        wait_until(lambda: len(rows(bus, "hotspare.shop.sales.orders.I")) == 2, "what is on sensors comes in")
        wait_until(lambda: len(rows(bus, "alerts")) == 1, "what is put out comes to alerts")
        page.stop()


def test_a_plain_consumer_reads_outputs(tmp_path: Path, bus: Bus, kafka: KafkaServers) -> None:
    """Runs the script of the page against the output topic of its window as an engine writes it."""
    page = (ROOT / "docs" / "topics.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    window = re.search(r"```yaml\n(large:.*?)```", page, re.DOTALL)
    project = re.search(r"```yaml\n(project:.*?)```", page, re.DOTALL)
    assert window is not None
    assert project is not None
    plain = "      large: {type: filter, condition: amount > 100}\n"
    text = project[1].replace("@PASSWORD@", "x").replace(plain, indent(window[1], " " * 6))
    plan = compile_plan(load_text(text).resolved)
    output = group_topics(plan.resolved.project, plan, "hotspare").outbound[0]
    bus.create_topic(output.topic)
    rows = decode_outputs(b"i,n,1,200", MessageFormat.CSV, plan.stream_schemas[output.stream], 1)
    ids = [rows.column(0), *(pa.array([0]).cast(rows.schema.types[place]) for place in range(1, 7)), *rows.columns[7:]]
    (block,) = MessageSizes(8).split_messages([pa.RecordBatch.from_arrays(ids, schema=rows.schema)], output, 1, arrow_block)
    bus.append(Partition(output.topic), list(block.messages))
    script = [sys.executable, "-c", code.replace("ours:9092", kafka.bootstrap)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as consumer:
        try:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == "1 I 200 1\n"
        finally:
            consumer.kill()


@shows("docs/adapters.md", "hotspare adapter -C")
def test_an_option_text(shown: list[Block], tmp_path: Path, bus: Bus, places: dict[str, str]) -> None:
    bus.create_topic("esp_61001.shop.sales.orders.I")
    with PageFolder(tmp_path, "adapters", places=places) as page:
        page.play(*shown)
        wait_until(lambda: len(rows(bus, "esp_61001.shop.sales.orders.I")) == 5, "the rows behind two titles")
        page.stop()


@shows("docs/scale.md", "hotspare run shop.yaml --runner local")
def test_an_engine_without_spark(shown: list[Block], tmp_path: Path, places: dict[str, str]) -> None:
    with PageFolder(tmp_path, "shards", ["docs/shards.md"], places) as page:
        page.play(*shown)
        page.stop()


@shows("docs/servers.md", "hotspare run shop.yaml --bus kafka://broker:9092")
def test_engines_at_addresses(shown: list[Block], tmp_path: Path, places: dict[str, str], free_port: Callable[[], int]) -> None:
    one, two = free_port(), free_port()
    here = {"10.0.0.5:7001": f"127.0.0.1:{one}", "node-5.example:7002": f"127.0.0.1:{two}", "0.0.0.0:7002": f"127.0.0.1:{two}"}
    with PageFolder(tmp_path, "shards", ["docs/shards.md"], places | here) as page:
        page.play(*shown)
        page.stop()


@shows("docs/servers.md", "BUS=$(hotspare dev kafka up")
def test_servers_for_development(shown: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    places = {"file:///tmp/snapshots": (tmp_path / "snapshots").as_uri()}
    with PageFolder(tmp_path, "shards", ["docs/shards.md"], places) as page, contextlib.ExitStack() as stack:
        for server in ("kafka", "zookeeper"):
            stack.callback(page.do, f"hotspare dev {server} down")
        for command in shown[0].commands():
            if command.endswith("down"):
                page.stop()
            page.do(command)
