"""Lineages: hashes of all that determines a window's state or its stream. Equal in two projects exactly if one can continue with
the state, or the stream, of the other.

The hash of a project says whether two of them are the same; this says it window by window, so that a changed project can keep what
did not change (`hotspare.flow.upgrade`). A window's state depends on what the window means and on the lineages of all windows
ahead of it. Its stream depends on the same and, where time plays a part, on the heartbeats: which tick causes an output depends
on how often there is one and on which topics have them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.flow.plan import Plan, Stage
from hotspare.model.project import WindowId
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.window_type import type_of
from hotspare.projects.fingerprint import stream_meaning, window_meaning
from hotspare.rows.batch import BAD_STREAM

_OF_STREAMS = frozenset({Stage.DELIVERY, Stage.BEATS})


@dataclass(frozen=True, slots=True)
class Lineages:
    """Of a project: the state of each window, and each output stream by name, that of bad events among them."""

    states: Mapping[WindowId, str]
    streams: Mapping[str, str]


def lineages(plan: Plan) -> Lineages:
    resolved, states, timed = plan.resolved, dict[WindowId, str](), dict[WindowId, bool]()
    ticking = _ticking(plan)
    for window in resolved.windows:
        ahead = (*(source for source, _ in window.inputs), *window.forwarded)
        states[window.id] = _hash([_own(plan, window), [states[source] for source in ahead]])
        timed[window.id] = window.id in ticking or any(timed[source] for source in ahead)
    heartbeats = [str(plan.heartbeat_interval_us), *map(str, resolved.sources)]
    streams = {}
    for window_id in resolved.streams:
        of_stream = stream_meaning(resolved.window(window_id))
        has_beats = any(node.stage is Stage.BEATS and node.operator.id == window_id for node in plan.nodes)
        streams[str(window_id)] = _hash([states[window_id], of_stream, heartbeats if timed[window_id] or has_beats else []])
    # any window may refuse an event, and bad events of one position come in the order of windows
    by_window = [[str(window.id), states[window.id]] for window in resolved.windows]
    return Lineages(states, {**streams, BAD_STREAM: _hash([by_window, heartbeats if any(timed.values()) else []])})


def _own(plan: Plan, window: ResolvedWindow) -> object:
    """What the window means by itself. Code that shares what it keeps belongs to the project as a whole."""
    modules = [[str(module), module.meaning()] for module in window.modules]
    shares = plan.shared is not None and bool(list(type_of(window.window).scripts(window.window)))
    tracking = plan.resolved.project.retention_tracking.value
    return [str(window.id), window_meaning(window), modules, tracking, plan.project_hash if shares else ""]


def _ticking(plan: Plan) -> frozenset[WindowId]:
    """The windows that do something because time passes, apart from what their streams add."""
    nodes = (node for node in plan.nodes if node.stage not in _OF_STREAMS)
    return frozenset(node.operator.id for node in nodes if node.operator.clock.has_ticks)


def _hash(content: object) -> str:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
