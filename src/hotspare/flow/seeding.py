"""Seeds a rebuilt window from upstream windows whose state survived the upgrade.

Most windows may begin empty: an update of a row that they never saw is an insert, and its delete has no effect. A window that
computes from changes alone, such as an aggregate over rows that another window stores, may not: it would subtract rows that it
never added. Such a window is seeded: it processes the upstream rows as if they arrived now, one after the other in order of
arrival. No outputs are emitted for these rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hotspare.flow.plan import Arc, Node, Plan, Stage
from hotspare.flow.project_state import State
from hotspare.flow.snapshot_content import ROWS
from hotspare.model.project import EVERY_SLOT, WindowId
from hotspare.rows.changelog import Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Positions, Timeline
from hotspare.table.pages import Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import OperatorResult
from hotspare.windows.shared.rowwise import passed_rows

_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class UpstreamRows:
    """The upstream windows with kept state, as node numbers, whose rows a node's outputs may update or delete. `readable_nodes`:
    windows whose pages hold the rows that they emitted. `unreadable_nodes`: windows whose pages hold other state. Both are empty if
    a node's outputs refer to no earlier rows."""

    readable_nodes: frozenset[int] = frozenset()
    unreadable_nodes: frozenset[int] = frozenset()

    def __or__(self, other: UpstreamRows) -> UpstreamRows:
        return UpstreamRows(self.readable_nodes | other.readable_nodes, self.unreadable_nodes | other.unreadable_nodes)


_NO_UPSTREAM_ROWS = UpstreamRows()


def upstream_rows(plan: Plan, kept: Collection[str]) -> list[UpstreamRows]:
    """Returns the upstream rows of each node, by node number. `kept`: names of the pages that retain their state; all other pages
    begin empty or are seeded."""
    found: list[UpstreamRows] = []
    for i, node in enumerate(plan.nodes):
        page = Page() if node.in_head else node.operator.open()
        if node.in_head or node.operator.output_changelog.opcodes is not Opcodes.RESOLVED:
            found.append(_NO_UPSTREAM_ROWS)
        elif page.parts and node.page in kept:
            at = frozenset((i,))
            found.append(
                UpstreamRows(unreadable_nodes=at)
                if _emitted_rows(node, page, StringTable()) is None
                else UpstreamRows(readable_nodes=at)
            )
        elif page.parts and not node.operator.needs_rows:
            found.append(_NO_UPSTREAM_ROWS)  # it begins empty
        else:
            found.append(_upstream_of_inputs(node, found))
    return found


def windows_to_seed(plan: Plan, kept: Collection[str]) -> dict[WindowId, UpstreamRows]:
    """Returns the windows that must be seeded, each with the upstream nodes that store the rows. `kept` as in `upstream_rows`."""
    ahead = upstream_rows(plan, kept)
    needy = {node.operator.id: _upstream_of_inputs(node, ahead) for node in plan.nodes if _needs_seed(node, kept)}
    return {window: rows for window, rows in needy.items() if rows != _NO_UPSTREAM_ROWS}


def pages_to_seed(plan: Plan, kept: Collection[str]) -> frozenset[str]:
    """Returns the names of the pages that `seed_windows` reads or fills."""
    return frozenset(plan.nodes[i].page for i in _seed_paths(plan, kept))


def seed_windows(plan: Plan, state: State, kept: Collection[str]) -> list[str]:
    """Seeds the windows that need upstream rows, in `state`, and returns the names of their pages. The rows must be readable
    (`UpstreamRows.readable_nodes`). Propagates errors of `Operator.process_chunks`. All rows of one upstream window are propagated
    before those of the next. A window on the path that stores its own rows receives none."""
    way = _seed_paths(plan, kept)
    tellers = {i: node for i, node in way.items() if node.page in kept and state.pages[node.page].parts}
    behind = {i: node for i, node in way.items() if i not in tellers}
    for i, node in tellers.items():
        rows = _emitted_rows(node, state.pages[node.page], state.strings)
        assert rows is not None
        for piece in _pieces(rows):
            _propagate(plan, behind, state, {i: OperatorResult(piece)})
    return [node.page for node in way.values() if _needs_seed(node, kept)]


def _needs_seed(node: Node, kept: Collection[str]) -> bool:
    return node.operator.needs_rows and node.page not in kept


def _upstream_of_inputs(node: Node, ahead: list[UpstreamRows]) -> UpstreamRows:
    found = _NO_UPSTREAM_ROWS
    for arc in node.inputs:
        found |= ahead[arc.node]
    return found


def _seed_paths(plan: Plan, kept: Collection[str]) -> dict[int, Node]:
    """Returns the nodes, by number in the plan's order, on the paths from windows with readable rows to windows that must be
    seeded."""
    ahead = upstream_rows(plan, kept)
    found, left = set[int](), [i for i, node in enumerate(plan.nodes) if _needs_seed(node, kept)]
    while left:
        at = left.pop()
        if at not in found and ahead[at].readable_nodes:
            found.add(at)
            left += [arc.node for arc in plan.nodes[at].inputs if at not in ahead[at].readable_nodes]
    return {i: plan.nodes[i] for i in sorted(found)}


def _emitted_rows(node: Node, page: Page, strings: StringTable) -> Chunk | None:
    """Returns the rows that a window emitted and has not retracted, as inserts in order of arrival; None if the window's page does
    not hold its emitted rows."""
    if node.stage is not Stage.WINDOW:
        return None
    part = page.parts.get(ROWS)
    if isinstance(part, Relation) and part.shape.width == len(node.operator.schema):
        lanes, valid, _ = part.stored()
        return Chunk.from_stored_rows(lanes, valid)
    return node.operator.emitted_rows(page, strings)


def _propagate(plan: Plan, behind: Mapping[int, Node], state: State, left: dict[int, OperatorResult]) -> None:
    """Processes the outputs `left` of a node in the downstream nodes `behind`, which are in the plan's order, and changes their
    pages. Adds their outputs to `left`."""
    for i, node in behind.items():
        inputs = [_through(left.get(arc.node), arc) for arc in node.inputs]
        if any(inputs):
            left[i] = _applied(plan, i, state, inputs)


def _through(left: OperatorResult | None, arc: Arc) -> Chunk | None:
    """Returns the outputs that the edge `arc` passes; None if the node has no outputs."""
    if left is None or left.slots is None or arc.slot == EVERY_SLOT:
        return None if left is None else left.chunk
    return passed_rows(left.chunk, (left.slots == arc.slot) | (left.slots == EVERY_SLOT))


def _applied(plan: Plan, at: int, state: State, inputs: list[Chunk | None]) -> OperatorResult:
    """Returns the outputs of node number `at` for `inputs`, processed one input after the other; changes the node's page."""
    node, chunks, slots, first = plan.nodes[at], list[Chunk](), list[Int64s](), 0
    page = state.pages[node.page]
    for number, chunk in enumerate(inputs):
        for piece in _pieces(chunk):
            given, ranks, is_done = list(node.empty_inputs), int(piece.rank[-1]) + 1, False
            given[number] = piece
            while not is_done:
                applied = node.operator.process_chunks(page, given, _now(state, ranks), state.strings)
                chunks.append(_later(applied.chunk, first))
                slots.append(np.full(len(applied.chunk), EVERY_SLOT, np.int64) if applied.slots is None else applied.slots)
                given, is_done = list(node.empty_inputs), applied.until is None
            first += ranks
    if not chunks:
        return OperatorResult(Chunk.empty(len(node.operator.schema)))
    return OperatorResult(Chunk.joined_all(chunks), slots=np.concatenate(slots))


def _pieces(chunk: Chunk | None) -> Iterator[Chunk]:
    """Yields the chunk in pieces of about `_AT_ONCE` rows, with ranks from 0. Rows of one rank stay in one piece. None yields
    nothing."""
    begin = 0
    while chunk is not None and begin < len(chunk):
        end = min(begin + _AT_ONCE, len(chunk))
        end = int(np.searchsorted(chunk.rank, chunk.rank[end - 1], side="right"))
        yield _later(chunk.between(begin, end), -int(chunk.rank[begin]))
        begin = end


def _later(chunk: Chunk, ranks: int) -> Chunk:
    return Chunk(chunk.rank + ranks, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid)


def _now(state: State, rows: int) -> Timeline:
    """Returns a timeline of `rows` rows, all at the state's time, without a heartbeat."""
    none = np.zeros(rows, np.int32)
    nowhere = Positions(none, none, np.zeros(rows, np.int64), none)
    return Timeline(np.full(rows, state.time_us, np.int64), np.empty(0, np.int64), positions=nowhere)
