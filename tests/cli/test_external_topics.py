"""The page about external topics matches the commands (SPEC I2-I4): its project loads, its command runs."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.adapters.esp.topic_options import topic_send_options
from hotspare.adapters.topics.send_form import SchemaLine
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.formats.outputs import decode_outputs, encode_outputs
from hotspare.model.connectors import is_external_topic
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat
from tests.cli.running import hotspare_here

PAGE = Path(__file__).parents[2] / "docs" / "topics.md"
IN, OUT = Partition("hotspare.shop.sales.orders.I"), Partition("hotspare.shop.sales.large.O")
LARGE = WindowId("sales", "large")


def example() -> str:
    found = re.search(r"```yaml\n(project:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found.group(1)


def command_line(verb: str = "publish") -> list[str]:
    found = re.search(rf"```console\n\$ hotspare ({verb} .*?)\n```", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return shlex.split(found.group(1))


def test_the_project_of_the_page_loads() -> None:
    assert load_text(example(), "shop.yaml", {"PASSWORD": "x"}, connectors=connector_mistakes).warnings == ()


def test_the_command_of_the_page_brings_in_a_topic_of_two_partitions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(example().replace("@PASSWORD@", "x"))
    with contextlib.closing(open_bus("sqlite:///theirs.db")) as theirs:
        theirs.create_topic("orders", 2)
        theirs.append(Partition("orders", 0), [Outgoing(b"i,n,1,0.5"), Outgoing(b"i,n,2,1")])
        theirs.append(Partition("orders", 1), [Outgoing(b"i,n,3,2")])
    for _ in range(2):
        done = hotspare_here(*command_line())
        assert done.returncode == 0, done.stderr
        assert f"3 events of orders are in {IN.topic}" in done.stderr
    with contextlib.closing(open_bus("sqlite:///ours.db")) as ours:
        messages = ours.read(IN, 0, messages_max=9, bytes_max=1 << 20)
    assert sorted(row for message in messages for row in message.value.split(b"\n")) == [b"i,n,1,0.5", b"i,n,2,1", b"i,n,3,2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--header", "1"], "--header with --topic has no effect"),
        (["--growing"], "--growing with --topic has no effect"),
        (["--initial-offset", "soon"], "--initial-offset is 'soon'"),
        (["--avro-schema", "absent.json", "--format", "avro"], "/absent.json cannot be read"),
    ],
)
def test_what_means_nothing_for_a_topic_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(example().replace("@PASSWORD@", "x"))
    done = hotspare_here(*command_line(), *options)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize("verb", ["publish", "subscribe"])
def test_a_topic_that_is_missing_is_named_with_the_command_that_creates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(example().replace("@PASSWORD@", "x"))
    for file, topics in (("theirs.db", ["other"]), ("ours.db", [OUT.topic])):
        with contextlib.closing(open_bus(f"sqlite:///{file}")) as bus:
            for topic in topics:
                bus.create_topic(topic)
    done = hotspare_here(*command_line(verb))
    topic = "orders" if verb == "publish" else "alerts"
    assert done.returncode == 1
    assert f"topic {topic} does not exist" in done.stderr
    assert f"create_topic('{topic}')" in done.stderr
    assert "prefix" not in done.stderr


def test_messages_that_are_lost_end_it_unless_it_may_go_on_behind_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC I2. Nothing of the other partition is published twice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(example().replace("@PASSWORD@", "x"))
    line = [word for word in command_line() if word not in ("--maxevents", "3")]
    with contextlib.closing(open_bus("sqlite:///theirs.db")) as theirs:
        theirs.create_topic("orders", 2)
        for partition, rows in ((0, [b"i,n,1,0.5"]), (1, [b"i,n,3,2"])):
            theirs.append(Partition("orders", partition), [Outgoing(row) for row in rows])
        assert hotspare_here(*line, "--maxevents", "2").returncode == 0
        theirs.append(Partition("orders", 0), [Outgoing(b"i,n,4,1"), Outgoing(b"i,n,5,1")])
        theirs.append(Partition("orders", 1), [Outgoing(b"i,n,6,1")])
        theirs.trim(Partition("orders", 0), 2)
    refused = hotspare_here(*line, "--maxevents", "4")
    assert refused.returncode == 1
    assert "HS-0303 partition 0 of topic orders no longer holds offset 1" in refused.stderr
    for _ in range(2):
        done = hotspare_here(*line, "--maxevents", "4", "--skip-lost")
        assert done.returncode == 0, done.stderr
        assert f"4 events of orders are in {IN.topic}" in done.stderr
    with contextlib.closing(open_bus("sqlite:///ours.db")) as ours:
        messages = ours.read(IN, 0, messages_max=9, bytes_max=1 << 20)
    rows = [row for message in messages for row in message.value.split(b"\n")]
    notice = b"partition 0 of topic orders: offsets 1 to 1"
    assert sorted(rows) == [b"i,n,1,0.5", b"i,n,3,2", b"i,n,5,1", b"i,n,6,1", notice]
    assert [m.header("hotspare-format") for m in messages if m.value == notice] == [b"lost"]


def test_the_command_of_the_page_sends_outputs_to_a_topic_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC I3."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(example().replace("@PASSWORD@", "x"))
    loaded = load_text(example(), "shop.yaml", {"PASSWORD": "x"}).resolved
    with contextlib.closing(open_bus("sqlite:///theirs.db")) as theirs:
        theirs.create_topic("alerts")
    outputs = decode_outputs(b"i,n,1,200\ni,n,2,300.5", MessageFormat.CSV, loaded.schema(LARGE), 1)
    with contextlib.closing(open_bus("sqlite:///ours.db")) as ours:
        ours.create_topic(OUT.topic)
        ours.append(OUT, [Outgoing(encode_outputs(outputs, MessageFormat.ARROW))])
    for count in (2, 0):
        done = hotspare_here(*command_line("subscribe"))
        assert done.returncode == 0, done.stderr
        assert f"sent {count} rows of {OUT.topic} to alerts, up to sequence" in done.stderr
    with contextlib.closing(open_bus("sqlite:///theirs.db")) as theirs:
        messages = theirs.read(Partition("alerts"), 0, messages_max=9, bytes_max=1 << 20)
    assert [message.value for message in messages] == [b"I,N,1,200", b"I,N,2,300.5"]
    refused = hotspare_here(*command_line("subscribe"), "--snapshot", "--header", "full")
    assert refused.returncode == 2
    assert "--header, --snapshot with --topic has no effect" in refused.stderr


def connector(direction: str = "publish", **properties: str) -> str:
    written = ", ".join(f"{name}: {value!r}" for name, value in properties.items())
    return f"""
project: p
queries:
  q:
    singletons: included
    windows:
      w:
        type: source
        opcodes: any
        schema: id*:int64
        connectors: {{c: {{kind: kafka, direction: {direction}, properties: {{{written}}}}}}}
"""


THEIRS = {"kafkahostport": "h:9092", "kafkatopic": "t"}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"kafkatype": "json", "csvfielddelimiter": ";"}, "csvfielddelimiter of connector c has no effect with kafkatype json"),
        ({"kafkainitialoffset": "soon"}, "kafkainitialoffset of connector c is 'soon'"),
        ({"kafkapartition": "-2"}, "kafkapartition of connector c is '-2'"),
        ({"kafkatype": "avro", "avroschemadefinition": "{}"}, "the avro schema cannot be parsed"),
        ({"avroschemadefinition": '"int"'}, "an avro schema has no effect with messages in"),
        ({"kafkatype": "avro", "publishwithupsert": "true"}, "messages in avro are published unchanged"),
        ({"avroschemaregistryurl": "http://h"}, "a source of schemas applies to messages in avro that name theirs"),
        ({"kafkatype": "avro", "avroschemaregistryurl": "ftp://h"}, "ftp://h: not a source of schemas"),
        ({"kafkatype": "protobuf"}, "kafkatype protobuf of connector c cannot be read"),
        ({"kafkatype": "none"}, "kafkatype of connector c is 'none'"),
        ({"kafkatype": "opaquestring"}, "has kafkatype opaquestring, and its window has 0 strings outside the key"),
        ({"kafkatype": "id", "csvfielddelimiter": ";"}, "csvfielddelimiter of connector c has no effect with kafkatype id"),
        ({"direction": "subscribe", "kafkatype": "avro", "dateformat": "%Y"}, "dateformat has no effect"),
        ({"direction": "subscribe", "kafkatype": "csv", "collapse": "perhaps"}, "property collapse of connector c"),
        ({"direction": "subscribe", "kafkatype": "csv", "csvincludeschema": "twice"}, "csvincludeschema of connector c is 'twice'"),
        ({"direction": "subscribe", "kafkatype": "json", "csvincludeschema": "once"}, "only messages in csv contain their schema"),
        ({"direction": "subscribe", "kafkatype": "id", "csvmsgpereventblock": "true"}, "one value holds one output"),
        ({"direction": "subscribe", "useclientmsgid": "true"}, "useclientmsgid of connector c is not implemented yet"),
    ],
)
def test_a_connector_that_cannot_be_run_is_refused_when_the_project_is_loaded(properties: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match="HS-") as refused:
        load_text(connector(**THEIRS, **properties), connectors=connector_mistakes)
    assert words in str(refused.value)


def test_options_of_what_goes_out() -> None:
    """SPEC I3, I4: one field's value, and the schema before the rows."""
    text = connector("subscribe", **THEIRS, kafkatype="id")
    loaded = load_text(text, connectors=connector_mistakes)
    window = loaded.project.queries[0].windows[0]
    assert window.schema is not None
    form = topic_send_options(window.connectors[0], window.schema).form
    assert (form.value_field, form.schema_line) == ("id", SchemaLine.NEVER)
    text = connector("subscribe", **THEIRS, kafkatype="csv", csvincludeschema="pereventblock")
    loaded = load_text(text, connectors=connector_mistakes)
    form = topic_send_options(loaded.project.queries[0].windows[0].connectors[0], window.schema).form
    assert (form.value_field, form.schema_line) == ("", SchemaLine.PER_MESSAGE)


@pytest.mark.parametrize(
    ("properties", "is_others"),
    [
        ({"kafkahostport": "h:9092", "kafkatopic": "t"}, True),
        ({"kafkahostport": "h:9092", "kafkatopic": "t", "urlhostport": "h_1"}, True),
        ({"kafkahostport": "h:9092", "kafkatopic": "h_1.p.q.w.I", "urlhostport": "h_1"}, False),
        ({"kafkahostport": "h:9092", "kafkatopic": "h_1.p.q.slip.I", "urlhostport": "h_1"}, False),
        ({"kafkahostport": "h:9092", "kafkatopic": "h_1.other.q.w.O", "urlhostport": "h_1"}, True),
        ({"kafkahostport": "h:9092"}, False),
        ({"kafkatopic": "t"}, False),
        ({"direction": "subscribe", "kafkahostport": "h:9092", "kafkatopic": "t"}, True),
        ({"direction": "subscribe", "kafkahostport": "h:9092", "kafkatopic": "h_1.p.q.w.O", "urlhostport": "h_1"}, False),
        ({"direction": "subscribe", "kafkahostport": "h:9092", "kafkatopic": "h_1.p.q.w.I", "urlhostport": "h_1"}, True),
    ],
)
def test_which_topics_are_those_of_others(properties: dict[str, str], is_others: bool) -> None:
    (found,) = load_text(connector(**properties)).project.queries[0].windows[0].connectors
    assert is_external_topic(found) is is_others
