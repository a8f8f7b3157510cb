"""Change records of databases, as Debezium writes them: rows stand inside of an envelope, so they match the schema of no table."""

from __future__ import annotations

import json

_ROWS = ("before", "after")
_HINT = (
    "it is a change record of Debezium: give the source window {fields}, and make rows of them in a functional window "
    "(docs/windows/functional.md)"
)


def hint_of_envelope(event: bytes) -> str:
    """Returns what to do with an event that is a change record; "" for any other."""
    try:
        members = json.loads(event)
    except (ValueError, RecursionError):
        return ""
    if _is_envelope(members):
        return _HINT.format(fields="the string fields op, before and after")
    if isinstance(members, dict) and _is_envelope(members.get("payload")):
        return _HINT.format(fields="the string field payload")
    return ""


def _is_envelope(members: object) -> bool:
    return isinstance(members, dict) and "op" in members and any(name in members for name in _ROWS)
