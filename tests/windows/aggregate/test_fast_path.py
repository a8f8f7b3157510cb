"""The fast path of an event through an aggregate (SPEC A28) has the same state and outputs as the general path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotspare.rows.chunk import Timeline
from hotspare.rows.compile import plain
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.aggregate.groups import GROUPS
from hotspare.windows.aggregate.loops import aggregate as k
from hotspare.windows.aggregate.loops import exact
from tests.laws.aggregate_inputs import DOUBLES, OF_NUMBERS, operator_of, some_events

_AT, _LIMBS = np.int64(0), np.int64(4)


def _outcome(patch: pytest.MonkeyPatch, world: dict[str, Any]) -> list[Any]:
    """Returns outputs of random events, and the state after them, with some functions of the kernel replaced."""
    twin: Any = plain(k.run_aggregate)
    twin.__globals__.update(world)
    patch.setattr(k, "run_aggregate", twin)
    operator, page = operator_of(OF_NUMBERS, 8)
    random, strings, found = np.random.default_rng(7), StringTable(), list[Any]()
    for batch in range(8):
        timeline = Timeline(400_000 * np.arange(40) + 16_000_000 * batch, np.empty(0, np.int64))
        chunk = some_events(random, 40, 40 if batch < 6 else 36)
        chunk.lanes[:, 1] = chunk.lanes[:, 0] % 8
        made = operator.process_chunks(page, [chunk], timeline, strings).chunk
        groups = page.parts[GROUPS]
        assert isinstance(groups, Relation)
        pages = [each.columns() for each in groups.row_pages()]
        kept = [column.array.tobytes() for columns in (groups.columns(), *pages) for column in columns.values()]
        found.append(([each.tobytes() for each in (made.rank, made.opcode, made.flags, made.lanes, made.valid)], kept))
    return found


def test_both_ways_leave_the_same() -> None:
    short: Any = plain(k.change_on_fast_path)
    taken = [0, 0]

    def counted(*args: Any) -> Any:
        was, slot = short(*args)
        taken[int(slot >= 0)] += 1
        return was, slot

    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        shorter = _outcome(patch, {"change_on_fast_path": counted})
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        longer = _outcome(patch, {"has_inline_state_only": lambda *_: False})
    assert min(taken) > 20
    assert shorter == longer


def _sums(random: np.random.Generator) -> Any:
    """Yields a sum, and doubles to add or subtract."""
    lanes = np.zeros((1, 5), np.int64)
    lanes[0, 0] = random.choice([0, 14, 15, 16, 30])
    for _ in range(40):
        value = random.choice(
            [random.normal() * 1e4, float(random.integers(-9, 9)), np.ldexp(random.normal(), random.integers(-70, 70))]
        )
        yield lanes, np.float64(random.choice(DOUBLES) if random.random() < 0.1 else value), np.int64(random.choice([-1, 1]))


def test_a_sum_with_words_enough() -> None:
    random, quick = np.random.default_rng(11), 0
    for _ in range(200):
        for lanes, value, sign in _sums(random):
            bits, other = value.view(np.uint64), lanes.copy()
            is_added = exact.add_within(lanes, _AT, _AT, _LIMBS, bits, sign)
            if not is_added:
                assert lanes.tobytes() == other.tobytes()
            if np.isfinite(value):
                mantissa = np.uint64(exact.mantissa_of(bits))
                towards = -sign if np.signbit(value) else sign
                position = np.int64(exact.position_of(bits))
                fits = not mantissa or exact.add_words(other, _AT, _AT, _LIMBS, position, mantissa, np.uint64(0), towards)
                assert fits or not is_added
                assert lanes.tobytes() == other.tobytes() or not is_added
            lanes[:] = other
            quick += is_added
    assert quick > 1000


def test_a_sum_rounded_in_one_addition() -> None:
    """Words at the edges of all cases, ties among them: if there is an answer, it is right."""
    random, lanes, quick = np.random.default_rng(5), np.zeros((1, 5), np.int64), 0
    for _ in range(50_000):
        at = random.integers(0, 63, 4)
        edges = [
            random.choice([0, -1, 1, 1 << a, -(1 << a), (1 << a) - 1, random.integers(-(2**63), 2**63 - 1)]) for a in at.tolist()
        ]
        lanes[0, 0], lanes[0, 1:] = random.choice([0, 1, 14, 15, 16, 28, 29, 30]), edges
        likely = exact.likely_rounded(lanes, _AT, _AT, _LIMBS, np.int64(exact.DOUBLE_BIAS))
        if likely == likely:
            quick += 1
            expected = exact.rounded(lanes, _AT, _AT, _LIMBS, np.int64(exact.DOUBLE_BIAS))
            assert np.float64(likely).tobytes() == np.float64(expected).tobytes(), lanes
    assert quick > 5000
