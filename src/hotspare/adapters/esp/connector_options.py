"""Converts a connector's properties, as a project writes them, to the options of the file adapters (SPEC I5, I6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hotspare.adapters.changelog_reading import RetentionDeletes, RowChoice, UpdateBlocks
from hotspare.adapters.esp.property_values import (
    FALSE,
    TRUE,
    invalid_property,
    parse_choice_property,
    parse_count_property,
    parse_number_property,
    parse_switch_property,
)
from hotspare.adapters.files.canonical import FileFormat, FlagColumn, InsertOpcode, KeyPresence, OpcodeColumn, RowForm
from hotspare.adapters.files.output_file import Rotation
from hotspare.adapters.files.output_rows import FileStyle, HeaderLine
from hotspare.adapters.files.publisher import PublishOptions
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.files.subscriber import Opening, SubscribeOptions
from hotspare.adapters.time_texts import parse_stamp_unit
from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path_or_url, local_file_path
from hotspare.formats.csv.rows import RowPrefix
from hotspare.model.connectors import REFUSED_VALUES
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.types import Schema

FILE_KIND = "fs"
_TEST_FOLDER = "test_files"
PLAIN = "plain"
_COLUMN_PROPERTIES = ("header", "addcsvopcode", "addcsvflags", "noautogenfield")
"""Properties about the columns of a CSV file; with `plain` its title line names them."""
_CSV_PROPERTIES = (*_COLUMN_PROPERTIES, "csvfielddelimiter")
"""Properties of CSV files: events of other formats name their fields."""


def connector_file(connector: Connector, home: Path) -> Path:
    """Returns the file of a connector, a path or a `file:` URL. A relative path starts at `home`; the file `test_files/NAME` may
    also be at `NAME`. Raises UsageError if the connector names no file, or a URL with another scheme."""
    name = connector.get("fsname")
    if not name:
        raise UsageError(f"connector {connector.name} has no file", hint="set its property fsname")
    path = local_file_path(absolute_path_or_url(name, home))
    flat = path.parent.parent / path.name
    return flat if path.parent.name == _TEST_FOLDER and not path.exists() and flat.exists() else path


def publish_options(
    connector: Connector, schema: Schema | None, source_name: str = "", rows: RowDefaults | None = None
) -> PublishOptions:
    """Returns the options of a publishing fs connector; `rows` are the row defaults of its window. Raises UsageError for an invalid
    value, naming the connector."""
    form = row_form(connector, schema, file_format(connector))
    return PublishOptions(
        form=replace(form, plain=rows or RowDefaults()) if is_plain(connector) else form,
        growth=parse_switch_property(connector, "growinginputfile", Growth.FIXED, Growth.GROWING),
        header_rows=_header_rows(connector),
        rate=parse_number_property(connector, "rate"),
        events_max=parse_count_property(connector, "maxevents"),
        repeats=parse_count_property(connector, "repeatcount"),
        block_rows=parse_count_property(connector, "blocksize"),
        source_name=source_name,
    )


def row_form(connector: Connector, schema: Schema | None, format_: FileFormat) -> RowForm:
    """Returns the form of the rows that a connector publishes. Raises UsageError for an invalid value, naming the connector."""
    return RowForm(
        opcode=parse_switch_property(connector, "addcsvopcode", OpcodeColumn.PRESENT, OpcodeColumn.ABSENT),
        flag=parse_choice_property(
            connector,
            "addcsvflags",
            {"": FlagColumn.PRESENT, "none": FlagColumn.PRESENT, "normal": FlagColumn.NORMAL, "partialupdate": FlagColumn.PARTIAL},
        ),
        insert=parse_switch_property(connector, "publishwithupsert", InsertOpcode.INSERT, InsertOpcode.UPSERT),
        key=parse_switch_property(connector, "noautogenfield", KeyPresence.PRESENT, KeyPresence.ABSENT),
        delimiter=connector.get("csvfielddelimiter", ",") or ",",
        date_format=connector.get("dateformat"),
        stamp_unit=parse_stamp_unit(connector.get("stampformat"), f"property stampformat of connector {connector.name}"),
        schema=schema,
        format=format_,
    )


def subscribe_options(connector: Connector) -> SubscribeOptions:
    """Returns the options of a subscribing fs connector. Raises UsageError for an invalid value, naming the connector."""
    return SubscribeOptions(
        choice=row_choice(connector),
        opening=parse_switch_property(connector, "snapshot", Opening.STREAM, Opening.SNAPSHOT),
        rotation=Rotation(parse_count_property(connector, "maxfilesize"), parse_count_property(connector, "periodicity")),
    )


def row_choice(connector: Connector) -> RowChoice:
    """Returns the choice of outputs that a subscribing connector writes."""
    return RowChoice(
        updates=UpdateBlocks.COLLAPSED
        if is_plain(connector)
        else parse_switch_property(connector, "collapse", UpdateBlocks.PAIRS, UpdateBlocks.COLLAPSED),
        retention_deletes=parse_switch_property(connector, "rmretdel", RetentionDeletes.KEPT, RetentionDeletes.DROPPED),
    )


def is_plain(connector: Connector) -> bool:
    """Whether the connector has the property `plain`: its file is CSV with a title line, or JSON that a subscriber writes.
    Raises UsageError for an invalid value."""
    return parse_choice_property(connector, PLAIN, {**dict.fromkeys(FALSE, False), **dict.fromkeys(TRUE, True)})


def file_style(connector: Connector, prefix: RowPrefix = RowPrefix.EVENT) -> FileStyle:
    """Returns the style of a subscribing fs connector's file. `prefix`: the columns that a plain file needs so that its rows read
    back equal. Raises UsageError for an invalid value."""
    if is_plain(connector):
        return FileStyle.for_plain_files(prefix, connector.get("dateformat"), file_format(connector))
    titles = {**dict.fromkeys(FALSE, HeaderLine.NONE), **dict.fromkeys(TRUE, HeaderLine.NAMES), "full": HeaderLine.FULL}
    header, date_format = parse_choice_property(connector, "header", titles), connector.get("dateformat")
    return FileStyle(header=header, date_format=date_format, format=file_format(connector))


def file_format(connector: Connector) -> FileFormat:
    """Returns the format of a connector's file. Raises UsageError if the format does not exist, or a property has no meaning in
    that format."""
    name = connector.get("fstype", FileFormat.CSV.value).strip().lower() or FileFormat.CSV.value
    formats = {each.value: each for each in FileFormat}
    if reason := REFUSED_VALUES.get(("fstype", name)):
        raise UsageError(f"property fstype of connector {connector.name} is {name!r}, which cannot be used", hint=reason)
    if name not in formats:
        raise invalid_property(connector, "fstype", name, " or ".join(formats))
    idle = {FileFormat.CSV: (), FileFormat.BINARY: (*_CSV_PROPERTIES, "dateformat", "stampformat")}.get(
        formats[name], _CSV_PROPERTIES
    )
    for each in idle:
        if connector.get(each).strip().lower() not in ("none", *FALSE):
            raise UsageError(
                f"property {each} of connector {connector.name} has no effect with fstype {name}: it describes columns of csv",
                hint="leave it out",
            )
    if is_plain(connector):
        _check_plain(connector, formats[name])
    return formats[name]


def _check_plain(connector: Connector, format_: FileFormat) -> None:
    """Raises UsageError for a format, or another property, that cannot be combined with `plain`."""
    publishes = connector.direction is ConnectorDirection.PUBLISH
    if format_ is not FileFormat.CSV and (publishes or format_ is not FileFormat.JSON):
        why = "its events name their fields" if format_ is not FileFormat.BINARY else "its blocks have titles and types"
        raise UsageError(
            f"property {PLAIN} of connector {connector.name} has no effect with fstype {format_.value}: {why}", hint="leave it out"
        )
    for each in _COLUMN_PROPERTIES:
        if connector.get(each).strip().lower() not in ("none", *FALSE):
            raise UsageError(
                f"property {each} of connector {connector.name} has no effect with {PLAIN}: titles name the columns",
                hint="leave it out",
            )


def _header_rows(connector: Connector) -> int:
    if connector.get("header").strip().lower() in ("true", "yes"):
        return 1
    if connector.get("header").strip().lower() in ("false", "no"):
        return 0
    return parse_count_property(connector, "header")
