"""The shape of a relation's rows, and how unloaded rows are looked up: by key, by condition, and by expiry."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.table.key_pages import AskedBy, Leaves
from hotspare.table.loops import relation as k


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of a row: `width` lanes, of which `keys` identify it and `codes` hold codes of the string table. `conditions`:
    fields by which several rows are found together; a row in which they change arrives again, as the last. `asked`: the only fields
    by which unloaded rows are looked up; if empty, the key and the conditions."""

    width: int
    keys: tuple[int, ...]
    codes: tuple[int, ...]
    conditions: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


def leaves_by_own_time(policy: k.Policy) -> bool:
    """Whether each row expires at its own time (in list or heap), rather than all together or in order of arrival (in a list)."""
    sliding = policy.kind in (k.TIME_SLIDING, k.TIME_LOOKBACK)
    return policy.kind == k.UNTIL or (policy.by_event == 1 and sliding)


def by_what_leaves(policy: k.Policy) -> Leaves:
    """Returns the expiry key of retention over all rows; NEVER without retention, or if each group expires its own rows."""
    if policy.kind in (k.KEEP, k.COUNT_OF_GROUP):
        return Leaves.NEVER
    return Leaves.BY_TIME if leaves_by_own_time(policy) else Leaves.IN_ORDER


def asked_by(shape: Shape, policy: k.Policy) -> AskedBy:
    """Returns how rows of such a relation are looked up."""
    keys, conditions = ((), shape.asked) if shape.asked else (shape.keys, shape.conditions)
    return AskedBy(keys, shape.codes, conditions, by_what_leaves(policy))
