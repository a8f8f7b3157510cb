"""What a window begins with that is made anew behind windows that keep their state: the rows that these have.

Most windows may begin empty: a change of a row that they never saw is one that comes, and its delete concerns nobody. A window that
computes from changes alone, as an aggregate of rows that somebody else keeps, cannot: taken back would be what was never added. It
is given the rows that stand ahead of it, as if they came now, one after the other as they arrived; nothing is put out for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hotspare.flow.inside import ROWS
from hotspare.flow.plan import Arc, Node, Plan, Stage
from hotspare.flow.project_state import State
from hotspare.model.project import EVERY_SLOT, WindowId
from hotspare.rows.changelog import Opcodes
from hotspare.rows.chunk import Chunk, Int64s, Positions, Timeline
from hotspare.table.pages import Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Applied
from hotspare.windows.shared.rowwise import passed_rows

_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class RowsAhead:
    """Where the rows stand that changes may be about which leave a node: nodes of windows that are kept, by number. `told`: their
    pages tell the rows; `untold`: they keep something else. None at all: there are no such rows."""

    told: frozenset[int] = frozenset()
    untold: frozenset[int] = frozenset()

    def __or__(self, other: RowsAhead) -> RowsAhead:
        return RowsAhead(self.told | other.told, self.untold | other.untold)


_NO_ROWS = RowsAhead()


def rows_ahead(plan: Plan, kept: Collection[str]) -> list[RowsAhead]:
    """Of each node. `kept`: the pages that have their state; the others begin anew."""
    found: list[RowsAhead] = []
    for i, node in enumerate(plan.nodes):
        page = Page() if node.in_head else node.operator.open()
        if node.in_head or node.operator.leaving.opcodes is not Opcodes.RESOLVED:
            found.append(_NO_ROWS)
        elif page.parts and node.page in kept:
            at = frozenset((i,))
            found.append(RowsAhead(untold=at) if _standing(node, page, StringTable()) is None else RowsAhead(told=at))
        elif page.parts and not node.operator.needs_rows:
            found.append(_NO_ROWS)  # it begins empty
        else:
            found.append(_of_inputs(node, found))
    return found


def needing_rows(plan: Plan, kept: Collection[str]) -> dict[WindowId, RowsAhead]:
    """Windows that begin anew and need rows for it, and where these stand."""
    ahead = rows_ahead(plan, kept)
    needy = {node.operator.id: _of_inputs(node, ahead) for node in plan.nodes if _is_needy(node, kept)}
    return {window: rows for window, rows in needy.items() if rows != _NO_ROWS}


def pages_to_begin_with(plan: Plan, kept: Collection[str]) -> frozenset[str]:
    """Those that `begin_with_rows` looks at, or fills."""
    return frozenset(plan.nodes[i].page for i in _on_the_way(plan, kept))


def begin_with_rows(plan: Plan, state: State, kept: Collection[str]) -> list[str]:
    """Give them to those that need them, whose rows must be told; the pages that were filled. What `apply` raises. Rows of one
    window come after those of another one, piece by piece. A window that tells its own rows is given none."""
    way = _on_the_way(plan, kept)
    tellers = {i: node for i, node in way.items() if node.page in kept and state.pages[node.page].parts}
    behind = {i: node for i, node in way.items() if i not in tellers}
    for i, node in tellers.items():
        rows = _standing(node, state.pages[node.page], state.strings)
        assert rows is not None
        for piece in _pieces(rows):
            _pass_on(plan, behind, state, {i: Applied(piece)})
    return [node.page for node in way.values() if _is_needy(node, kept)]


def _is_needy(node: Node, kept: Collection[str]) -> bool:
    return node.operator.needs_rows and node.page not in kept


def _of_inputs(node: Node, ahead: list[RowsAhead]) -> RowsAhead:
    found = _NO_ROWS
    for arc in node.inputs:
        found |= ahead[arc.node]
    return found


def _on_the_way(plan: Plan, kept: Collection[str]) -> dict[int, Node]:
    """The nodes from where rows stand to windows that need them, in the plan's order."""
    ahead = rows_ahead(plan, kept)
    found, left = set[int](), [i for i, node in enumerate(plan.nodes) if _is_needy(node, kept)]
    while left:
        at = left.pop()
        if at not in found and ahead[at].told:
            found.add(at)
            left += [arc.node for arc in plan.nodes[at].inputs if at not in ahead[at].told]
    return {i: plan.nodes[i] for i in sorted(found)}


def _standing(node: Node, page: Page, strings: StringTable) -> Chunk | None:
    """All rows that a window put out and did not take back, as inserts in the order in which they arrived; None where its page
    does not tell them."""
    if node.stage is not Stage.WINDOW:
        return None
    part = page.parts.get(ROWS)
    if isinstance(part, Relation) and part.shape.width == len(node.operator.schema):
        lanes, valid, _ = part.stored()
        return Chunk.of_rows(lanes, valid)
    return node.operator.standing(page, strings)


def _pass_on(plan: Plan, behind: Mapping[int, Node], state: State, left: dict[int, Applied]) -> None:
    """What left a node, through these nodes, which are in the plan's order."""
    for i, node in behind.items():
        inputs = [_through(left.get(arc.node), arc) for arc in node.inputs]
        if any(inputs):
            left[i] = _applied(plan, i, state, inputs)


def _through(left: Applied | None, arc: Arc) -> Chunk | None:
    """What of it takes this edge."""
    if left is None or left.slots is None or arc.slot == EVERY_SLOT:
        return None if left is None else left.chunk
    return passed_rows(left.chunk, (left.slots == arc.slot) | (left.slots == EVERY_SLOT))


def _applied(plan: Plan, at: int, state: State, inputs: list[Chunk | None]) -> Applied:
    """What a node makes of rows; its page is changed. Inputs come one after the other."""
    node, chunks, slots, first = plan.nodes[at], list[Chunk](), list[Int64s](), 0
    page = state.pages[node.page]
    for number, chunk in enumerate(inputs):
        for piece in _pieces(chunk):
            given, ranks, is_done = list(node.nothing), int(piece.rank[-1]) + 1, False
            given[number] = piece
            while not is_done:
                applied = node.operator.apply(page, given, _now(state, ranks), state.strings)
                chunks.append(_later(applied.chunk, first))
                slots.append(np.full(len(applied.chunk), EVERY_SLOT, np.int64) if applied.slots is None else applied.slots)
                given, is_done = list(node.nothing), applied.until is None
            first += ranks
    if not chunks:
        return Applied(Chunk.empty(len(node.operator.schema)))
    return Applied(Chunk.in_turn(chunks), slots=np.concatenate(slots))


def _pieces(chunk: Chunk | None) -> Iterator[Chunk]:
    """Of bounded size, with ranks from 0; what one row made stays together."""
    begin = 0
    while chunk is not None and begin < len(chunk):
        end = min(begin + _AT_ONCE, len(chunk))
        end = int(np.searchsorted(chunk.rank, chunk.rank[end - 1], side="right"))
        yield _later(chunk.between(begin, end), -int(chunk.rank[begin]))
        begin = end


def _later(chunk: Chunk, ranks: int) -> Chunk:
    return Chunk(chunk.rank + ranks, chunk.opcode, chunk.flags, chunk.lanes, chunk.valid)


def _now(state: State, rows: int) -> Timeline:
    """Time stands still, without a heartbeat."""
    none = np.zeros(rows, np.int32)
    nowhere = Positions(none, none, np.zeros(rows, np.int64), none)
    return Timeline(np.full(rows, state.time_us, np.int64), np.empty(0, np.int64), positions=nowhere)
