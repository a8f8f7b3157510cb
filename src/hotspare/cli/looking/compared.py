"""Two snapshots compared: which rows came, went and changed, window by window, and what else differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from hotspare.flow.inside import Kept, readable
from hotspare.flow.plan import Plan
from hotspare.formats.csv.rows import CsvStyle, field_texts
from hotspare.host.looking import Looked, Wanted, rows
from hotspare.model.types import Schema


@dataclass(frozen=True, slots=True)
class Changes:
    """Of one part. Each row as CSV text; of a changed one both, the earlier first."""

    kept: Kept
    added: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]
    same: int

    @property
    def is_any(self) -> bool:
        return bool(self.added or self.gone or self.changed)


def changes(plan: Plan, before: Looked, after: Looked, window: str = "") -> Iterator[Changes]:
    """Of every part whose rows can be read, or of those of one window."""
    for kept in readable(plan):
        if window in ("", kept.window):
            wanted = Wanted(kept.window, kept.part)
            yield _compared(kept, rows(plan, before, wanted)[1], rows(plan, after, wanted)[1])


def _compared(kept: Kept, before: pa.Table, after: pa.Table) -> Changes:
    old, new = _by_key(before, kept.schema), _by_key(after, kept.schema)
    return Changes(
        kept,
        added=tuple(row for key, row in new.items() if key not in old),
        gone=tuple(row for key, row in old.items() if key not in new),
        changed=tuple((old[key], row) for key, row in new.items() if key in old and old[key] != row),
        same=sum(old.get(key) == row for key, row in new.items()),
    )


def _by_key(table: pa.Table, schema: Schema) -> dict[str, str]:
    keys = [schema.fields[i].name for i in schema.key_indexes]
    return dict(zip(field_texts(table.select(keys), CsvStyle.EXACT), field_texts(table, CsvStyle.EXACT), strict=True))


def other_differences(before: Looked, after: Looked) -> list[str]:
    """In what the headers differ, as sentences."""
    old, new, found = before.facts, after.facts, []
    if old.project_hash != new.project_hash:
        found.append(f"they are of other projects: {old.project_hash[:12]} and {new.project_hash[:12]}")
    for topic, number in sorted({*old.positions, *new.positions}):
        pair = [facts.positions.get((topic, number)) for facts in (old, new)]
        if pair[0] != pair[1]:
            found.append(f"input {topic}, partition {number}: read up to offset {_said(pair[0])} and {_said(pair[1])}")
    for stream in sorted({*old.streams, *new.streams}):
        streams = [facts.streams.get(stream) for facts in (old, new)]
        if streams[0] != streams[1]:
            texts = ["not there" if each is None else f"{each.sequence} with digest {each.digest}" for each in streams]
            found.append(f"stream {stream}: {texts[0]} and {texts[1]}")
    return found


def _said(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
