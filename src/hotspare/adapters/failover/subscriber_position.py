"""The file beside a subscriber's output that says how far it is: written whole or not at all, after the rows are on disk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hotspare.errors import UsageError

POSITION_SUFFIX = ".position"
_VERSION = 2
_SINCE_2 = ("part", "opened_s", "epoch")


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """`file_bytes` of the output hold everything of `topic` before `offset`; what lies beyond is written again.

    `form` names the options that shape the rows. `sequence` is that of the last row seen, 0 for none; `begun` says whether the
    snapshot that opens the file, if it has one, is in it; `update_open` whether that row was an update block whose delete follows.
    `part`, from 1, counts the files of an output that rotates, `opened_s` is when it was begun (since 1970); `epoch` is that of the
    newest turn of a group that wrote it, 0 for none.
    """

    topic: str
    form: str
    file_bytes: int = 0
    offset: int = 0
    sequence: int = 0
    begun: bool = False
    update_open: bool = False
    part: int = 1
    opened_s: int = 0
    epoch: int = 0


def position_path(output: Path) -> Path:
    return output.with_name(output.name + POSITION_SUFFIX)


def load_position(output: Path) -> SubscriberPosition | None:
    """What is remembered of `output`; None if nothing is. UsageError where it cannot be read."""
    path = position_path(output)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    return _checked(path, document)


def save_position(output: Path, position: SubscriberPosition) -> None:
    """Atomic and durable: after a crash at any instant the old one or the new one stands there."""
    path = position_path(output)
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(json.dumps({"version": _VERSION, **asdict(position)}, sort_keys=True).encode())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(path: Path, document: Any) -> SubscriberPosition:
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise _unreadable(path, "it is not a position")
    if document["version"] > _VERSION:
        raise _unreadable(path, f"it has version {document['version']}, this program knows {_VERSION}")
    values: dict[str, Any] = {}
    for each in fields(SubscriberPosition):
        value = document.get(each.name, each.default if document["version"] < 2 and each.name in _SINCE_2 else None)
        if type(value).__name__ != each.type or (isinstance(value, int) and value < 0):
            raise _unreadable(path, f"{each.name} is {value!r}")
        values[each.name] = value
    return SubscriberPosition(**values)


def _unreadable(path: Path, detail: str) -> UsageError:
    return UsageError(
        f"file {path} cannot be read as the position of a subscriber",
        detail=detail,
        hint="to begin again, remove it together with the output file",
    )
