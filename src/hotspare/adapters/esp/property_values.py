"""Values of connector properties: counts, numbers, switches and choices. An error for an invalid value names its connector."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from hotspare.base.errors import UsageError
from hotspare.model.project import Connector

TRUE = ("true", "1", "yes")
FALSE = ("", "false", "0", "no")
_E = TypeVar("_E", bound=Enum)
_V = TypeVar("_V")


def parse_switch_property(connector: Connector, name: str, off: _E, on: _E) -> _E:
    return parse_choice_property(connector, name, {**dict.fromkeys(FALSE, off), **dict.fromkeys(TRUE, on)})


def parse_choice_property(connector: Connector, name: str, values: Mapping[str, _V]) -> _V:
    text = connector.get(name).strip().lower()
    if text not in values:
        raise invalid_property(connector, name, text, " or ".join(value for value in values if value))
    return values[text]


def parse_count_property(connector: Connector, name: str) -> int:
    text = connector.get(name).strip()
    if text and not (text.isascii() and text.isdigit()):
        raise invalid_property(connector, name, text, "a whole number of at least 0")
    return int(text or 0)


def parse_number_property(connector: Connector, name: str) -> float:
    text = connector.get(name).strip()
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise invalid_property(connector, name, text, "a number of at least 0 and below 1e9")
    return value


def invalid_property(connector: Connector, name: str, text: str, wanted: str) -> UsageError:
    return UsageError(f"property {name} of connector {connector.name} is {text!r}: invalid value", hint=f"use {wanted}")
