"""The position file next to a subscriber's output: written atomically, after the rows are on disk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from hotspare.base.errors import UsageError

POSITION_SUFFIX = ".position"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """The position of the output in one partition of its topic: everything before `offset`, and the first `taken` rows of the
    message there. `sequence` is the sequence of the last row read, 0 for none. `update_open`: whether that row was an update block
    whose delete follows."""

    offset: int = 0
    sequence: int = 0
    update_open: bool = False
    taken: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """The position of an output: its first `file_bytes` hold everything of `topic` before `places`, one per partition. Bytes after
    that are rewritten.

    `form` names the options that shape the rows. `begun`: whether the file contains its opening snapshot, if it has one. `part`,
    from 1, counts the files of an output that rotates; `opened_s` is when the current one was begun (since 1970). `epoch` is the
    epoch of the newest turn that wrote the file, 0 without a group.
    """

    topic: str
    form: str
    file_bytes: int = 0
    places: tuple[PartitionPosition, ...] = (PartitionPosition(),)
    begun: bool = False
    part: int = 1
    opened_s: int = 0
    epoch: int = 0

    def with_partition_place(self, index: int, place: PartitionPosition) -> SubscriberPosition:
        """Returns the position with `place` for the partition at `index`."""
        return replace(self, places=(*self.places[:index], place, *self.places[index + 1 :]))


def position_path(output: Path) -> Path:
    return output.with_name(output.name + POSITION_SUFFIX)


def load_position(output: Path) -> SubscriberPosition | None:
    """Returns the position of `output`; None if it has none. Raises UsageError if it cannot be read."""
    path = position_path(output)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    return _checked(path, document)


def save_position(output: Path, position: SubscriberPosition) -> None:
    """Writes the position, atomically and durably: after a crash at any time the file holds the old or the new one."""
    path = position_path(output)
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(json.dumps({"version": _VERSION, **asdict(position)}, sort_keys=True).encode())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checked(path: Path, document: Any) -> SubscriberPosition:
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise _unreadable(path, "it is not an object with a version")
    if document["version"] != _VERSION:
        raise _unreadable(path, f"it has version {document['version']}; this release reads version {_VERSION}")
    places = document.get("places")
    if not isinstance(places, list) or not places or not all(isinstance(place, dict) for place in places):
        raise _unreadable(path, f"places is {places!r}: not a list of objects")
    read = tuple(PartitionPosition(**_values(path, place, PartitionPosition)) for place in places)
    return SubscriberPosition(**_values(path, document, SubscriberPosition), places=read)


def _values(path: Path, document: dict[str, Any], class_: type[PartitionPosition] | type[SubscriberPosition]) -> dict[str, Any]:
    """Returns the fields of `class_` except `places`, by name, from `document`. Raises UsageError for a missing field, another
    type or a negative number."""
    values: dict[str, Any] = {}
    for each in fields(class_):
        if each.name == "places":
            continue
        value = document.get(each.name)
        if type(value).__name__ != each.type or (isinstance(value, int) and value < 0):
            raise _unreadable(path, f"{each.name} is {value!r}: invalid value")
        values[each.name] = value
    return values


def _unreadable(path: Path, detail: str) -> UsageError:
    return UsageError(
        f"file {path} cannot be read as the position of a subscriber",
        detail=detail,
        hint="to start over, remove it together with the output file",
    )
