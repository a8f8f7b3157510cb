"""Reads the transport configuration of the adapters that hotspare replaces (SPEC I8), and reports settings without effect.

    kafka { hostport = "..."  globalconfig = "name=value;..."  partition = "0"  initialoffset = "smallest"  metatopic = "..." }
    sas { hotfailover = true  zookeeperhostport = "..."  failovergroup = "..."  dateformat = "..." }

An existing file is read unchanged. Settings that have no effect, are misspelled or unknown are reported by name, with their line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hotspare.adapters.esp.client_options import client_options, kafka_url
from hotspare.base.errors import UsageError

CONFIG_BYTES_MAX = 1 << 20
_OPENING = re.compile(r"\s*([A-Za-z]+)?\s*(\{)?\s*")
_SETTING = re.compile(r"""\s*([A-Za-z]+)\s*=\s*(?:"([^"]*)"|([^\s"#}]*))\s*""")
_SECTIONS = ("kafka", "sas")
_TRUE, _FALSE = ("true", "1", "yes"), ("", "false", "0", "no")
_MISSPELLED = {"dataformat": "dateformat"}


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """The settings of a configuration. `coordination_url` and `group` are "" without hot fail-over. `notes`: a sentence for each
    setting that has no effect or was corrected."""

    bus_url: str = ""
    coordination_url: str = ""
    group: str = ""
    meta_topic: str = ""
    partition: int = 0
    date_format: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Setting:
    section: str
    name: str
    value: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.name} of {self.section}"


def load_transport_config(path: Path) -> TransportConfig:
    """Reads a configuration file. Raises UsageError if it cannot be read, or a value is invalid."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        if len(data) > CONFIG_BYTES_MAX:
            raise UsageError(f"file {path} has more than {CONFIG_BYTES_MAX} bytes", hint="name the configuration of an adapter")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"file {path} cannot be read", detail=str(error)) from error
    return read_transport_config(text, str(path))


def read_transport_config(text: str, name: str) -> TransportConfig:
    """Returns the settings of a text (as `load_transport_config`). `name` identifies the text in errors."""
    notes: list[str] = []
    known: dict[tuple[str, str], _Setting] = {}
    for each in _settings(text, name):
        meant = _MISSPELLED.get(each.name, each.name)
        if meant != each.name:
            notes.append(f"{each} is read as {meant}")
        if (each.section, meant) not in _MEANINGS:
            notes.append(f"{each} is unknown and has no effect")
        elif (each.section, meant) in known:
            raise _invalid_setting(name, each, "is set twice", "leave one out")
        else:
            known[each.section, meant] = each
    values = {key: setting.value for key, setting in known.items()}
    for key, setting in known.items():
        note = _MEANINGS[key](setting.value)
        if note:
            notes.append(f"{setting} {note}")
    is_hot = _switch(known.get(("sas", "hotfailover")), name)
    return TransportConfig(
        bus_url=_bus_url(values),
        coordination_url=_url("zookeeper", values.get(("sas", "zookeeperhostport"), "")) if is_hot else "",
        group=values.get(("sas", "failovergroup"), "") if is_hot else "",
        meta_topic=values.get(("kafka", "metatopic"), ""),
        partition=_partition(known.get(("kafka", "partition")), name),
        date_format=values.get(("sas", "dateformat"), "").strip("'"),
        notes=tuple(notes),
    )


def _settings(text: str, name: str) -> Iterator[_Setting]:
    """Yields the settings in order. A section begins with its name and a brace, on one line or two."""
    section, pending = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        rest = line
        while rest.strip() and not rest.lstrip().startswith("#"):
            setting = _SETTING.match(rest)
            if section and rest.lstrip().startswith("}"):
                section, rest = "", rest.lstrip()[1:]
            elif section and setting is not None:
                quoted, bare = setting.group(2), setting.group(3)
                yield _Setting(section, setting.group(1).lower(), quoted if quoted is not None else bare, number)
                rest = rest[setting.end() :]
            elif not section and (opening := _OPENING.match(rest)) and opening.end():
                pending = (opening.group(1) or pending).lower()
                if pending not in _SECTIONS:
                    what = f"{pending!r} is not a section" if pending else "a section has no name"
                    raise UsageError(f"{name}:{number}: {what}", hint="use section kafka or sas")
                section, rest = pending if opening.group(2) else "", rest[opening.end() :]
            else:
                raise UsageError(f"{name}:{number}: {rest.strip()[:60]!r} cannot be parsed", hint='write name = "value"')
    if section:
        raise UsageError(f"{name}: section {section} is not closed", hint="end it with }")


def _invalid_setting(name: str, setting: _Setting, what: str, hint: str) -> UsageError:
    return UsageError(f"{name}: {setting} {what}", hint=hint)


def _switch(setting: _Setting | None, name: str) -> bool:
    text = "" if setting is None else setting.value.lower()
    if setting is not None and text not in (*_TRUE, *_FALSE):
        raise _invalid_setting(name, setting, f"is {setting.value!r}: invalid value", "use true or false")
    return text in _TRUE


def _partition(setting: _Setting | None, name: str) -> int:
    """Returns the number of the partition. -1, which means all, is partition 0: a topic of these adapters has one partition."""
    text = "0" if setting is None else setting.value.strip()
    if setting is not None and not re.fullmatch(r"-1|[0-9]{1,6}", text):
        raise _invalid_setting(name, setting, f"is {setting.value!r}: invalid value", "use the number of a partition")
    return max(0, int(text))


def _bus_url(values: dict[tuple[str, str], str]) -> str:
    return kafka_url(values.get(("kafka", "hostport"), ""), client_options(values.get(("kafka", "globalconfig"), "")))


def _url(scheme: str, hosts: str) -> str:
    return f"{scheme}://{hosts.strip()}" if hosts.strip() else ""


def _silent(value: str) -> str:
    return ""


def _no_effect(reason: str) -> Callable[[str], str]:
    return lambda value: f"has no effect: {reason}"


def _initial_offset(value: str) -> str:
    if value.strip().lower() in ("smallest", "earliest", "0", ""):
        return ""
    return f"is {value!r}, which has no effect: an adapter continues where it stopped, and begins with the oldest message"


_MEANINGS: dict[tuple[str, str], Callable[[str], str]] = {
    ("kafka", "hostport"): _silent,
    ("kafka", "globalconfig"): _silent,
    ("kafka", "partition"): _silent,
    ("kafka", "initialoffset"): _initial_offset,
    ("kafka", "metatopic"): _silent,
    ("kafka", "groupid"): _no_effect("the position is stored with the messages or next to the file"),
    ("sas", "hotfailover"): _silent,
    ("sas", "zookeeperhostport"): _silent,
    ("sas", "failovergroup"): _silent,
    ("sas", "numbufferedmsgs"): _no_effect("no messages are buffered, since the successor reads its position from the topic"),
    ("sas", "dateformat"): _silent,
}
"""The known settings by section and name. Each function returns a note about the setting's value for the user, "" for none."""
