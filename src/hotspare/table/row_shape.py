"""The shape of a relation's rows, and how unloaded rows are looked up: by key, by condition, and by expiry."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.table.key_filters import ExpiryKey, RowLookups
from hotspare.table.loops import relation as k


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of a row: `width` lanes, of which `keys` identify it and `codes` hold codes of the string table. `conditions`:
    fields by which several rows are found together; an update that changes them makes the row the newest. `unloaded_lookup_fields`:
    the only fields by which unloaded rows are looked up; if empty, the key and the conditions."""

    width: int
    keys: tuple[int, ...]
    codes: tuple[int, ...]
    conditions: tuple[int, ...] = ()
    unloaded_lookup_fields: tuple[int, ...] = ()


def is_expiry_per_row(policy: k.Policy) -> bool:
    """Whether each row expires at its own time (in list or heap), rather than all together or in order of arrival (in a list)."""
    sliding = policy.kind in (k.TIME_SLIDING, k.TIME_LOOKBACK)
    return policy.kind == k.UNTIL or (policy.by_event == 1 and sliding)


def expiry_key_of(policy: k.Policy) -> ExpiryKey:
    """Returns the expiry key of retention over all rows; NEVER without retention, or if each group expires its own rows."""
    if policy.kind in (k.KEEP, k.COUNT_OF_GROUP):
        return ExpiryKey.NEVER
    return ExpiryKey.BY_TIME if is_expiry_per_row(policy) else ExpiryKey.IN_ORDER


def row_lookups_of(shape: Shape, policy: k.Policy) -> RowLookups:
    """Returns the lookups of rows of this shape with the retention `policy`."""
    keys, conditions = ((), shape.unloaded_lookup_fields) if shape.unloaded_lookup_fields else (shape.keys, shape.conditions)
    return RowLookups(keys, shape.codes, conditions, expiry_key_of(policy))
