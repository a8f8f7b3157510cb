"""An external database that keeps records for windows (SPEC G13): which server, and how both texts of a project name it.

Records are hashes of Redis in the layout of the StateDB windows of SAS, so that hotspare and SAS read each other's records:

    PREFIX:K1;K2                           hash: the record with this key
    PREFIX:SK:INDEX:V1;V2                  sorted set: the keys of records with these values, by the time at which they expire
    PREFIX:_esp_meta_primarykey_fields_    the fields of the key
    PREFIX:_esp_meta_secondary_indexes_    the secondary indexes and their fields
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from hotspare.model.failover_rules import effective_quality
from hotspare.model.frontends.esp_xml.elements import EXTENSION, ElementShape, shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import first_unprintable
from hotspare.model.project import Publication, Window, WindowId
from hotspare.model.quality import PRECISE

URL = f"{{{EXTENSION}}}url"
"""The attribute of `<statedb>` for a URL that the attributes of SAS cannot express, such as one with `password_file`."""
SERVER_SHAPE: ElementShape = shape(
    f"type cluster hostname port username password database {URL}",
    idle={"keep-alive-ping": "a broken connection is opened again, and its pending requests are repeated"},
)
PREFIX_LENGTH_MAX = 200
_KIND, _PORT = "redis", 6379
_SCHEMES = frozenset({_KIND, "rediss"})
_FALSE = frozenset({"", "false", "0", "no"})
_PREFIX = re.compile(r"[^\s:;]+")


@dataclass(frozen=True, slots=True)
class RecordKeeping:
    """The place where an external database keeps a window's outputs.

    `server`, `prefix`: the URL, and the beginning of the records' keys. `key`: the window's key fields. `fields`: each field of the
    window with its name in the record, in order. `indexes`: names with the fields of the window.

    `ttl_us`: how long a record lives after its event's time, 0 for ever. That time is in `time_field`, or, if that is "", it is the
    append time of its message. The server deletes an expired record `ttl_offset_us` later.
    """

    server: str
    prefix: str
    key: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    ttl_us: int = 0
    ttl_offset_us: int = 0
    time_field: str = ""
    indexes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def record_field(self, name: str) -> str:
        """Returns the record's name for a field of the window."""
        return dict(self.fields).get(name, name)

    @property
    def declaration(self) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
        """The record fields of the key, and of each index, as readers of the records find them in the database."""
        return self._in_records(self.key), {name: self._in_records(fields) for name, fields in self.indexes}

    def _in_records(self, fields: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.record_field, fields))


def read_server(values: EspValues, window: Any) -> str:
    """Returns the URL of the server that the window's `<statedb>` names. Adds a mistake and returns "" unless there is exactly one
    such element."""
    elements = values.checked_children(window, "statedb")
    if len(elements) != 1:
        values.missing(window, "single <statedb>")
        return ""
    element, place = elements[0], values.tree.place(elements[0])
    if url := values.attribute(element, URL):
        return url
    said = {name: values.attribute(element, name) for name in ("type", "cluster", "hostname", "port", "username", "password")}
    if (said["type"] or _KIND).lower() != _KIND:
        values.found.add(place, f"a state database of type {said['type']!r} cannot be used", "use type redis")
    if said["cluster"].lower() not in _FALSE:
        hint = 'write cluster="false", and give the address of one server'
        values.found.add(
            place, "a record and its indexes would be on several servers of a cluster, which no transaction spans", hint
        )
    who = f"{quote(said['username'], safe='')}:{quote(said['password'], safe='')}@" if said["password"] or said["username"] else ""
    database = values.attribute(element, "database") or "0"
    return f"redis://{who}{said['hostname']}:{said['port'] or _PORT}/{database}"


def _database(parts: SplitResult) -> str:
    return parts.path.strip("/") or "0"


def write_server(url: str) -> XmlElement:
    """Returns the element `<statedb>` from which `read_server` returns the same URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return XmlElement("statedb", attributes={"type": _KIND, URL: url})
    said = {
        "type": _KIND,
        "hostname": parts.hostname or "",
        "port": str(port or _PORT),
        "username": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": _database(parts),
    }
    who = f"{quote(said['username'], safe='')}:{quote(said['password'], safe='')}@" if said["password"] or said["username"] else ""
    plain = f"redis://{who}{said['hostname']}:{said['port']}/{said['database']}"
    if plain != url:
        return XmlElement("statedb", attributes={"type": _KIND, URL: url})
    return XmlElement("statedb", attributes={name: text for name, text in said.items() if text})


def check_server(window: Window, server: str, prefix: str, found: Mistakes) -> None:
    """Adds a mistake for an invalid address of the server and for a prefix that could make keys of different records equal. Adds a
    warning for a password in the project."""
    try:
        parts = urlsplit(server)
        is_one = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0 and _database(parts).isdecimal()
    except ValueError:
        is_one = False
    if not is_one or first_unprintable(server):
        hint = "write it redis://host:6379/0"
        found.add(window.place, f"window {window.name} has no state database with a valid address", hint)
    elif parts.password:
        message = f"the password of the state database of window {window.name} is written in the project"
        found.warn(window.place, message, "name a file with it: redis://host:6379/0?password_file=PATH, or password_env=NAME")
    if not _PREFIX.fullmatch(prefix) or first_unprintable(prefix) or len(prefix) > PREFIX_LENGTH_MAX:
        hint = f"use up to {PREFIX_LENGTH_MAX} letters, digits and signs other than blanks, ':' and ';'"
        found.add(window.place, f"window {window.name} has a prefix {prefix[:40]!r} that cannot be used", hint)


def check_stored_stream(window: Window, found: Mistakes) -> None:
    """Adds a mistake if the quality of a window's stream may lose or repeat records, and a warning if its outputs are not
    published."""
    if window.publication is Publication.HIDDEN:
        message = f"window {window.name} writes no records: its outputs are not published"
        found.warn(window.place, message, "leave publish out")
    elif (quality := effective_quality(window)) != PRECISE:
        message = f"window {window.name} has the quality {quality}: records would be lost, or written again"
        found.add(window.place, message, "let its quality be precise")


def check_declarations(writers: Mapping[WindowId, tuple[Window, RecordKeeping]], found: Mistakes) -> None:
    """Checks that writers of the same records declare the same key and indexes: each start replaces the declaration."""
    first: dict[tuple[object, ...], WindowId] = {}
    for window_id, (window, kept) in writers.items():
        other = first.setdefault((*_database_address(kept.server), kept.prefix), window_id)
        if (declared := kept.declaration) != (before := writers[other][1].declaration):
            message = f"windows {other} and {window_id} write records {kept.prefix}: with different declarations: "
            message += f"{_declared(*before)}, and {_declared(*declared)}"
            with found.about(other, window_id):
                found.add(window.place, message, "give one of them another prefix, or both the same key and indexes")


def _declared(key: Sequence[str], indexes: Mapping[str, Sequence[str]]) -> str:
    return ", ".join((f"key {';'.join(key)}", *(f"index {name} of {';'.join(fields)}" for name, fields in indexes.items())))


def _database_address(server: str) -> tuple[object, ...]:
    """Returns host, port and number of the database; only the text itself if it is not a valid address."""
    try:
        parts = urlsplit(server)
        return parts.hostname, parts.port or _PORT, _database(parts)
    except ValueError:
        return (server,)


def check_requesting_stream(window: Window, readers: Iterable[str], found: Mistakes) -> None:
    """Adds a mistake if an output of a window might be answered never or twice. `readers`: the windows that receive the answers."""
    names = ", ".join(readers)
    if window.publication is Publication.HIDDEN:
        message = f"window {window.name} is not published, so no output of it would be answered by {names}"
        found.add(window.place, message, "leave publish out")
    elif (quality := effective_quality(window)) != PRECISE:
        message = f"window {window.name} has the quality {quality}: answers of {names} would be missing, or repeated"
        found.add(window.place, message, "let its quality be precise")


def field_pairs(written: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Returns pairs of a field's name in the window and in the record; an empty second name becomes equal to the first."""
    return tuple((name.strip(), text.strip() or name.strip()) for name, text in written)


class RecordAggregate(Enum):
    """The aggregate over a field of all records that are found."""

    NONE = ""
    """No aggregation: the field's own value."""
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COUNT = "count"


class GeneratedDeletes(Enum):
    """Whether a delete follows each row, so that no window downstream keeps it."""

    NONE = "none"
    DELETES = "deletes"


class AnswerOrigin(Enum):
    INPUT = "input"
    """A field of the event that requests the answer."""
    QUERY = "query"
    """A field of a record that the query found."""


@dataclass(frozen=True, slots=True)
class AnswerField:
    """The origin of a field's value: the field `name` of the event or of a record, as `origin` tells; or the `aggregate` of that
    field over all records found.
    """

    origin: AnswerOrigin
    name: str
    aggregate: RecordAggregate = RecordAggregate.NONE


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """The records that are requested, and the form of an answer.

    `where`: pairs of a field of the requesting event and a record's field with the same value; these form a key, or an index.
    `outputs`: the origin of each field of the window, in order.
    """

    server: str
    prefix: str
    where: tuple[tuple[str, str], ...]
    outputs: tuple[AnswerField, ...]
    generated: GeneratedDeletes = GeneratedDeletes.NONE

    @property
    def is_aggregated(self) -> bool:
        return any(each.aggregate is not RecordAggregate.NONE for each in self.outputs)
