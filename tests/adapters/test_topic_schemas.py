"""Messages that identify their schema by a number, and messages that are one value (SPEC I2, I4)."""

from __future__ import annotations

import base64
import io
import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from hotspare.adapters.files.canonical import InsertOpcode, RowForm
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.schemas import FramedAvro, Schemas, open_schemas
from hotspare.base.errors import BusUnavailable, UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.formats.avro_block import decode_events
from hotspare.formats.csv.decode import decode_rows
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat
from tests.adapters.test_topics_in import IN, OTHERS, Site

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))
RECORD: dict[str, Any] = {
    "name": "r",
    "type": "record",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
}
LATER = {**RECORD, "fields": [{"name": "text", "type": ["null", "string"]}, *RECORD["fields"][:1], {"name": "more", "type": "int"}]}


def framed(number: int, schema: dict[str, Any], **row: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return struct.pack(">BI", 0, number) + out.getvalue()


@dataclass
class Registry:
    """A real HTTP server; the next `failures` requests get status 503."""

    schemas: dict[int, object]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    failures: int = 0
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append((handler.path, handler.headers.get("Authorization")))
        known = self.schemas.get(int(handler.path.rpartition("/")[2]))
        status = 200 if known is not None else 404
        if self.failures:
            self.failures, status = self.failures - 1, 503
        body = json.dumps(known if status == 200 else {"error_code": 40403}).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry({7: {"schema": json.dumps(RECORD)}, 8: {"schemaType": "AVRO", "schema": json.dumps(LATER)}})
    made.schemas |= {9: {"schemaType": "PROTOBUF", "schema": "syntax"}, 10: {"schema": "{}"}, 11: ["no answer"]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def events(values: list[bytes]) -> list[tuple[int, str | None]]:
    rows, bad = decode_events(values, range(len(values)), SCHEMA)
    assert not len(bad), bad.sentence.to_pylist()
    assert rows is not None
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_each_message_is_read_with_the_schema_that_it_names(registry: Registry) -> None:
    form = TopicForm(MessageFormat.AVRO, schemas=open_schemas(registry.url))
    values = [framed(7, RECORD, id=1, text="a"), framed(8, LATER, id=2, text=None, more=3), framed(7, RECORD, id=3, text="c")]
    assert events([each for value in values for each in form.split_message(value)]) == [(1, "a"), (2, None), (3, "c")]
    assert [path for path, _ in registry.asked] == ["/schemas/ids/7", "/schemas/ids/8"], "each is asked for once"


def test_the_same_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(RECORD))
    form = TopicForm(MessageFormat.AVRO, schemas=open_schemas(str(tmp_path)))
    assert events(list(form.split_message(framed(7, RECORD, id=1, text="a")))) == [(1, "a")]
    assert list(form.split_message(framed(8, RECORD, id=1, text="a"))) == [framed(8, RECORD, id=1, text="a")]


def test_what_has_no_schema_stays_as_it_is_and_becomes_a_bad_event(registry: Registry) -> None:
    form = TopicForm(MessageFormat.AVRO, schemas=open_schemas(registry.url))
    values = [framed(number, RECORD, id=1, text="a") for number in (6, 9, 10, 11)] + [b"\x00\x00", b"\x01\x00\x00\x00\x07\x02\x02a"]
    for value in values:
        assert list(form.split_message(value)) == [value]
        assert len(decode_events([value], [0], SCHEMA)[1]) == 1


def test_a_number_that_was_unknown_is_asked_for_again_later(registry: Registry) -> None:
    now_s = 0.0
    frames, value = FramedAvro(open_schemas(registry.url), lambda: now_s), framed(12, RECORD, id=1, text="a")
    assert [frames.to_container(value) for _ in range(3)] == [value] * 3
    assert len(registry.asked) == 1
    registry.schemas[12], now_s = registry.schemas[7], 6.0
    assert events([frames.to_container(value)]) == [(1, "a")]


def test_a_user_is_told_to_the_registry_and_to_nobody_else(registry: Registry) -> None:
    url = registry.url.replace("http://", "http://me:a%20secret@")
    schemas = open_schemas(url)
    assert schemas.schema_text(7) is not None
    assert registry.asked[0][1] == "Basic " + base64.b64encode(b"me:a secret").decode()
    registry.failures = 1
    with pytest.raises(BusUnavailable) as failed:
        schemas.schema_text(7)
    assert "with status 503" in str(failed.value)
    assert "secret" not in str(failed.value)
    gone: Schemas = open_schemas("http://me:secret@127.0.0.1:1")
    with pytest.raises(BusUnavailable, match="did not answer"):
        gone.schema_text(7)


@pytest.mark.parametrize("place", ["ftp://h/x", "/no/such/folder", "schemas.avsc"])
def test_what_is_no_registry_and_no_folder(place: str) -> None:
    with pytest.raises(UsageError, match="not a source of schemas"):
        open_schemas(place)


def test_an_adapter_waits_for_a_registry_that_does_not_answer(registry: Registry) -> None:
    """It makes no bad events meanwhile, and each message is published once."""
    site = Site()
    messages = [framed(7, RECORD, id=number, text="x") for number in range(5)]
    site.their_bus().append(Partition(OTHERS), [Outgoing(message) for message in messages])
    registry.failures = 2
    site.bring(form=TopicForm(MessageFormat.AVRO, schemas=open_schemas(registry.url)))
    found = [message.value for message in site.bus().read(IN, 0, messages_max=99, bytes_max=1 << 20) if message.value]
    assert events(found) == [(number, "x") for number in range(5)]
    assert len(registry.asked) == 3


VALUES = Schema((Field("id", FieldType.STRING, KeyRole.KEY), Field("x", FieldType.DOUBLE), Field("t", FieldType.STRING)))


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("x", b"1.5", (None, 1.5, None)),
        ("t", b'says "a, b\\c"\nand more', (None, None, 'says "a, b\\c"\nand more')),
        ("t", "Grüße".encode(), (None, None, "Grüße")),
        ("t", b"  ", (None, None, "  ")),
        ("id", b"k", ("k", None, None)),
    ],
)
def test_a_message_is_the_value_of_one_field(name: str, value: bytes, row: tuple[object, ...]) -> None:
    (text,) = TopicForm(rows=RowForm(schema=VALUES), value_field=name).split_message(value)
    parts, bad = decode_rows(pa.array([text]), VALUES)
    assert not len(bad)
    assert [tuple(column.to_pylist()) for column in parts[0].columns] == [(each,) for each in row]
    assert parts[0].opcode.tolist() == [1]


def test_values_may_be_upserts_and_none_is_no_event() -> None:
    form = TopicForm(rows=RowForm(schema=VALUES, insert=InsertOpcode.UPSERT), value_field="id")
    (text,) = form.split_message(b"k")
    assert decode_rows(pa.array([text]), VALUES)[0][0].opcode.tolist() == [3]
    assert list(form.split_message(b"")) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value_field": "y", "rows": RowForm(schema=VALUES)}, "use one of: id, x, t"),
        ({"value_field": "x"}, "no field x"),
        ({"value_field": "x", "rows": RowForm(schema=VALUES, delimiter=";")}, "with messages of one value"),
        ({"value_field": "x", "format": MessageFormat.ARROW, "rows": RowForm(schema=VALUES)}, "with messages of one value"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        TopicForm(**options)
    assert said in f"{refused.value}"
