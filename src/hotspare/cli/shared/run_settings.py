"""Reads the settings file of `hotspare run`, and parses the times and form of snapshots in `--snapshots` (SPEC G8, G9, H4).
The settings file maps names of options to values. Its values become the defaults of the options, so an option on the command
line overrides them, and the command itself declares and converts both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.base.choices import SnapshotForm
from hotspare.base.errors import Place, UsageError
from hotspare.base.places import absolute_path, absolute_path_or_url
from hotspare.cli.shared.places import PATH
from hotspare.cli.shared.values import SPARK_PATH_SETTINGS, STATE_PANEL, parse_code_memory, parse_memory_option

if TYPE_CHECKING:
    from hotspare.model.frontends.yaml.tree import Node
    from hotspare.model.mistakes import Mistakes

_SETTINGS_BYTES_MAX = 1 << 20
_COMMAND_LINE_ONLY = ("bus", "coordination", "store", "restore", "restart", "http", "settings", "help")
"""The options that a settings file may not set: URLs may contain passwords, and differ between machines; the parent process,
which `restart` and `http` concern, reads no file."""
_PATHS = ("home", "page-folder")
_PAIRS = ("set", "conf")

SnapshotsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--snapshots",
        metavar="WHEN",
        help="Write snapshots every '5 seconds' (default), every '1000 events', at 'cron 30 4 * * *' (UTC), or off; "
        "full or incremental; with 'priority N'. May be repeated.",
        rich_help_panel=STATE_PANEL,
    ),
]


def settings_file_option(help_: str, **declared: Any) -> Any:
    """Declares an option that only the settings file may give: the help does not list it, and the command line refuses it
    (`cli.main`)."""
    return typer.Option(help=help_, hidden=True, **declared)


def _as_defaults(context: typer.Context, file: Path | None) -> Path | None:
    if file is not None:
        context.default_map = read_settings(file, context)
    return file


SettingsOption = Annotated[
    Path | None,
    typer.Option(
        help="Read options by name from this YAML file; the command line overrides it (docs/commands.md).",
        is_eager=True,
        callback=_as_defaults,
        **PATH,
    ),
]


def read_settings(file: Path, context: typer.Context) -> dict[str, Any]:
    """Returns the values of the file by parameter of the context's command, in the form in which its command line has them.
    Relative paths are relative to the file's folder. Raises UsageError with all errors of the file, each with its line. No message
    shows a value of `set`, `bind` or `conf`, which may be a password.
    """
    from hotspare.model.frontends.yaml.tree import MappingNode, parse_tree
    from hotspare.model.mistakes import Mistakes
    from hotspare.model.names import did_you_mean, one_of

    found = Mistakes()
    root = parse_tree(_text_of(file), str(file), found)
    if root is not None and not isinstance(root, MappingNode):
        found.add(root.place, "settings are a mapping", "write one `NAME: VALUE` in each line, such as lease-ms: 2000")
    entries = root if isinstance(root, MappingNode) else MappingNode(Place(str(file)))
    options = {each.opts[0].removeprefix("--"): each for each in context.command.params if each.param_type_name == "option"}
    names = [name for name in options if name not in _COMMAND_LINE_ONLY]
    values: dict[str, Any] = {}
    for name, node in entries.values.items():
        if name in _COMMAND_LINE_ONLY:
            found.add(entries.places[name], f"{name} is not a setting", f"give it on the command line: --{name}")
        elif name not in names:
            found.add(entries.places[name], f"setting {name!r} does not exist", did_you_mean(name, names) or one_of(names))
        elif (value := _value(name, node, file.parent, found)) is not None:
            values[str(options[name].name)] = value
            if problem := _problem(name, options[name], value, context):
                found.add(node.place, f"{name}: {problem.message}", problem.hint)
    if found:
        mistakes = "\n  ".join(map(str, found.mistakes))
        raise UsageError(f"settings file {file} cannot be used", detail=mistakes)
    return values


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(_SETTINGS_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"settings file {file} cannot be read", detail=error.strerror or str(error)) from error
    if len(data) > _SETTINGS_BYTES_MAX:
        raise UsageError(f"settings file {file} is larger than {_SETTINGS_BYTES_MAX >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"settings file {file} is not UTF-8", detail=f"byte {error.start} is not") from error


def _value(name: str, node: Node, folder: Path, found: Mistakes) -> str | list[str] | None:
    """Returns the text of a setting, or the texts of one that may be repeated; None after an error."""
    from hotspare.model.frontends.yaml.tree import ListNode, TextNode

    if name in _PAIRS:
        try:
            return [f"{each}={_absolute_spark_path(each, value, folder)}" for each, value in _pairs(name, node, found).items()]
        except UsageError as error:
            found.add(node.place, f"{name}: {error.message}", error.hint)
            return None
    if name == "bind":
        return list(_bindings(node, found))
    if name == "snapshots" and isinstance(node, ListNode) and all(isinstance(each, TextNode) for each in node.items):
        return [each.value for each in node.items if isinstance(each, TextNode)]
    if not isinstance(node, TextNode):
        found.add(node.place, f"{name} is not a single value", "write one text or number")
        return None
    if name in _PATHS:
        return str(absolute_path(node.value, folder))
    return [node.value] if name == "snapshots" else node.value


def _pairs(name: str, node: Node, found: Mistakes) -> dict[str, str]:
    from hotspare.model.frontends.yaml.values import places_and_texts

    texts = places_and_texts(node, name, found)
    for each, text in texts.items():
        if not each.strip() or "=" in each:
            found.add(text.place, f"{name}: a name is empty or has a '='", "write NAME: VALUE")
    return {each: text.value for each, text in texts.items()}


def _bindings(node: Node, found: Mistakes) -> Iterator[str]:
    from hotspare.model.frontends.yaml.tree import MappingNode

    if not isinstance(node, MappingNode):
        found.add(node.place, "bind is not a mapping", "write {CONNECTOR: {NAME: VALUE}}")
        return
    for connector, values in node.values.items():
        if not connector.strip() or ":" in connector:
            found.add(node.places[connector], "bind: the name of a connector is empty or has a ':'", "write QUERY/WINDOW/NAME")
        yield from (f"{connector}:{name}={value}" for name, value in _pairs(f"bind: {connector}", values, found).items())


def _absolute_spark_path(name: str, value: str, folder: Path) -> str:
    return ",".join(absolute_path_or_url(each, folder) for each in value.split(",")) if name in SPARK_PATH_SETTINGS else value


def _problem(name: str, option: Any, value: str | list[str], context: typer.Context) -> UsageError | None:
    """Returns the error that the command line would report for the value; None for a valid one."""
    try:
        option.process_value(context, value)
        if name == "snapshots":
            snapshot_settings(value)
        elif name == "memory":
            parse_memory_option(str(value), None)
        elif name == "code-memory":
            parse_code_memory(str(value))
    except typer.BadParameter as error:
        return UsageError(error.message)
    except UsageError as error:
        return UsageError(error.message.removeprefix(f"--{name} ").removeprefix(f"{name} "), hint=error.hint)
    return None


_HINT = "write '10 seconds', '1000 events', 'cron 30 4 * * *', off, full, incremental or 'priority 2'"
_EVENTS = re.compile(r"(\d{1,12}) events?")
_PRIORITY = re.compile(r"priority (\d{1,6})")


def snapshot_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of `GroupSettings` that the texts of `--snapshots` set, by name. If a text sets a time of snapshots, the
    default interval is off. Raises UsageError for texts that are unknown or contradict each other."""
    found: dict[str, Any] = {}
    for text in texts:
        for name, value in _read(" ".join(text.split())).items():
            if found.setdefault(name, value) != value:
                raise UsageError(f"--snapshots {text!r} contradicts an earlier one", hint="give each kind once")
    whens = {"snapshot_interval_ms", "snapshot_events", "snapshot_cron"} & set(found)
    if found.get("snapshot_interval_ms") == 0 and len(whens) > 1:
        raise UsageError("--snapshots off contradicts the others", hint="leave one out")
    return {"snapshot_interval_ms": 0, **found} if whens else found


def _read(text: str) -> dict[str, Any]:
    from hotspare.model.durations import parse_duration

    if text == "off":
        return {"snapshot_interval_ms": 0}
    if text in (each.value for each in SnapshotForm):
        return {"snapshot_form": SnapshotForm(text)}
    if text.startswith("cron "):
        return {"snapshot_cron": text.removeprefix("cron ")}
    if match := _EVENTS.fullmatch(text):
        return {"snapshot_events": _positive(int(match[1]), text)}
    if match := _PRIORITY.fullmatch(text):
        return {"snapshot_priority": int(match[1])}
    try:
        return {"snapshot_interval_ms": _positive(parse_duration(text) // 1_000, text)}
    except ValueError:
        raise UsageError(f"--snapshots {text!r} cannot be read", hint=_HINT) from None


def _positive(count: int, text: str) -> int:
    if not count:
        raise UsageError(f"--snapshots {text!r} is too often", hint="a snapshot takes milliseconds; `off` takes none")
    return count
