"""What becomes of each window and stream where a changed project goes on with the state of the one before it. Pure.

    hotspare upgrade NEW.yaml      compares the project that a group runs with a new one, and says it window by window

A window whose lineage is the same (`hotspare.flow.lineage`) keeps its state; of any other the state is computed anew, from the
topics where they still hold all, else from nothing. A stream of the same lineage goes on with the very outputs that it would have
had, and is compared by digest. In one that changed, and in that of bad events, the new meaning begins behind the newest output
that was committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from hotspare.base.errors import SnapshotDamaged, UsageError
from hotspare.flow.beginning import RowsAhead, begin_with_rows, needing_rows, pages_to_begin_with
from hotspare.flow.lineage import Lineages, lineages
from hotspare.flow.numbering import NUMBERING
from hotspare.flow.plan import Node, Plan, Stage
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.snapshot import check_origin, encode_page, freeze, restore
from hotspare.model.project import WindowId
from hotspare.projects.fingerprint import window_changes
from hotspare.scripting.shared import PAGE as SHARED_PAGE
from hotspare.table.pages import Page
from hotspare.table.strings import StringTable

UPGRADED = "upgraded_from"
"""What the header of a carried snapshot says beside: the hash of the project whose snapshot it was."""


class Past(Enum):
    """What the topics give of the state of a group; but for WHOLE, why nothing is recomputed from them."""

    WHOLE = "all of it"
    CUT = "the topics no longer hold all that came since the group began"
    CARRIED = "the state comes of a snapshot, not of the topics alone"
    UNNOTED = "nobody noted where on the topics the group began"
    UNASKED = "--empty says that nothing is"


class Fate(Enum):
    """What becomes of a window's state."""

    KEPT = "kept"
    NONE = "keeps nothing"
    """It changed, or is new, and has no state."""
    RECOMPUTED = "recomputed from the topics"
    FILLED = "begins with the rows ahead of it"
    """It changed or is new, and has to know what windows that are kept have (`flow.beginning`)."""
    EMPTY = "begins empty"
    GONE = "gone"


class StreamFate(Enum):
    SAME = "goes on unchanged"
    CHANGED = "goes on with what the new project makes of it"
    NEW = "begins"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class WindowChange:
    """`reasons`: why it is not kept, in words."""

    window: WindowId
    fate: Fate
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """From one project to another, in the new one's order of evaluation; what is gone comes last. `refusals`: why it cannot be."""

    windows: tuple[WindowChange, ...]
    streams: Mapping[str, StreamFate]
    new_topics: tuple[WindowId, ...]
    gone_topics: tuple[WindowId, ...]
    refusals: tuple[str, ...] = ()

    @property
    def keeps_all(self) -> bool:
        """Whether nothing changes at all."""
        is_kept = all(each.fate is Fate.KEPT for each in self.windows)
        return is_kept and all(fate is StreamFate.SAME for fate in self.streams.values())

    @property
    def recomputes(self) -> bool:
        return any(each.fate is Fate.RECOMPUTED for each in self.windows)

    @property
    def realigned(self) -> frozenset[str]:
        """Streams whose topics may have other outputs than these: also of a new one, as it was perhaps there once before."""
        return frozenset(name for name, fate in self.streams.items() if fate in (StreamFate.CHANGED, StreamFate.NEW))


def compare(before: Plan, after: Plan, past: Past, semantics: int = SEMANTICS) -> Upgrade:
    """`semantics`: the version of what windows mean that the state of `before` was made with. No state is kept if it is not that
    of this hotspare."""
    old, new = lineages(before), lineages(after)
    unread = _unread(before, after) if past in (Past.WHOLE, Past.UNASKED) else ()
    is_recomputed = past is Past.WHOLE and not unread
    stateful = dict.fromkeys((node.operator.id for node in _stateful(after)), Fate.RECOMPUTED if is_recomputed else Fate.EMPTY)
    anew = {w.id: stateful.get(w.id, Fate.NONE) for w in after.resolved.windows}
    means_the_same = semantics == SEMANTICS
    windows = [
        _changed(before, after, old, new, window, fate) if means_the_same else WindowChange(window, fate, (_MEANS_ELSE,))
        for window, fate in anew.items()
    ]
    needy = {} if is_recomputed else needing_rows(after, _kept_pages(after, windows))
    windows = [replace(each, fate=Fate.FILLED) if each.window in needy else each for each in windows]
    windows = [replace(each, reasons=each.reasons + unread) if each.fate in (Fate.EMPTY, Fate.FILLED) else each for each in windows]
    windows += [WindowChange(w.id, Fate.GONE) for w in before.resolved.windows if w.id not in new.states]
    names = dict.fromkeys([*new.streams, *old.streams])
    return Upgrade(
        windows=tuple(windows),
        streams={name: _stream_fate(old.streams.get(name), new.streams.get(name), semantics) for name in names},
        new_topics=tuple(w for w in after.resolved.sources if w not in before.resolved.sources),
        gone_topics=tuple(w for w in before.resolved.sources if w not in after.resolved.sources),
        refusals=(*_refusals(before, after), *_without_rows(after, needy, unread or (past.value,))),
    )


_MEANS_ELSE = "windows mean something else in this hotspare"


def _changed(before: Plan, after: Plan, old: Lineages, new: Lineages, window: WindowId, made_anew: Fate) -> WindowChange:
    if window not in old.states:
        return WindowChange(window, made_anew, ("it is new",))
    if old.states[window] == new.states[window]:
        return WindowChange(window, Fate.KEPT)
    own = window_changes(before.resolved.window(window), after.resolved.window(window))
    reasons = tuple(sentence.partition(": ")[2] for sentence in own)
    at = after.resolved.window(window)
    ahead = dict.fromkeys((*(source for source, _ in at.inputs), *at.forwarded))
    reasons += tuple(f"it follows {source}, which changed" for source in ahead if old.states.get(source) != new.states[source])
    return WindowChange(window, made_anew, reasons or ("its code changed",))


def _unread(before: Plan, after: Plan) -> tuple[str, ...]:
    """Why topics cannot be read from their beginning by the new project, though they hold all: it would refuse the events there."""
    both = [window for window in after.resolved.sources if window in before.resolved.sources]
    added = [w for w in both if not {*after.resolved.schema(w).fields} <= {*before.resolved.schema(w).fields}]
    return tuple(f"what stands on the topic of {window} lacks fields that it has now" for window in added)


def _stream_fate(old: str | None, new: str | None, semantics: int) -> StreamFate:
    if old is None:
        return StreamFate.NEW
    if new is None:
        return StreamFate.ENDS
    return StreamFate.SAME if old == new and semantics == SEMANTICS else StreamFate.CHANGED


def _refusals(before: Plan, after: Plan) -> Iterator[str]:
    old, new = before.resolved, after.resolved
    if old.project.name != new.project.name:
        yield f"project {new.project.name} is no new version of project {old.project.name}: topics and group have other names"
    if any(was != now for was, now in zip(old.sources, new.sources, strict=False)):
        yield (
            f"the inbound topics would have other numbers, and so all outputs other ids: they were {_listed(old.sources)}, and "
            f"would be {_listed(new.sources)}; a new source window needs a name that sorts behind the others, only the last can go"
        )
    for source in new.sources:
        if source in old.sources and old.reads(source) != new.reads(source):
            yield f"source window {source} would read another topic than before: give it another name"


def _without_rows(after: Plan, needy: Mapping[WindowId, RowsAhead], why: tuple[str, ...]) -> Iterator[str]:
    """`why`: nothing is recomputed."""
    for window, ahead in needy.items():
        if not ahead.untold:
            continue
        nodes = [after.nodes[i] for i in sorted(ahead.untold)]
        untold = _listed(tuple(dict.fromkeys(node.operator.id for node in nodes)))
        kept = "; ".join(f"{node.operator.id} is kept, and {_KEEPS[node.stage is Stage.WINDOW]}" for node in nodes)
        otherwise = "say it without --empty, or " if why == (Past.UNASKED.value,) else ""
        yield (
            f"window {window} would take back rows that it never had, and nobody knows these, to begin with them: {kept}. "
            f"It is not recomputed from the topics: {'; '.join(why)}. What can be done: {otherwise}put a copy window between "
            f"{untold} and {window}, or give {untold} another name; what is new begins empty then, and {window} too"
        )


_KEEPS = {
    True: "keeps something else than the rows that it put out",
    False: "what it let go at its pulses is not kept",
}


def _kept_pages(after: Plan, windows: Sequence[WindowChange]) -> frozenset[str]:
    kept = {change.window for change in windows if change.fate is Fate.KEPT}
    return frozenset(node.page for node in after.nodes if node.operator.id in kept)


def _listed(sources: tuple[WindowId, ...]) -> str:
    return ", ".join(map(str, sources))


def _stateful(plan: Plan) -> list[Node]:
    return [node for node in plan.nodes if not node.in_head and node.operator.open().parts]


# --- the state ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CarriedPages(Mapping[str, bytes]):
    """Pages of kept windows as they are in `pages`, read when they are asked for, and those that begin empty."""

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


def carried_over(
    before: Plan, after: Plan, header: bytes, pages: Mapping[str, bytes], shard: int = 0
) -> tuple[bytes, Mapping[str, bytes]]:
    """A snapshot of `before`, of this shard, as one of `after` at the same positions: kept windows have their state, the others
    none. UsageError where the one cannot become the other; ProjectChanged, SnapshotFormat, SnapshotDamaged."""
    try:
        content = json.loads(header)
        check_origin(before, content)
        found = compare(before, after, Past.CARRIED, int(content["semantics"]))
        if found.refusals:
            raise UsageError("the project cannot go on with the state of the one before", detail="\n  ".join(found.refusals))
        carried = _header(before, after, found, content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotDamaged("the snapshot cannot be read", detail=str(error)) from error
    kept_windows = {change.window for change in found.windows if change.fate is Fate.KEPT}
    wanted = {node.page: node for node in _stateful(after)}
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
    return carried, replace(made, empty={**made.empty, **_filled(after, carried, made, _kept_pages(after, found.windows))})


def _filled(after: Plan, header: bytes, pages: Mapping[str, bytes], kept: frozenset[str]) -> dict[str, bytes]:
    """The pages of windows that begin with the rows ahead of them, those of their rows among them. No others are in memory."""
    state = restore(after, header, pages, only=pages_to_begin_with(after, kept) | {SHARED_PAGE})
    filled = frozenset(begin_with_rows(after, state, kept))
    return dict(freeze(after, state, only=filled).pages())


def _opened(node: Node, shard: int) -> Page:
    page = node.operator.open()
    node.operator.divide(page, shard)
    return page


def _page_of(name: str) -> str:
    """The page of a window that a name in a snapshot belongs to: its own, or that of its rows, `PAGE/PART/NUMBER`."""
    owner, part, number = [*name.rsplit("/", 2), "", ""][:3]
    return owner if part and number.isdecimal() and "#" in owner else name


def _header(before: Plan, after: Plan, found: Upgrade, content: dict[str, Any]) -> bytes:
    topics = {i: after.resolved.sources.index(w) for i, w in enumerate(before.resolved.sources) if w in after.resolved.sources}
    topics[len(before.resolved.sources)] = len(after.resolved.sources)  # of ticks alone
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
        UPGRADED: before.project_hash,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
