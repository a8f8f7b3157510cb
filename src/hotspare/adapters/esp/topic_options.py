"""Converts the properties of a Kafka connector that names an external topic to the options of its adapter (SPEC I2-I4)."""

from __future__ import annotations

from hotspare.adapters.esp.client_options import client_options, kafka_url
from hotspare.adapters.esp.connector_options import row_choice, row_form
from hotspare.adapters.esp.property_values import (
    invalid_property,
    parse_choice_property,
    parse_count_property,
    parse_switch_property,
)
from hotspare.adapters.files.canonical import FileFormat
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.position import OnLost, StartAt, parse_start
from hotspare.adapters.topics.publisher import TopicPublishOptions
from hotspare.adapters.topics.schemas import Schemas, open_schemas
from hotspare.adapters.topics.send_form import SchemaLine, SendForm
from hotspare.adapters.topics.subscriber import SendOptions
from hotspare.base.errors import UsageError
from hotspare.model.delivery import BLOCKS, MessageCut
from hotspare.model.project import Connector
from hotspare.model.types import FieldType, Schema
from hotspare.rows.batch import MessageFormat

_FORMATS = {
    "": MessageFormat.CSV,
    "csv": MessageFormat.CSV,
    "json": MessageFormat.JSON,
    "avro": MessageFormat.AVRO,
    "binary": MessageFormat.ARROW,
}
_REFUSED = {"protobuf": "its messages do not describe their fields, and hotspare has no compiler of .proto files"}
_OTHER_FORM = "write the topic in json or avro"
OPAQUE = "opaquestring"
"""The kafkatype for messages that are the value of the only string field that is not a key."""
_COLUMN_PROPERTIES = ("addcsvopcode", "addcsvflags", "noautogenfield", "csvfielddelimiter")


def topic_url(connector: Connector) -> str:
    """Returns the URL of the cluster, which may contain secrets."""
    options = {**client_options(connector.get("kafkaglobalconfig")), **client_options(connector.get("kafkatopicconfig"))}
    return kafka_url(connector.get("kafkahostport"), options)


def topic_name(connector: Connector) -> str:
    return connector.get("kafkatopic").strip()


def topic_format(connector: Connector) -> MessageFormat:
    """Returns the format of the topic's messages. Raises UsageError for an unknown or unsupported format."""
    name = connector.get("kafkatype").strip().lower()
    if name in _REFUSED:
        raise UsageError(f"kafkatype {name} of connector {connector.name} cannot be read", detail=_REFUSED[name], hint=_OTHER_FORM)
    if name not in _FORMATS:
        raise invalid_property(connector, "kafkatype", name, " or ".join(each for each in _FORMATS if each))
    return _FORMATS[name]


def topic_publish_options(connector: Connector, schema: Schema, source_name: str = "") -> TopicPublishOptions:
    """Returns the options of a publishing connector. Raises UsageError for an invalid value, naming the connector."""
    value_field = _value_field(connector, schema)
    format_ = MessageFormat.CSV if value_field else topic_format(connector)
    if format_ is not MessageFormat.CSV or value_field:
        for name in _COLUMN_PROPERTIES:
            if connector.get(name).strip().lower() not in ("", "none", "false", "0", "no"):
                what = f"property {name} of connector {connector.name} has no effect with kafkatype {connector.get('kafkatype')}"
                raise UsageError(f"{what}: it describes columns of csv", hint="leave it out")
    rows = row_form(connector, schema, FileFormat.JSON if format_ is MessageFormat.JSON else FileFormat.CSV)
    return TopicPublishOptions(
        source_name=source_name,
        form=TopicForm(format_, rows, connector.get("avroschemadefinition"), _schemas(connector), value_field),
        partition=topic_partition(connector),
        start=_start(connector),
        events_max=parse_count_property(connector, "maxevents"),
        block_rows=parse_count_property(connector, "blocksize"),
        on_lost=parse_switch_property(connector, "skiplost", OnLost.END, OnLost.SKIP),
    )


def _value_field(connector: Connector, schema: Schema) -> str:
    """Returns the name of the field whose value is the complete message; "" if messages have a format. Raises UsageError for OPAQUE
    unless exactly one string field is outside the key."""
    name = connector.get("kafkatype").strip()
    if name.lower() != OPAQUE:
        return name if name.lower() not in (_FORMATS.keys() | _REFUSED.keys()) and name in schema.index else ""
    texts = [field.name for field in schema.fields if field.type is FieldType.STRING and not field.is_key]
    if len(texts) != 1:
        what = (
            f"connector {connector.name} has kafkatype {OPAQUE}, and its window has {len(texts)} strings outside the key, not one"
        )
        raise UsageError(what, hint="set kafkatype to the name of the field")
    return texts[0]


def _schemas(connector: Connector) -> Schemas | None:
    place = connector.get("avroschemaregistryurl").strip()
    return open_schemas(place) if place else None


def topic_send_options(connector: Connector, schema: Schema, source_name: str = "") -> SendOptions:
    """Returns the options of a subscribing connector. Raises UsageError for an invalid value, naming the connector."""
    value_field = _value_field(connector, schema)
    form = SendForm(
        schema=schema,
        format=MessageFormat.CSV if value_field else topic_format(connector),
        choice=row_choice(connector),
        cut=parse_switch_property(connector, BLOCKS, MessageCut.PER_EVENT, MessageCut.PER_BLOCK),
        date_format=connector.get("dateformat"),
        value_field=value_field,
        schema_line=parse_choice_property(
            connector, "csvincludeschema", {"": SchemaLine.NEVER, **{each.value: each for each in SchemaLine}}
        ),
    )
    return SendOptions(source_name, form, topic_partition(connector))


def topic_partition(connector: Connector) -> int | None:
    """Returns the number of the only partition to use; None for all."""
    return None if connector.get("kafkapartition").strip() in ("", "-1") else parse_count_property(connector, "kafkapartition")


def _start(connector: Connector) -> StartAt | int:
    found = parse_start(connector.get("kafkainitialoffset"))
    if found is None:
        raise invalid_property(
            connector, "kafkainitialoffset", connector.get("kafkainitialoffset"), "smallest, largest or an offset"
        )
    return found
