"""Parses the values of options that several commands share. Every error names the option and shows the right form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import Doubles
from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path_or_url
from hotspare.bus.limits import PARTITIONS_MAX
from hotspare.bus.naming import checked_name
from hotspare.cli.shared.places import PATH
from hotspare.operate.inbound import WindowPath

if TYPE_CHECKING:
    from hotspare.adapters.time_texts import StampUnit
    from hotspare.formats.csv.rows import CsvStyle

ShardsOption = Annotated[
    int, typer.Option(min=1, max=PARTITIONS_MAX, help="Divide the project into this many shards; 1: it is not divided.")
]
StampUnitOption = Annotated[
    str, typer.Option(metavar="UNIT", help="Read numbers in stamps in this unit: seconds, milliseconds or microseconds (default).")
]
DateFormatOption = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="Use this format of dates and stamps (strptime, strftime), as %d.%m.%Y %H:%M:%S; by default numbers or ISO 8601.",
    ),
]
PlainOption = Annotated[
    bool,
    typer.Option("--plain", help="Use CSV with a title line that names the columns, without opcodes and with times in ISO 8601."),
]
PROJECT_PANEL, STATE_PANEL = "Project", "State"
"""The headings, in the help, of options that several commands share."""
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set a property of the project; may be repeated.", rich_help_panel=PROJECT_PANEL
    ),
]
ProjectNameOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="Choose the project of this name if the file has several.", rich_help_panel=PROJECT_PANEL),
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="Replace @ESP_PROJECT_HOME@ and @ESP_PROJECT_OUTPUT@ by this folder; by default by the project file's.",
        rich_help_panel=PROJECT_PANEL,
        **PATH,
    ),
]
DoublesOption = Annotated[
    Doubles,
    typer.Option(
        help="Write doubles with six decimals (fixed), or with as many as are needed to read the same value back (exact)."
    ),
]
SchemaFileOption = Annotated[
    Path | None,
    typer.Option(help="Read the schema from this project file; by default from the bus.", rich_help_panel=PROJECT_PANEL, **PATH),
]
MemoryOption = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Evict cold state of windows beyond this size, such as 512MiB; by default no state is evicted.",
        rich_help_panel=STATE_PANEL,
    ),
]
PageFolderOption = Annotated[
    Path | None,
    typer.Option(
        help="With --memory: write evicted state to this folder on a disk; by default to the one for temporary files.",
        rich_help_panel=STATE_PANEL,
        **PATH,
    ),
]
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_UNITS = " KMGT"
SPARK_PATH_SETTINGS = (
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.local.dir",
    "spark.eventLog.dir",
    "spark.sql.warehouse.dir",
    "spark.checkpoint.dir",
    "spark.kerberos.keytab",
)
"""The Spark settings whose values are paths or URLs, separated by commas. They are made absolute, because Spark's JVM runs in
another folder."""
MEMORY_MIN = 1 << 20


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise _not_of_form(option, text, form)
    return name.strip(), value


def _not_of_form(option: str, text: str, form: str) -> UsageError:
    return UsageError(f"{option} {text!r}: not of the form {form}", hint=f"write {option} {form}")


def parse_stamp_unit_option(text: str) -> StampUnit:
    """Returns the unit that the text of `--stamp-unit` names. Raises UsageError for an unknown one."""
    from hotspare.adapters.time_texts import parse_stamp_unit

    return parse_stamp_unit(text, "--stamp-unit")


def csv_style(doubles: Doubles) -> CsvStyle:
    """Returns the CSV style for the value of `--doubles`."""
    from hotspare.formats.csv.rows import CsvStyle

    return CsvStyle.EXACT if doubles is Doubles.EXACT else CsvStyle.FILE


def refuse_ineffective(asked: Mapping[str, object], why: str, hint: str) -> None:
    """Raises UsageError if any of the options in `asked`, by name, has a true value. `why` is the reason why they have no effect,
    such as `with --topic`."""
    if names := [name for name, said in asked.items() if said]:
        raise UsageError(f"{', '.join(names)} {why} has no effect", hint=hint)


def parse_memory_option(text: str, page_folder: Path | None) -> int:
    """Returns the bytes of --memory, 0 if it is not given. Raises UsageError if it is not a size of at least MEMORY_MIN, or if
    --page-folder is given alone."""
    if not text:
        refuse_ineffective({"--page-folder": page_folder}, "without --memory", "give --memory SIZE, or leave it out")
        return 0
    size = _size_of(text)
    if size < MEMORY_MIN:
        raise UsageError(f"--memory {text!r}: not a size of at least 1 MiB", hint="write --memory 512MiB, or 4GiB")
    return size


CODE_DEADLINE_MS = 10_000
"""The processor time that one call of user code may use by default."""


def parse_code_memory(text: str) -> int:
    """Returns the bytes of the setting `code-memory`, 0 for no limit. Raises UsageError if it is not a size of at least
    MEMORY_MIN."""
    size = _size_of(text)
    if size < MEMORY_MIN and text.strip() not in ("", "0"):
        raise UsageError(f"code-memory {text!r}: not a size of at least 1 MiB", hint="write code-memory: 2GiB, or 0")
    return size


def _size_of(text: str) -> int:
    """Returns the bytes of a size such as 4GiB; 0 for another text."""
    found = _SIZE.fullmatch(text)
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2].upper() or " ")) if found else 0


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """Returns project properties from `NAME=VALUE` texts; for a repeated name, the last value. Raises UsageError for another
    form."""
    return dict(_pair(text, "--set", "NAME=VALUE") for text in texts)


def parse_spark_settings(texts: Sequence[str]) -> dict[str, str]:
    """Returns Spark settings from `NAME=VALUE` texts, with absolute paths; for a repeated name, the last value. Raises UsageError
    for another form."""
    said = dict(_pair(text, "--conf", "NAME=VALUE") for text in texts)
    paths = {name: ",".join(map(absolute_path_or_url, said[name].split(","))) for name in SPARK_PATH_SETTINGS if name in said}
    return {**said, **paths}


def parse_bindings(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns connector properties from `CONNECTOR:NAME=VALUE` texts, by connector and name. Raises UsageError for another form."""
    bound: dict[str, dict[str, str]] = {}
    for text in texts:
        connector, separator, rest = text.partition(":")
        if not separator or not connector.strip():
            raise _not_of_form("--bind", text, "CONNECTOR:NAME=VALUE")
        name, value = _pair(rest, "--bind", "CONNECTOR:NAME=VALUE")
        bound.setdefault(connector.strip(), {})[name] = value
    return bound


def parse_assignments(texts: Sequence[str], option: str, value_form: str) -> dict[str, str]:
    """Returns `CQ/WINDOW=<value_form>` texts as a mapping from window to value. Raises UsageError for another form, or if a window
    occurs twice."""
    values: dict[str, str] = {}
    for text in texts:
        window, value = _pair(text, option, f"CQ/WINDOW={value_form}")
        if window.count("/") != 1 or not value:
            raise _not_of_form(option, text, f"CQ/WINDOW={value_form}")
        if window in values:
            raise UsageError(f"{option} names window {window} twice")
        values[window] = value
    return values


def parse_path_assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Returns `CQ/WINDOW=FILE` texts as a mapping from window to absolute path or URL. Raises UsageError as `parse_assignments`."""
    return {window: absolute_path_or_url(place) for window, place in parse_assignments(texts, option, "FILE").items()}


_ADAPTER_SCHEME = "dfESP://"
_ADAPTER_URL = re.compile(_ADAPTER_SCHEME + r"([^/:?]+):([0-9]{1,5})/([^?]*)(?:\?.*)?")


def topic_prefix(window: str, prefix: str) -> str:
    """Returns the prefix of topic names: `HOST_PORT` for an adapter URL `dfESP://HOST:PORT/...` (SPEC B2), else `prefix`."""
    url = _adapter_url(window)
    return prefix if url is None else f"{url.group(1)}_{url.group(2)}"


def _adapter_url(text: str) -> re.Match[str] | None:
    """Returns a match with host, port and path of an adapter URL; None for another scheme. Raises UsageError for a malformed
    URL."""
    found = _ADAPTER_URL.fullmatch(text)
    if found is None and text.startswith(_ADAPTER_SCHEME):
        raise UsageError(
            f"URL {text!r}: not of the form {_ADAPTER_SCHEME}HOST:PORT/PROJECT/CQ/WINDOW",
            hint=f"write {_ADAPTER_SCHEME}HOST:PORT/PROJECT/CQ/WINDOW",
        )
    return found


def window_path(text: str) -> WindowPath:
    """Returns the path that `PROJECT/CQ/WINDOW`, or an adapter URL with that path, names. Raises UsageError for another form, or a
    name that cannot be part of a topic name."""
    url = _adapter_url(text)
    parts = (text if url is None else url.group(3)).split("/")
    if len(parts) != 3:
        raise _not_of_form("--window", text, "PROJECT/CQ/WINDOW")
    return WindowPath(*(checked_name(part) for part in parts))
