"""Heaps in kept lists: the results of Python's own, and undone, saved and refused as any change of a list (SPEC A36)."""

from __future__ import annotations

import heapq
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hotspare.scripting.python.program import CallFailure, CallTooLarge
from tests.examples import examples
from tests.scripting.python.programs import called, program, restored

TEXT = """
import heapq
heap = []
def f(change, item, fails=False):
    before = list(heap)
    if change == "heappush": made = heapq.heappush(heap, item)
    elif change == "heapify":
        heap.append(item)
        made = heapq.heapify(heap)
    elif change == "heappushpop": made = heapq.heappushpop(heap, item)
    elif not heap: made = None
    elif change == "heappop": made = heapq.heappop(heap)
    else: made = heapq.heapreplace(heap, item)
    if fails: raise ValueError("fails")
    return made, list(heap)
def odd(): heapq.heappush(heap, (0, f))
"""
CHANGES = st.tuples(
    st.sampled_from(["heappush", "heappush", "heappop", "heapify", "heapreplace", "heappushpop"]), st.integers(0, 20), st.booleans()
)


def usual(heap: list[int], change: str, item: int) -> Any:
    if change == "heapify":
        heap.append(item)
        return heapq.heapify(heap)
    if change in ("heappop", "heapreplace") and not heap:
        return None
    return getattr(heapq, change)(heap, *(() if change == "heappop" else (item,)))


@given(st.lists(CHANGES, max_size=40))
@examples(0.7)
def test_a_heap_that_is_kept_is_that_of_python(changes: list[tuple[str, int, bool]]) -> None:
    running, heap = program(TEXT), list[int]()
    for change, item, fails in changes:
        again, before = restored(running), running.save()
        found = called(running, change, item, fails)
        assert repr(called(again, change, item, fails)) == repr(found)
        if fails:
            assert isinstance(found, CallFailure)
            assert running.save() == before
        else:
            assert found == (usual(heap, change, item), heap)
        assert running.save() == again.save()


def test_what_cannot_be_kept_is_refused_in_a_heap_too() -> None:
    instance = program(TEXT)
    before = instance.save()
    assert isinstance(called(instance, function="odd"), CallTooLarge)
    assert instance.save() == before
