"""The connectors that a project may name and their properties (SPEC I2-I6): which work, which need not, which do not exist yet."""

from __future__ import annotations

from enum import Enum

from hotspare.model.project import ConnectorDirection


class Support(Enum):
    """What hotspare does with a property."""

    IMPLEMENTED = "implemented"
    NO_EFFECT = "accepted, no effect"
    """Its purpose is reached in another way, or it only tunes what does not exist here."""
    MISSING = "not implemented"
    """Would change the events, so it is refused by name."""


def _table(implemented: str, no_effect: str, missing: str) -> dict[str, Support]:
    rows = ((implemented, Support.IMPLEMENTED), (no_effect, Support.NO_EFFECT), (missing, Support.MISSING))
    return {name: support for names, support in rows for name in names.split()}


PUBLISH = ConnectorDirection.PUBLISH
SUBSCRIBE = ConnectorDirection.SUBSCRIBE

CONNECTOR_PROPERTIES: dict[str, dict[ConnectorDirection, dict[str, Support]]] = {
    "fs": {
        PUBLISH: _table(
            "fsname fstype header growinginputfile rate blocksize repeatcount maxevents addcsvopcode addcsvflags noautogenfield "
            "dateformat csvfielddelimiter publishwithupsert begin",
            "transactional prebuffer ignorecsvparseerrors snapshot configfilesection",
            "cefsyslogprefix",
        ),
        SUBSCRIBE: _table(
            "fsname fstype header snapshot collapse rmretdel dateformat maxfilesize periodicity",
            "unbufferedoutputstreams configfilesection rate",
            "hdatfilename",
        ),
    },
    "kafka": {
        PUBLISH: _table(
            "kafkatype",
            "dateformat kafkahostport kafkatopic urlhostport kafkapartition kafkainitialoffset kafkaglobalconfig kafkatopicconfig "
            "useoffsetmsgid transactional blocksize ignorecsvparseerrors kafkaconsumergroupid configfilesection",
            "addcsvopcode addcsvflags noautogenfield csvfielddelimiter publishwithupsert maxevents useclientmsgid "
            "protofile protomsg avroschemaregistryurl avroschemadefinition avroschemaname "
            "avroschemanoopcode",
        ),
        SUBSCRIBE: _table(
            "kafkatype hotfailover",
            "kafkahostport kafkatopic urlhostport kafkapartition kafkaglobalconfig kafkatopicconfig numbufferedmsgs "
            "zookeeperhostport snapshot dateformat useoffsetmsgid configfilesection",
            "collapse rmretdel csvincludeschema csvmsgperevent csvmsgpereventblock useclientmsgid protofile protomsg "
            "avroschemaregistryurl avroschemadefinition avroschemaname avroschemanoopcode",
        ),
    },
}
"""Class of the connector, its direction, its properties. Host and topic of a bus have no effect because the bus is given by URL
when a project is started and topic names follow from the project (SPEC B1); dateformat, because each message says its format."""

PROPERTY_VALUES: dict[str, frozenset[str]] = {
    "fstype": frozenset({"csv"}),
    "kafkatype": frozenset({"binary", "csv", "json", "avro"}),
}
"""Values that exist, in lower case, of properties that choose a format."""

FALSE_TEXTS: frozenset[str] = frozenset({"", "false", "0", "no", "never"})
"""Values with which a missing property asks for nothing."""

MISSPELLED: dict[str, str] = {"useoffsetmesgid": "useoffsetmsgid", "dataformat": "dateformat"}
"""Names that public projects got wrong, with the right ones (SPEC Z27)."""
