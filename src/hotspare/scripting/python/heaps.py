"""Heaps for user code. Python's own functions change lists without calling their methods, so a kept list would not record it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any


def heap_members() -> Mapping[str, Any]:
    """What of the module `heapq` changes a list."""
    found: dict[str, Callable[..., Any]] = {"heappush": _push, "heappop": _pop, "heapify": _heapify}
    found |= {"heapreplace": _replace, "heappushpop": _push_pop}
    return {name: _of_kept(getattr(heapq, name), kept) for name, kept in found.items()}


def _of_kept(usual: Callable[..., Any], kept: Callable[..., Any]) -> Callable[..., Any]:
    def change(heap: Any, *item: Any) -> Any:
        return (kept if isinstance(heap, list) and type(heap) is not list else usual)(heap, *item)

    return change


def _push(heap: Any, item: Any) -> None:
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


def _pop(heap: Any) -> Any:
    last = heap.pop()
    return _replace(heap, last) if heap else last


def _replace(heap: Any, item: Any) -> Any:
    least = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return least


def _push_pop(heap: Any, item: Any) -> Any:
    return _replace(heap, item) if heap and heap[0] < item else item


def _heapify(heap: Any) -> None:
    for place in reversed(range(len(heap) // 2)):
        _sink(heap, place)


def _rise(heap: Any, top: int, place: int) -> None:
    """The item goes up until what is above it is not greater."""
    item = heap[place]
    while place > top and item < heap[(place - 1) >> 1]:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = item


def _sink(heap: Any, top: int) -> None:
    """The lesser of what is below goes up, down to the bottom; from there the item goes up again. So Python does, too."""
    item, place, end = heap[top], top, len(heap)
    while (below := 2 * place + 1) < end:
        if below + 1 < end and not heap[below] < heap[below + 1]:
            below += 1
        heap[place] = heap[below]
        place = below
    heap[place] = item
    _rise(heap, top, place)
