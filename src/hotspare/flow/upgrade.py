"""Compares a changed project with the one whose state it continues, window by window and stream by stream. Pure.

A window whose lineage is unchanged (`Lineages`) keeps its state, unless another version of `SEMANTICS` computed it. Any other
window's state is recomputed from the topics if they still hold all input; else the window begins empty or with upstream rows.
Nothing is recomputed with --empty, after a snapshot that an upgrade converted, without recorded begin offsets, or if a source has
fields that the messages on its topic lack.

A stream with an unchanged lineage continues with the same outputs as without the upgrade, and is compared by digest, unless the
version of `SEMANTICS` differs. In a changed stream, outputs of the new project begin after the newest committed output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from hotspare.flow.plan import Node, Plan, Stage
from hotspare.flow.seeding import UpstreamRows, windows_to_seed
from hotspare.flow.semantics import SEMANTICS
from hotspare.model.project import WindowId
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.window_type import type_of
from hotspare.projects.fingerprint import stream_meaning, window_changes, window_meaning
from hotspare.rows.batch import BAD_STREAM


class Past(Enum):
    """How much of a group's state the topics can reproduce. Every member other than WHOLE is a reason why nothing is recomputed
    from the topics."""

    WHOLE = "all of it"
    CUT = "the topics no longer hold all input since the group began"
    CARRIED = "the state comes from a snapshot, not from the topics alone"
    UNNOTED = "the offsets at which the group began are not recorded"
    UNASKED = "--empty was given"


class Fate(Enum):
    """The effect of an upgrade on a window's state."""

    KEPT = "kept"
    NONE = "keeps nothing"
    """The window changed or is new, and has no state."""
    RECOMPUTED = "recomputed from the topics"
    FILLED = "begins with the rows of upstream windows"
    """The window changed or is new, and is seeded with rows of upstream windows that keep their state (`flow.seeding`)."""
    EMPTY = "begins empty"
    GONE = "gone"


class StreamFate(Enum):
    SAME = "continues unchanged"
    CHANGED = "continues with the outputs of the new project"
    NEW = "begins"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class WindowChange:
    """The effect of an upgrade on one window. `reasons`: why the window's state is not kept."""

    window: WindowId
    fate: Fate
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The effects of a change from one project to another. `windows` are in the new project's order of evaluation, removed windows
    last. `streams`: the fate of each output stream, by name. `new_topics`, `removed_topics`: source windows that only one of the
    projects has. `refusals`: the reasons why the upgrade is impossible; empty if it is possible.
    """

    windows: tuple[WindowChange, ...]
    streams: Mapping[str, StreamFate]
    new_topics: tuple[WindowId, ...]
    removed_topics: tuple[WindowId, ...]
    refusals: tuple[str, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether every window keeps its state and every stream continues unchanged."""
        is_kept = all(each.fate is Fate.KEPT for each in self.windows)
        return is_kept and all(fate is StreamFate.SAME for fate in self.streams.values())

    @property
    def has_recomputed(self) -> bool:
        return any(each.fate is Fate.RECOMPUTED for each in self.windows)

    @property
    def realigned(self) -> frozenset[str]:
        """The changed and new streams, whose topics may already hold outputs with other content. A new stream counts because a
        stream of that name may have existed before."""
        return frozenset(name for name, fate in self.streams.items() if fate in (StreamFate.CHANGED, StreamFate.NEW))


def compare(before: Plan, after: Plan, past: Past, semantics: int = SEMANTICS) -> Upgrade:
    """Returns the effects of an upgrade from project `before` to project `after`. `past`: how much state the topics can reproduce.
    `semantics`: the version of windows' semantics that computed the state of `before`; unless that is `SEMANTICS`, no state is
    kept."""
    old, new = lineages(before), lineages(after)
    unread = _unread(before, after) if past in (Past.WHOLE, Past.UNASKED) else ()
    is_recomputed = past is Past.WHOLE and not unread
    stateful = dict.fromkeys((node.operator.id for node in stateful_nodes(after)), Fate.RECOMPUTED if is_recomputed else Fate.EMPTY)
    anew = {w.id: stateful.get(w.id, Fate.NONE) for w in after.resolved.windows}
    means_the_same = semantics == SEMANTICS
    windows = [
        _changed(before, after, old, new, window, fate) if means_the_same else WindowChange(window, fate, (_OTHER_SEMANTICS,))
        for window, fate in anew.items()
    ]
    needy = {} if is_recomputed else windows_to_seed(after, kept_pages(after, windows))
    windows = [replace(each, fate=Fate.FILLED) if each.window in needy else each for each in windows]
    windows = [replace(each, reasons=each.reasons + unread) if each.fate in (Fate.EMPTY, Fate.FILLED) else each for each in windows]
    windows += [WindowChange(w.id, Fate.GONE) for w in before.resolved.windows if w.id not in new.states]
    names = dict.fromkeys([*new.streams, *old.streams])
    return Upgrade(
        windows=tuple(windows),
        streams={name: _stream_fate(old.streams.get(name), new.streams.get(name), semantics) for name in names},
        new_topics=tuple(w for w in after.resolved.sources if w not in before.resolved.sources),
        removed_topics=tuple(w for w in before.resolved.sources if w not in after.resolved.sources),
        refusals=(*_refusals(before, after), *_without_rows(after, needy, unread or (past.value,))),
    )


_OTHER_SEMANTICS = "windows have other semantics in this version of hotspare"


def _changed(before: Plan, after: Plan, old: Lineages, new: Lineages, window: WindowId, made_anew: Fate) -> WindowChange:
    if window not in old.states:
        return WindowChange(window, made_anew, ("it is new",))
    if old.states[window] == new.states[window]:
        return WindowChange(window, Fate.KEPT)
    own = window_changes(before.resolved.window(window), after.resolved.window(window))
    reasons = tuple(sentence.partition(": ")[2] for sentence in own)
    at = after.resolved.window(window)
    ahead = dict.fromkeys((*(source for source, _ in at.inputs), *at.forwarding_windows))
    reasons += tuple(f"it follows {source}, which changed" for source in ahead if old.states.get(source) != new.states[source])
    return WindowChange(window, made_anew, reasons or ("its code changed",))


def _unread(before: Plan, after: Plan) -> tuple[str, ...]:
    """Returns the reasons why the new project cannot read topics from their beginning, even if they hold all input; empty if it
    can. A source window with additional fields would refuse the old messages."""
    both = [window for window in after.resolved.sources if window in before.resolved.sources]
    added = [w for w in both if not {*after.resolved.schema(w).fields} <= {*before.resolved.schema(w).fields}]
    return tuple(f"messages on the topic of {window} lack fields that it has now" for window in added)


def _stream_fate(old: str | None, new: str | None, semantics: int) -> StreamFate:
    if old is None:
        return StreamFate.NEW
    if new is None:
        return StreamFate.ENDS
    return StreamFate.SAME if old == new and semantics == SEMANTICS else StreamFate.CHANGED


def _refusals(before: Plan, after: Plan) -> Iterator[str]:
    old, new = before.resolved, after.resolved
    if old.project.name != new.project.name:
        yield f"project {new.project.name}: not a new version of {old.project.name}, as its topics and group have other names"
    if any(was != now for was, now in zip(old.sources, new.sources, strict=False)):
        yield (
            f"the inbound topics would have other numbers, and so all outputs other ids: they were {_listed(old.sources)}, and "
            f"would be {_listed(new.sources)}; name a new source window so that it sorts after the others, and remove only the last"
        )
    for source in new.sources:
        if source in old.sources and old.reads(source) != new.reads(source):
            yield f"source window {source} would read another topic than before: give it another name"


def _without_rows(after: Plan, needy: Mapping[WindowId, UpstreamRows], why: tuple[str, ...]) -> Iterator[str]:
    """Yields a refusal for each window of `needy` whose upstream rows are not stored in any page. `why`: the reasons why nothing is
    recomputed from the topics."""
    for window, ahead in needy.items():
        if not ahead.unreadable_nodes:
            continue
        nodes = [after.nodes[i] for i in sorted(ahead.unreadable_nodes)]
        untold = _listed(tuple(dict.fromkeys(node.operator.id for node in nodes)))
        kept = "; ".join(f"{node.operator.id} is kept, and {_KEEPS[node.stage is Stage.WINDOW]}" for node in nodes)
        otherwise = "repeat the command without --empty, or " if why == (Past.UNASKED.value,) else ""
        yield (
            f"window {window} would have to begin with rows that no window stores, since later events delete them: {kept}. "
            f"It is not recomputed from the topics: {'; '.join(why)}. To upgrade, {otherwise}put a copy window between "
            f"{untold} and {window}, or give {untold} another name: the new windows and {window} then begin empty"
        )


_KEEPS = {
    True: "does not store the rows that it emitted",
    False: "does not store the rows that it emitted at its pulses",
}


def kept_pages(after: Plan, windows: Sequence[WindowChange]) -> frozenset[str]:
    """Returns the names of the pages of plan `after` whose windows keep their state."""
    kept = {change.window for change in windows if change.fate is Fate.KEPT}
    return frozenset(node.page for node in after.nodes if node.operator.id in kept)


def _listed(sources: tuple[WindowId, ...]) -> str:
    return ", ".join(map(str, sources))


def stateful_nodes(plan: Plan) -> list[Node]:
    """Returns the nodes of the core that have state, in the plan's order."""
    return [node for node in plan.nodes if not node.in_head and node.operator.open().parts]


_OF_STREAMS = frozenset({Stage.DELIVERY, Stage.BEATS})


@dataclass(frozen=True, slots=True)
class Lineages:
    """Lineage hashes: `states` by window, `streams` by output stream, including that of bad events. A hash covers everything that
    determines the window's state, or the stream. Two projects have equal hashes exactly if one can continue the other's state or
    stream.

    A project's hash shows only whether two projects are the same. A window's state depends on the window's definition and on the
    lineages of all upstream windows. The window's stream depends on the same and, if time plays a part, on the heartbeats: their
    interval and their topics decide which tick causes an output.
    """

    states: Mapping[WindowId, str]
    streams: Mapping[str, str]


def lineages(plan: Plan) -> Lineages:
    resolved, states, timed = plan.resolved, dict[WindowId, str](), dict[WindowId, bool]()
    ticking = _ticking(plan)
    for window in resolved.windows:
        ahead = (*(source for source, _ in window.inputs), *window.forwarding_windows)
        states[window.id] = _hash([_window_lineage(plan, window), [states[source] for source in ahead]])
        timed[window.id] = window.id in ticking or any(timed[source] for source in ahead)
    heartbeats = [str(plan.heartbeat_interval_us), *map(str, resolved.sources)]
    streams = {}
    for window_id in resolved.streams:
        of_stream = stream_meaning(resolved.window(window_id))
        has_beats = any(node.stage is Stage.BEATS and node.operator.id == window_id for node in plan.nodes)
        streams[str(window_id)] = _hash([states[window_id], of_stream, heartbeats if timed[window_id] or has_beats else []])
    # any window may refuse an event, and bad events of one position are in the order of windows
    by_window = [[str(window.id), states[window.id]] for window in resolved.windows]
    return Lineages(states, {**streams, BAD_STREAM: _hash([by_window, heartbeats if any(timed.values()) else []])})


def _window_lineage(plan: Plan, window: ResolvedWindow) -> object:
    """Returns the window's own contribution to its lineage, without upstream windows. For user code that shares state, this
    includes the hash of the complete project."""
    modules = [[str(module), module.meaning()] for module in window.modules]
    shares = plan.shared is not None and bool(list(type_of(window.window).scripts(window.window)))
    tracking = plan.resolved.project.retention_tracking.value
    return [str(window.id), window_meaning(window), modules, tracking, plan.project_hash if shares else ""]


def _ticking(plan: Plan) -> frozenset[WindowId]:
    """Returns the windows that may emit outputs because time passes, not counting stages that only their streams add (delivery,
    beats)."""
    nodes = (node for node in plan.nodes if node.stage not in _OF_STREAMS)
    return frozenset(node.operator.id for node in nodes if node.operator.clock.has_ticks)


def _hash(content: object) -> str:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
