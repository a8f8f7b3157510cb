"""The order in which windows are evaluated: each window after the windows whose events it receives."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def inputs_first(names: Sequence[K], inputs: Mapping[K, Sequence[K]]) -> tuple[list[K], list[K]]:
    """Returns two lists: the names, each after its inputs, ties in the given order; and the names on or downstream of a cycle. An
    input may occur more than once. An input that is not in `names` is ignored.
    """
    rank = {name: i for i, name in enumerate(names)}
    followers: dict[K, list[K]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for name in names:
        for source in inputs[name]:
            if source in rank:
                followers[source].append(name)
                missing[name] += 1
    ready = [rank[name] for name in names if not missing[name]]
    made: list[K] = []
    while ready:
        name = names[heapq.heappop(ready)]
        made.append(name)
        for follower in followers[name]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, rank[follower])
    return made, [name for name in names if missing[name]]
