"""The connectors and properties that a project may name (SPEC I2-I6): which have an effect, and which are refused."""

from __future__ import annotations

from enum import Enum

from hotspare.model.project import Connector, ConnectorDirection


class Support(Enum):
    """How hotspare treats a connector property."""

    IMPLEMENTED = "implemented"
    NO_EFFECT = "accepted, no effect"
    """hotspare reaches the property's purpose in another way, or the property only tunes something that hotspare lacks."""
    MISSING = "not implemented"
    """The property would change the events, so a project that sets it is refused."""


def _table(implemented: str, no_effect: str, missing: str) -> dict[str, Support]:
    rows = ((implemented, Support.IMPLEMENTED), (no_effect, Support.NO_EFFECT), (missing, Support.MISSING))
    return {name: support for names, support in rows for name in names.split()}


PUBLISH = ConnectorDirection.PUBLISH
SUBSCRIBE = ConnectorDirection.SUBSCRIBE

_CODE = {
    PUBLISH: _table(
        "code interval init publish maxevents", "destroy blocksize transactional snapshot configfilesection", "codefile"
    )
}

BUS_KINDS = frozenset({"kafka"})
TOPIC_CLASS = "kafka topic"
"""The class of a bus connector that names an external topic: one other than the window's own."""
_SUFFIX = {PUBLISH: ".I", SUBSCRIBE: ".O"}

CONNECTOR_PROPERTIES: dict[str, dict[ConnectorDirection, dict[str, Support]]] = {
    "fs": {
        PUBLISH: _table(
            "fsname fstype plain header growinginputfile rate blocksize repeatcount maxevents addcsvopcode addcsvflags "
            "noautogenfield dateformat stampformat csvfielddelimiter publishwithupsert",
            "transactional prebuffer ignorecsvparseerrors snapshot configfilesection",
            "cefsyslogprefix",
        ),
        SUBSCRIBE: _table(
            "fsname fstype plain header snapshot collapse rmretdel dateformat maxfilesize periodicity",
            "unbufferedoutputstreams configfilesection rate",
            "hdatfilename",
        ),
    },
    "kafka": {
        PUBLISH: _table(
            "kafkatype",
            "dateformat kafkahostport kafkatopic urlhostport kafkapartition kafkainitialoffset kafkaglobalconfig kafkatopicconfig "
            "useoffsetmsgid transactional blocksize ignorecsvparseerrors kafkaconsumergroupid configfilesection",
            "addcsvopcode addcsvflags noautogenfield csvfielddelimiter publishwithupsert maxevents useclientmsgid stampformat "
            "protofile protomsg avroschemaregistryurl avroschemadefinition avroschemaname "
            "avroschemanoopcode",
        ),
        SUBSCRIBE: _table(
            "kafkatype hotfailover collapse rmretdel csvmsgperevent csvmsgpereventblock",
            "kafkahostport kafkatopic urlhostport kafkapartition kafkaglobalconfig kafkatopicconfig numbufferedmsgs "
            "zookeeperhostport snapshot dateformat useoffsetmsgid configfilesection",
            "csvincludeschema useclientmsgid protofile protomsg "
            "avroschemaregistryurl avroschemadefinition avroschemaname avroschemanoopcode",
        ),
    },
    TOPIC_CLASS: {
        PUBLISH: _table(
            "kafkahostport kafkatopic kafkatype kafkapartition kafkainitialoffset kafkaglobalconfig kafkatopicconfig blocksize "
            "addcsvopcode addcsvflags noautogenfield csvfielddelimiter publishwithupsert dateformat stampformat maxevents "
            "avroschemadefinition avroschemaregistryurl skiplost",
            "urlhostport useoffsetmsgid transactional ignorecsvparseerrors kafkaconsumergroupid configfilesection",
            "useclientmsgid protofile protomsg avroschemaname avroschemanoopcode",
        ),
        SUBSCRIBE: _table(
            "kafkahostport kafkatopic kafkatype kafkapartition kafkaglobalconfig kafkatopicconfig hotfailover collapse rmretdel "
            "dateformat csvmsgperevent csvmsgpereventblock csvincludeschema",
            "urlhostport numbufferedmsgs zookeeperhostport snapshot useoffsetmsgid configfilesection",
            "useclientmsgid protofile protomsg avroschemaregistryurl avroschemadefinition avroschemaname avroschemanoopcode",
        ),
    },
    "lua": _CODE,
    "python": _CODE,
    "timer": {PUBLISH: _table("basetime interval unit label timeformat maxevents", "transactional snapshot configfilesection", "")},
}
"""The properties by class of the connector and its direction. Host and topic of a bus have no effect because the bus is given by
URL when a project is started and topic names follow from the project (SPEC B1); dateformat, because each message carries its
format.
"""


def is_external_topic(connector: Connector) -> bool:
    """Whether a connector of a bus's class names an external topic: it has brokers and a topic, and the topic does not have the
    form of the window's own, `urlhostport....I` (or `.O`).
    """
    topic, prefix = connector.get("kafkatopic").strip(), connector.get("urlhostport").strip()
    is_named = bool(topic and connector.get("kafkahostport").strip())
    if connector.kind not in BUS_KINDS or not is_named:
        return False
    return not (prefix and topic.startswith(f"{prefix}.") and topic.endswith(_SUFFIX[connector.direction]))


def is_bus(connector: Connector) -> bool:
    """Whether a connector denotes the window's own topic on the bus that the project runs on."""
    return connector.kind in BUS_KINDS and not is_external_topic(connector)


def property_class(connector: Connector) -> str:
    """Returns the key of CONNECTOR_PROPERTIES whose table applies to the connector."""
    return TOPIC_CLASS if is_external_topic(connector) else connector.kind


_CLIENT = "hotspare has no client for it; send its messages to a socket with your own program (`hotspare publish ... tcp://:PORT`)"
_CAMERA = "it needs a camera, a microphone or a decoder of recordings"

REFUSED_CLASSES: dict[str, str] = {
    **dict.fromkeys(("mqtt", "rmq", "eventhubs", "mq", "solace", "tibrv", "tervela", "opcua", "modbus", "bacnet", "pi"), _CLIENT),
    **dict.fromkeys(("url", "websocket", "sniffer", "smtp", "cassandra", "cas", "lasr", "db", "hdat", "adapter"), _CLIENT),
    **dict.fromkeys(("videocap", "uvc", "pylon", "audio"), _CAMERA),
}
"""The classes of connectors that hotspare does not run, each with the reason."""

REQUIRED: dict[str, tuple[str, ...]] = {"fs": ("fsname",), "lua": ("code",), "python": ("code",)}
"""The properties, by class, without which a connector cannot start."""

PROPERTY_VALUES: dict[str, frozenset[str]] = {
    "fstype": frozenset({"csv", "json", "xml", "binary"}),
    "kafkatype": frozenset({"binary", "csv", "json", "avro"}),
}
"""The values, in lower case, of properties that choose a format."""

REFUSED_VALUES: dict[tuple[str, str], str] = {
    ("fstype", "hdat"): "its layout is not published; write the file as csv or json",
    ("fstype", "cef"): "log lines are not parsed; convert them to csv or json with your own program",
    ("fstype", "syslog"): "log lines are not parsed; convert them to csv or json with your own program",
}
"""The values, in lower case, of format properties that hotspare does not support, each with the reason."""

NO_EFFECT: dict[str, str] = {
    "transactional": "each event of a message is accepted or rejected on its own",
    "prebuffer": "rows are read while they are published",
    "ignorecsvparseerrors": "a row that cannot be read is a bad event, and reading continues with the next one",
    "destroy": "code keeps no resource open that needs closing",
    "snapshot": "a publisher has none",
    "configfilesection": "files with settings of connectors are not read",
    "unbufferedoutputstreams": "everything up to the file's position is already on disk",
    "rate": "a subscriber writes outputs as soon as they are available",
    "dateformat": "times in messages are numbers or ISO 8601",
    "kafkahostport": "--bus sets the address of the bus",
    "kafkatopic": "topic names follow from --prefix and the window's path",
    "urlhostport": "topic names follow from --prefix and the window's path",
    "kafkapartition": "a topic of a project has one partition",
    "kafkainitialoffset": "a group starts at the topic's first message and continues from the positions of its state",
    "kafkaglobalconfig": "client options are part of the URL of --bus",
    "kafkatopicconfig": "client options are part of the URL of --bus",
    "blocksize": "messages are read in the blocks in which they were published",
    "kafkaconsumergroupid": "positions are kept with the state, not in a consumer group",
    "numbufferedmsgs": "spares hold all uncommitted outputs, without a limit",
    "zookeeperhostport": "--coordination sets the address of coordination",
}
"""The reason why a property has no effect, for the warning about it."""

AS_IT_IS: dict[str, frozenset[str]] = {
    "ignorecsvparseerrors": frozenset({"", "true", "1", "yes"}),
    "kafkapartition": frozenset({"", "0", "-1"}),
    "kafkainitialoffset": frozenset({"", "smallest", "earliest", "0"}),
    "rate": frozenset({"", "0"}),
}
"""By property, the values in lower case that only request hotspare's normal behavior. Other properties use FALSE_TEXTS."""

FALSE_TEXTS: frozenset[str] = frozenset({"", "false", "0", "no", "never"})
"""The values, in lower case, with which an unsupported property requests nothing."""

NO_KEY_COLUMN = "noautogenfield"
"""The property of a connector whose rows lack the key column, because the window generates the key."""

MISSPELLED: dict[str, str] = {"useoffsetmesgid": "useoffsetmsgid", "dataformat": "dateformat"}
"""The names that public projects misspell, with the right ones (SPEC Z27)."""
