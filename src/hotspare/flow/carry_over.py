"""Turns a snapshot of a project into one of its upgrade; `flow.upgrade` decides which windows are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hotspare.base.errors import SnapshotDamaged, UsageError
from hotspare.flow.numbering import NUMBERING
from hotspare.flow.plan import Node, Plan
from hotspare.flow.seeding import pages_to_seed, seed_windows
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.snapshot import check_origin, encode_page, freeze, restore
from hotspare.flow.upgrade import Fate, Past, StreamFate, Upgrade, compare, kept_pages, stateful_nodes
from hotspare.scripting.shared import SHARED_PAGE as SHARED_PAGE
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable

_UPGRADED = "upgraded_from"
"""Additional key in the header of a carried snapshot. Its value is the hash of the project before the upgrade."""


def carried_over(
    before: Plan, after: Plan, header: bytes, pages: Mapping[str, bytes], shard: int = 0
) -> tuple[bytes, Mapping[str, bytes]]:
    """Turns a snapshot of project `before` into one of project `after` at the same positions; returns its header and its pages.
    Windows that the upgrade keeps retain their state; all others are empty or filled with upstream rows. `shard`: the snapshot's
    shard. Raises UsageError if the upgrade is refused, ProjectChanged, SnapshotFormat or SnapshotDamaged."""
    try:
        content = json.loads(header)
        check_origin(before, content)
        found = compare(before, after, Past.CARRIED, int(content["semantics"]))
        if found.refusals:
            raise UsageError("the project cannot continue from the state of the previous one", detail="\n  ".join(found.refusals))
        carried = _header(before, after, found, content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotDamaged("the snapshot cannot be read", detail=str(error)) from error
    kept_windows = {change.window for change in found.windows if change.fate is Fate.KEPT}
    wanted = {node.page: node for node in stateful_nodes(after)}
    kept = {name for name, node in wanted.items() if node.operator.id in kept_windows}
    empty = {name: _opened(node, shard) for name, node in wanted.items() if name not in kept}
    if after.shared is not None:
        shares_alike = before.project_hash == after.project_hash and int(content["semantics"]) == SEMANTICS
        kept |= {SHARED_PAGE} if shares_alike else frozenset()
        empty |= {} if shares_alike else {SHARED_PAGE: after.shared.open()}
    names = tuple(name for name in pages if _page_of(name) in kept)
    if missing := sorted(kept - set(names)):
        raise SnapshotDamaged("the snapshot has other pages than its project", detail=f"it lacks {missing[0]}")
    strings = StringTable().freeze()
    made = _CarriedPages(pages, names, {name: encode_page(page.freeze(), strings) for name, page in empty.items()})
    if not any(change.fate is Fate.FILLED for change in found.windows):
        return carried, made
    return carried, replace(made, empty={**made.empty, **_seeded_pages(after, carried, made, kept_pages(after, found.windows))})


@dataclass(frozen=True, slots=True)
class _CarriedPages(Mapping[str, bytes]):
    """The pages of a carried snapshot by name. Those named in `kept` are read from `pages` on request; `empty` holds the encoded
    pages of all other windows."""

    pages: Mapping[str, bytes]
    kept: tuple[str, ...]
    empty: Mapping[str, bytes]

    def __getitem__(self, name: str) -> bytes:
        if name in self.empty:
            return self.empty[name]
        if name not in self.kept:
            raise KeyError(name)
        return self.pages[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.kept
        yield from self.empty

    def __len__(self) -> int:
        return len(self.kept) + len(self.empty)


def _seeded_pages(after: Plan, header: bytes, pages: Mapping[str, bytes], kept: frozenset[str]) -> dict[str, bytes]:
    """Returns the encoded pages, including row pages, of the windows that begin with upstream rows. `kept`: names of the pages with
    carried state. Loads only pages on the paths from kept rows to these windows."""
    state = restore(after, header, pages, only=pages_to_seed(after, kept) | {SHARED_PAGE})
    filled = frozenset(seed_windows(after, state, kept))
    return dict(freeze(after, state, only=filled).pages())


def _opened(node: Node, shard: int) -> Page:
    page = node.operator.open()
    node.operator.initialize_shard(page, shard)
    return page


def _page_of(name: str) -> str:
    """Returns the window page to which a page name in a snapshot belongs. For a row page `PAGE/PART/NUMBER` that is `PAGE`, for a
    window's page the name itself."""
    owner, part, number = [*name.rsplit("/", 2), "", ""][:3]
    return owner if part and number.isdecimal() and "#" in owner else name


def _header(before: Plan, after: Plan, found: Upgrade, content: dict[str, Any]) -> bytes:
    topics = {i: after.resolved.sources.index(w) for i, w in enumerate(before.resolved.sources) if w in after.resolved.sources}
    topics[len(before.resolved.sources)] = len(after.resolved.sources)  # the topic of ticks alone
    numbering = content.get(NUMBERING, {})
    streams = {name: at for name, at in content["streams"].items() if found.streams.get(name) is not StreamFate.ENDS}
    for name, shift in numbering.items():
        if shift and name in streams:
            streams[name] = {**streams[name], "sequence": streams[name]["sequence"] + shift}
    unknown = {name for name, shift in numbering.items() if shift is None} | found.realigned
    content |= {
        "project": after.project_hash,
        "semantics": SEMANTICS,
        "passed": [[topics[topic], *rest] for topic, *rest in content["passed"] if topic in topics],
        "clocks": [[topics[topic], *rest] for topic, *rest in content["clocks"] if topic in topics],
        "streams": streams,
        NUMBERING: dict.fromkeys(sorted(unknown & set(after.stream_schemas))),
        _UPGRADED: before.project_hash,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
