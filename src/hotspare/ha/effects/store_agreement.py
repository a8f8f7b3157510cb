"""Makes the engines of a group agree on one store: its random id is a fact of the group, compared when an engine joins.

Otherwise a folder that is not shared, or whose file system is not mounted, would go unnoticed until a spare finds no snapshot.
Facts never change; when a group moves to another store, the next of the facts `store-0`, `store-1`, ... names it.
"""

from __future__ import annotations

from hotspare.base.choices import OtherStore
from hotspare.base.errors import StateError, StoreError
from hotspare.coordination.contract import Coordination
from hotspare.ha.rules.joining import StoreVerdict, judge_store
from hotspare.stores.contract import Store

_FACT = "store-"


def agree_on_store(coordination: Coordination, store: Store, group: str, other: OtherStore) -> str:
    """Returns the id of `store` after the group agreed on it. Raises StateError if the group's snapshots are in another store,
    unless `other` accepts the move; also if another engine recorded another store meanwhile."""
    own, newest, version = store.identity(), None, 0
    while (known := coordination.fact(group, f"{_FACT}{version}")) is not None:
        version += 1
        newest = known.decode("utf-8", "replace")
    verdict = judge_store(newest, own, other)
    if verdict is StoreVerdict.SAME:
        return own
    if verdict is StoreVerdict.REFUSED:
        raise _refused(group, str(newest), own, len(store.list(group)))
    stands = coordination.set_fact_once(group, f"{_FACT}{version}", own.encode()).decode("utf-8", "replace")
    if stands != own:
        raise _refused(group, stands, own, len(store.list(group)))
    return own


def check_store_unchanged(store: Store, expected: str) -> None:
    """Raises StoreError if the store's id changed since the group agreed on it: a file system was mounted or unmounted."""
    if expected and (found := store.identity()) != expected:
        sentence = f"the store has the id {found}, but had {expected} when the engine started"
        raise StoreError(sentence, hint="check that its file system is mounted")


def _refused(group: str, stands: str, own: str, snapshots: int) -> StateError:
    return StateError(
        f"group {group} keeps its snapshots in another store",
        detail=f"the group's store is {stands}; this engine's is {own}, with {snapshots} snapshots of the group",
        hint="give all engines the same --store, which all their machines reach (a folder must be mounted), with the same key; "
        "if the group's store is lost, stop its engines and start one with --other-store accept",
    )
