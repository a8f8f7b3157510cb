"""Clearing up in the changelog: pages that no snapshot names go by tombstones, then the records that told of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Protocol

from hotspare.stores.changelog.records import GroupRecords, Said, key, value


class Collected(Protocol):
    """What is cleared up: the store, as far as it is needed here."""

    def group(self, name: str) -> GroupRecords: ...
    def say(self, *records: tuple[str, bytes | None]) -> None: ...
    def named(self, shots: Iterable[Said]) -> dict[str, Any]: ...
    def page_keys(self, writers: set[str]) -> set[str]: ...
    def delete_pages(self, keys: Iterable[str]) -> None: ...


def collect(store: Collected, group: str, writer_gone_s: float) -> None:
    """SnapshotFormat where a snapshot has another format: it may name more than can be read, and nothing goes. `writer_gone_s`: as
    in `StoreSettings`."""
    _abandon(store, group, int(writer_gone_s * 1e6))
    _end_superseded(store, group)
    state = store.group(group)
    gone = [shot for shot in state.of("shot") if state.is_gone(shot)]
    pages = store.named(gone)
    candidates = pages.keys() - store.named(_live(state)).keys() - state.claimed()
    if candidates:
        store.say((key(group, "doomed", uuid.uuid4().hex), value(pages=sorted(candidates))))
        state = store.group(group)
        going = candidates - store.named(_live(state)).keys() - state.claimed()
        store.delete_pages(each for name in sorted(going) for each in pages[name].keys)
    claimed = store.group(group).claimed()
    done = [shot for shot in gone if not store.named([shot]).keys() & claimed]
    _forget(store, state, done)
    _spare(store, group)


def _live(state: GroupRecords) -> list[Said]:
    return [shot for shot in state.of("shot") if not state.is_gone(shot)]


def _abandon(store: Collected, group: str, gone_us: int) -> None:
    """End writers that were not heard of for long, and what they wrote in vain. No clock of a host is asked: it might be wrong."""
    state = store.group(group)
    old = {writer for writer, alive_us in state.alive_us().items() if state.newest_us - alive_us > gone_us}
    store.say(*((key(group, "abandoned", writer), value()) for writer in sorted(old)))
    state = store.group(group)
    claims = [said for said in state.of("claim") if said.of not in state.alive_us()]
    dead = {said.of for said in claims} - {shot.of for shot in state.of("shot")}
    if dead:
        store.delete_pages(sorted(store.page_keys(dead)))
    store.say(*((said.key, None) for said in claims))


def _end_superseded(store: Collected, group: str) -> None:
    """Candidates in whose place there is another one of the same name: their writer died before it ended them."""
    state = store.group(group)
    old = [shot for current in state.current() for shot in state.named(current.value["name"])[1:]]
    store.say(*((key(group, "replaced", shot.of, uuid.uuid4().hex), value()) for shot in old))


def _forget(store: Collected, state: GroupRecords, gone: list[Said]) -> None:
    """The snapshot first: what says that it is none goes behind it."""
    writers = {shot.of for shot in gone}
    store.say(*((shot.key, None) for shot in gone))
    there = {shot.of for shot in state.of("shot")} - writers
    kinds = ("confirmed", "replaced", "dropped")
    store.say(*((said.key, None) for kind in kinds for said in state.of(kind) if said.of not in there))


def _spare(store: Collected, group: str) -> None:
    """Words on pages that no record names any more."""
    state = store.group(group)
    named = store.named(state.of("shot")).keys()
    store.say(*((said.key, None) for said in state.of("doomed") if not named & set(said.value["pages"])))
