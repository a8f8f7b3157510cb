"""The records of the manifests topic, and the state that they define together. If two engines disagree, the order of their records
decides.

    id/<random>                        the store's random id: the first such record counts
    <group>/claim/<writer>/<n>         a sign of life of the writer, and the pages of other writers that it needs
    <group>/abandoned/<writer>         snapshots that the writer publishes later do not count
    <group>/shot/<writer>              a published snapshot, unless the writer was abandoned before
    <group>/confirmed/<writer>/<random>, <group>/replaced/<writer>/<random>    the first record of either kind decides
    <group>/dropped/<writer>           the snapshot is discarded, whatever other records say
    <group>/doomed/<collector>         pages that the collector is about to delete: a later claim does not hold them

Each key is written once, then by a tombstone: compaction keeps the order of the remaining records, and so their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from hotspare.stores.changelog.topics import TopicRecord
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus


@dataclass(frozen=True, slots=True)
class ChangelogRecord:
    """A decoded record that is not a tombstone. `kind`: the second part of the key; `writer_id`: the third, for `doomed` the id of
    the collector."""

    offset: int
    key: str
    group: str
    kind: str
    writer_id: str
    value: dict[str, Any]
    time_us: int


def changelog_key(group: str, kind: str, *of: str) -> str:
    return "/".join((quote(group, safe=""), kind, *of))


def changelog_value(**fields: object) -> bytes:
    return json.dumps(fields).encode()


class ManifestRecords:
    """The state that the records up to `end` define."""

    def __init__(self) -> None:
        self.end = self._newest_us = 0
        self._said: dict[str, ChangelogRecord] = {}

    def apply_records(self, records: Iterable[TopicRecord]) -> None:
        for record in records:
            self.end, self._newest_us = record.offset + 1, record.time_us
            group, kind, *rest = record.key.split("/")
            if record.value is None:
                self._said.pop(record.key, None)
            else:
                content = json.loads(record.value)
                self._said[record.key] = ChangelogRecord(
                    record.offset, record.key, unquote(group), kind, "/".join(rest[:1]), content, record.time_us
                )

    def identity(self) -> str:
        """Returns the store's id; "" if there is none yet."""
        found = [said for said in self._said.values() if said.group == "id"]
        return min(found, key=lambda said: said.offset).kind if found else ""

    def groups(self) -> set[str]:
        return {said.group for said in self._said.values() if said.kind == "shot"}

    def group(self, name: str) -> GroupRecords:
        found = [said for said in self._said.values() if said.group == name and said.kind and said.writer_id]
        return GroupRecords(name, found, self._newest_us)


@dataclass(slots=True)
class GroupRecords:
    """The records of one group at one moment. `newest_us`: the time of the newest record of all groups, a lower bound of the
    current time."""

    name: str
    all_records: list[ChangelogRecord]
    newest_us: int
    _first: dict[tuple[str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        self._first = {}
        for said in sorted(self.all_records, key=lambda said: -said.offset):
            self._first[said.kind, said.writer_id] = said.offset

    def records_of_kind(self, kind: str) -> list[ChangelogRecord]:
        return sorted((said for said in self.all_records if said.kind == kind), key=lambda said: said.offset)

    def is_confirmed(self, writer: str) -> bool:
        return self._is_before("confirmed", "replaced", writer)

    def is_abandoned(self, writer: str) -> bool:
        return self._is_before("abandoned", "shot", writer)

    def is_discarded(self, shot: ChangelogRecord) -> bool:
        """Whether the snapshot is invalid: dropped, published by a writer abandoned before, or replaced before it was confirmed."""
        is_dropped = ("dropped", shot.writer_id) in self._first
        return is_dropped or self.is_abandoned(shot.writer_id) or self._is_before("replaced", "confirmed", shot.writer_id)

    def snapshots_named(self, name: str) -> list[ChangelogRecord]:
        """Returns the valid snapshots of that name; the first one is the current one."""
        found = [said for said in self.records_of_kind("shot") if said.value["name"] == name and not self.is_discarded(said)]
        return sorted(found, key=lambda said: (self.is_confirmed(said.writer_id), said.offset), reverse=True)

    def current(self) -> list[ChangelogRecord]:
        names = {said.value["name"] for said in self.records_of_kind("shot")}
        return [found[0] for name in sorted(names) if (found := self.snapshots_named(name))]

    def info(self, shot: ChangelogRecord) -> SnapshotInfo:
        status = SnapshotStatus.CONFIRMED if self.is_confirmed(shot.writer_id) else SnapshotStatus.CANDIDATE
        told = {name: shot.value[name] for name in ("name", "engine", "order", "written_time_us", "bytes_total")}
        return SnapshotInfo(status=status, **told)

    def pages_to_delete(self) -> set[str]:
        return {page for said in self.records_of_kind("doomed") for page in said.value["pages"]}

    def alive_us(self) -> dict[str, int]:
        """Returns the time in microseconds of the last sign of life of each writer that is not abandoned."""
        found: dict[str, int] = {}
        for said in self.records_of_kind("claim"):
            if ("abandoned", said.writer_id) not in self._first:
                found[said.writer_id] = max(said.time_us, found.get(said.writer_id, 0))
        return found

    def claimed_pages(self) -> set[str]:
        """Returns the pages that writers claim, without those of abandoned writers."""
        claims = (said for said in self.records_of_kind("claim") if ("abandoned", said.writer_id) not in self._first)
        return {page for said in claims for page in said.value["pages"]}

    def _is_before(self, kind: str, other: str, writer: str) -> bool:
        mine, theirs = self._first.get((kind, writer)), self._first.get((other, writer))
        return mine is not None and (theirs is None or mine < theirs)
