"""From a connector's properties, as a project writes them, to the options of the file adapters (SPEC I5, I6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from hotspare.adapters.files.canonical import FlagColumn, InsertOpcode, KeyPresence, OpcodeColumn, RowForm
from hotspare.adapters.files.csv_file import Growth
from hotspare.adapters.files.output_file import Rotation
from hotspare.adapters.files.output_rows import FileStyle, HeaderLine
from hotspare.adapters.files.publisher import PublishOptions
from hotspare.adapters.files.subscriber import Opening, SubscribeOptions
from hotspare.adapters.received import RetentionDeletes, RowChoice, UpdateBlocks
from hotspare.errors import Mistake, UsageError
from hotspare.model.connectors import PROPERTY_VALUES
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Schema

FILE_KIND = "fs"
HOME_PROPERTY = "ESP_PROJECT_HOME"
OUTPUT_PROPERTY = "ESP_PROJECT_OUTPUT"
_TEST_FOLDER = "test_files"
_TRUE = ("true", "1", "yes")
_FALSE = ("", "false", "0", "no")
_E = TypeVar("_E", bound=Enum)


def home_properties(project_file: Path, home: Path | None) -> dict[str, str]:
    """What the reserved names in paths stand for: `home`, or the folder of the project's file."""
    folder = str((home or project_file.parent).absolute())
    return {HOME_PROPERTY: folder, OUTPUT_PROPERTY: folder}


def connector_file(connector: Connector, home: Path) -> Path:
    """The file of a connector. A relative name starts at `home`; `test_files/NAME` may also lie beside that folder as `NAME`."""
    name = connector.get("fsname")
    if not name:
        raise UsageError(f"connector {connector.name} names no file", hint="give it the property fsname")
    path = home / name
    flat = path.parent.parent / path.name
    return flat if path.parent.name == _TEST_FOLDER and not path.exists() and flat.exists() else path


def publish_options(connector: Connector, schema: Schema | None, source_name: str = "") -> PublishOptions:
    """Options of a publishing fs connector. UsageError for a value that cannot be used, naming the connector."""
    _check_type(connector)
    form = RowForm(
        opcode=_switch(connector, "addcsvopcode", OpcodeColumn.PRESENT, OpcodeColumn.ABSENT),
        flag=_choice(
            connector,
            "addcsvflags",
            {"": FlagColumn.PRESENT, "none": FlagColumn.PRESENT, "normal": FlagColumn.NORMAL, "partialupdate": FlagColumn.PARTIAL},
        ),
        insert=_switch(connector, "publishwithupsert", InsertOpcode.INSERT, InsertOpcode.UPSERT),
        key=_switch(connector, "noautogenfield", KeyPresence.PRESENT, KeyPresence.ABSENT),
        delimiter=connector.get("csvfielddelimiter", ",") or ",",
        date_format=connector.get("dateformat"),
        schema=schema,
    )
    return PublishOptions(
        form=form,
        growth=_switch(connector, "growinginputfile", Growth.FIXED, Growth.GROWING),
        header_rows=_header_rows(connector),
        rate=_number(connector, "rate"),
        events_max=_count(connector, "maxevents"),
        repeats=_count(connector, "repeatcount"),
        block_rows=_count(connector, "blocksize"),
        source_name=source_name,
        begin=_count(connector, "begin") if connector.get("begin").strip() else None,
    )


def subscribe_options(connector: Connector) -> SubscribeOptions:
    """Options of a subscribing fs connector. UsageError for a value that cannot be used, naming the connector."""
    _check_type(connector)
    return SubscribeOptions(
        choice=RowChoice(
            updates=_switch(connector, "collapse", UpdateBlocks.PAIRS, UpdateBlocks.COLLAPSED),
            retention_deletes=_switch(connector, "rmretdel", RetentionDeletes.KEPT, RetentionDeletes.DROPPED),
        ),
        opening=_switch(connector, "snapshot", Opening.STREAM, Opening.SNAPSHOT),
        rotation=Rotation(_count(connector, "maxfilesize"), _count(connector, "periodicity")),
    )


def file_style(connector: Connector) -> FileStyle:
    """How a subscribing fs connector writes its file. UsageError for a value that cannot be used."""
    titles = {**dict.fromkeys(_FALSE, HeaderLine.NONE), **dict.fromkeys(_TRUE, HeaderLine.NAMES), "full": HeaderLine.FULL}
    return FileStyle(header=_choice(connector, "header", titles), date_format=connector.get("dateformat"))


def connector_mistakes(connector: Connector, schema: Schema) -> tuple[Mistake, ...]:
    """Every value of a file connector that its adapter would refuse at its start, so that a project says so when it is loaded.

    What holds a reference to a project property that is not set is passed over, and so are formats, which the model checks itself.
    """
    if connector.kind != FILE_KIND:
        return ()
    found = []
    for name, value in connector.properties:
        if name in PROPERTY_VALUES or "@" in value:
            continue
        alone = dataclasses.replace(connector, properties=((name, value),))
        try:
            if connector.direction is ConnectorDirection.PUBLISH:
                publish_options(alone, schema)
            else:
                subscribe_options(alone)
                file_style(alone)
        except UsageError as error:
            found.append(Mistake(connector.place, error.message, error.hint))
    return tuple(found)


def _check_type(connector: Connector) -> None:
    kind = connector.get("fstype", "csv").strip().lower()
    if kind != "csv":
        raise _wrong(connector, "fstype", kind, "csv")


def _header_rows(connector: Connector) -> int:
    if connector.get("header").strip().lower() in ("true", "yes"):
        return 1
    if connector.get("header").strip().lower() in ("false", "no"):
        return 0
    return _count(connector, "header")


def _switch(connector: Connector, name: str, off: _E, on: _E) -> _E:
    return _choice(connector, name, {**dict.fromkeys(_FALSE, off), **dict.fromkeys(_TRUE, on)})


_V = TypeVar("_V")


def _choice(connector: Connector, name: str, values: Mapping[str, _V]) -> _V:
    text = connector.get(name).strip().lower()
    if text not in values:
        raise _wrong(connector, name, text, " or ".join(value for value in values if value))
    return values[text]


def _count(connector: Connector, name: str) -> int:
    text = connector.get(name).strip()
    if text and not (text.isascii() and text.isdigit()):
        raise _wrong(connector, name, text, "a whole number from 0 on")
    return int(text or 0)


def _number(connector: Connector, name: str) -> float:
    text = connector.get(name).strip()
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise _wrong(connector, name, text, "a number from 0 on")
    return value


def _wrong(connector: Connector, name: str, text: str, wanted: str) -> UsageError:
    return UsageError(f"property {name} of connector {connector.name} is {text!r}", hint=f"use {wanted}")
