"""The agreement on one store per group: an engine with another one is refused when it joins, not when a snapshot is missing (SPEC
G4)."""

from __future__ import annotations

import pytest

from hotspare.base.choices import OtherStore
from hotspare.base.errors import StateError, StoreError
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects.store_agreement import agree_on_store, check_store_unchanged
from hotspare.stores.memory import MemoryStore


def test_a_group_that_moved_to_another_store_says_so_once() -> None:
    coordination, before, now = MemoryCoordination().client(), MemoryStore(), MemoryStore()
    assert agree_on_store(coordination, before, "g", OtherStore.REFUSE) == before.identity()
    with pytest.raises(StateError) as refused:
        agree_on_store(coordination, now, "g", OtherStore.REFUSE)
    assert before.identity() in refused.value.detail
    assert "--other-store accept" in refused.value.hint
    for _ in range(2):
        assert agree_on_store(coordination, now, "g", OtherStore.ACCEPT) == now.identity()
        assert agree_on_store(coordination, now, "g", OtherStore.REFUSE) == now.identity()
    with pytest.raises(StateError, match="another store"):
        agree_on_store(coordination, before, "g", OtherStore.REFUSE)
    assert agree_on_store(coordination, before, "another group", OtherStore.REFUSE) == before.identity()


def test_a_store_that_changes_under_an_engine_gets_no_snapshot() -> None:
    """Its file system was unmounted, and a local folder appears in its place."""
    store = MemoryStore()
    check_store_unchanged(store, store.identity())
    with pytest.raises(StoreError, match="when the engine started"):
        check_store_unchanged(MemoryStore(), store.identity())
