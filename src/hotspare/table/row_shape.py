"""What rows of a relation look like, and how they are asked for: it follows from that and from who leaves."""

from __future__ import annotations

from dataclasses import dataclass

from hotspare.table.key_pages import AskedBy, Leaves
from hotspare.table.loops import relation as k


@dataclass(frozen=True, slots=True)
class Shape:
    """`width` lanes, of which `keys` identify a row and `codes` hold codes of the string table. `conditions`: by which rows are
    found, several together; a row in which they change is the last to have arrived. `asked`: by which alone rows are asked for that
    a restore left in the store; without, by their key and by the conditions."""

    width: int
    keys: tuple[int, ...]
    codes: tuple[int, ...]
    conditions: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


def leaves_by_own_time(policy: k.Policy) -> bool:
    """Whether rows stand in list or heap. A list of all is for rows that leave together, and for those that leave as they came."""
    sliding = policy.kind in (k.TIME_SLIDING, k.TIME_LOOKBACK)
    return policy.kind == k.UNTIL or (policy.by_event == 1 and sliding)


def by_what_leaves(policy: k.Policy) -> Leaves:
    """By what rows leave that retention ends, as one row of all; of groups each has its own."""
    if policy.kind in (k.KEEP, k.COUNT_OF_GROUP):
        return Leaves.NEVER
    return Leaves.BY_TIME if leaves_by_own_time(policy) else Leaves.IN_ORDER


def asked_by(shape: Shape, policy: k.Policy) -> AskedBy:
    """How rows of such a relation are asked for."""
    keys, conditions = ((), shape.asked) if shape.asked else (shape.keys, shape.conditions)
    return AskedBy(keys, shape.codes, conditions, by_what_leaves(policy))
