"""Which outputs are messages of their own, and their keys, by the window's bus connector (SPEC I4)."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.formats.topic_format import outbound_format, outbound_key
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat

PROJECT = """
project: p
queries:
  q:
    windows:
      w:
        type: source
        schema: "a*:string,x:double,b*:int64"
        CONNECTORS
"""


@pytest.mark.parametrize(
    ("properties", "format_", "key"),
    [
        ("kafkatype: json", MessageFormat.JSON, ["a", "b"]),
        ("kafkatype: CSV", MessageFormat.CSV, ["a", "b"]),
        ("kafkatype: json, csvmsgperevent: true", MessageFormat.JSON, ["a", "b"]),
        ("kafkatype: json, csvmsgpereventblock: true", MessageFormat.JSON, []),
        ("kafkatype: avro", MessageFormat.AVRO, []),
        ("kafkatype: binary", MessageFormat.ARROW, []),
        ("kafkatype: json, kafkahostport: 'theirs:9092', kafkatopic: alerts", MessageFormat.ARROW, []),
    ],
)
def test_outputs_in_text_are_messages_with_the_key_of_the_window(properties: str, format_: MessageFormat, key: list[str]) -> None:
    connectors = f"connectors: {{out: {{kind: kafka, direction: subscribe, properties: {{{properties}}}}}}}"
    resolved = load_text(PROJECT.replace("CONNECTORS", f"publish: true\n        {connectors}")).resolved
    (stream,) = resolved.streams
    window = resolved.window(stream).window
    assert outbound_format(window) is format_
    assert [field.name for field in outbound_key(window, resolved.schema(stream))] == key


def test_a_property_that_is_neither_true_nor_false_is_refused() -> None:
    connectors = "connectors: {out: {kind: kafka, direction: subscribe, properties: {kafkatype: json, csvmsgpereventblock: some}}}"
    with pytest.raises(ProjectError, match="property csvmsgpereventblock of connector out is 'some'"):
        load_text(PROJECT.replace("CONNECTORS", connectors))
