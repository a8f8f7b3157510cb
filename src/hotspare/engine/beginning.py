"""What a window begins with that is made anew behind windows that keep their state: the rows that these have.

Most windows may begin empty: a change of a row that they never saw is one that comes, and its delete concerns nobody. A window that
computes from changes alone, as an aggregate of rows that somebody else keeps, cannot: taken back would be what was never added. It
is given the rows that stand ahead of it, as if they came now, one after the other as they arrived; nothing is put out for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

import numpy as np

from hotspare.engine.inside import ROWS
from hotspare.engine.operators.contract import Applied
from hotspare.engine.operators.rowwise import passed_rows
from hotspare.engine.plan import Arc, Plan, Stage
from hotspare.engine.rows.changelog import Opcodes
from hotspare.engine.rows.chunk import Chunk, Int64s, Positions, Timeline
from hotspare.engine.state.project_state import State
from hotspare.engine.state.relation import Relation
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import EVERY_SLOT, WindowId

_AT_ONCE = 1 << 16


class RowsAhead(Enum):
    """What is known of the rows that changes may be about which leave a node."""

    NONE = "there are none"
    KNOWN = "known"
    UNKNOWN = "not known"
    """Its window keeps something else, such as sums."""


def rows_ahead(plan: Plan, kept: Collection[str]) -> list[RowsAhead]:
    """Of each node. `kept`: the pages that have their state; the others begin anew."""
    found: list[RowsAhead] = []
    for node in plan.nodes:
        parts = {} if node.in_head else node.operator.open().parts
        if node.in_head or node.operator.leaving.opcodes is not Opcodes.RESOLVED:
            found.append(RowsAhead.NONE)
        elif parts and node.page in kept:
            is_listed = node.stage is Stage.WINDOW and _is_of_own_rows(parts.get(ROWS), len(node.operator.schema))
            found.append(RowsAhead.KNOWN if is_listed else RowsAhead.UNKNOWN)
        elif parts and not node.operator.needs_rows:
            found.append(RowsAhead.NONE)  # it begins empty
        else:
            inputs = {found[arc.node] for arc in node.inputs}
            found.append(next((each for each in (RowsAhead.UNKNOWN, RowsAhead.KNOWN) if each in inputs), RowsAhead.NONE))
    return found


def needing_rows(plan: Plan, kept: Collection[str]) -> dict[WindowId, RowsAhead]:
    """Windows that begin anew and need rows for it, and what is known of these."""
    ahead = rows_ahead(plan, kept)
    needy = [(i, node) for i, node in enumerate(plan.nodes) if node.operator.needs_rows and node.page not in kept]
    return {node.operator.id: ahead[i] for i, node in needy if ahead[i] is not RowsAhead.NONE}


def begin_with_rows(plan: Plan, state: State, kept: Collection[str]) -> list[str]:
    """Give them to those that need them, whose rows must be known; the pages that were filled. What `apply` raises."""
    ahead, filled, left = rows_ahead(plan, kept), list[str](), dict[int, Applied]()
    for i, node in enumerate(plan.nodes):
        if ahead[i] is not RowsAhead.KNOWN:
            continue
        page = state.pages[node.page]
        if node.page in kept and page.parts:
            left[i] = Applied(_rows_of(page.parts[ROWS]))
            continue
        left[i] = _applied(plan, i, state, [_through(left.get(arc.node), arc) for arc in node.inputs])
        filled += [node.page] if page.parts else []
    return filled


def _is_of_own_rows(part: object, width: int) -> bool:
    return isinstance(part, Relation) and part.shape.width == width


def _rows_of(part: object) -> Chunk:
    """All rows of a window, as inserts, in the order in which they arrived."""
    assert isinstance(part, Relation)
    lanes, valid, _ = part.stored()
    count = len(lanes)
    opcode, flags = np.full(count, Opcode.INSERT, np.uint8), np.full(count, Flag.NORMAL, np.uint8)
    return Chunk(np.arange(count), opcode, flags, np.ascontiguousarray(lanes), np.ascontiguousarray(valid))


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
