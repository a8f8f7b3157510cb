"""Law Twin over random graphs: an engine in another process agrees with one in this process on every digest and on the snapshot. It
has no compiled kernels, another order of hashes, and another cut of the input.

`python -m tests.laws.twin_engine` is that engine: it reads graphs and changelogs, pickled, and returns the digests of each.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import xxhash

from hotspare.flow.head.head import Head
from tests.laws.any_changelogs import Given, raw_messages
from tests.laws.any_graphs import Graph
from tests.laws.graph_laws import Outputs, Trial, fed

Told = dict[str, list[int]]
"""The digest at each output by stream; "snapshot": that of the snapshot."""


class TwinEngine:
    """The other engine's process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONHASHSEED": "7919", "NUMBA_DISABLE_JIT": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def differs(self, graph: Graph, script: Sequence[Given]) -> str | None:
        """Returns the first disagreement; None: there is none."""
        assert self._process.stdin and self._process.stdout
        pickle.dump((graph, list(script)), self._process.stdin)
        self._process.stdin.flush()
        other: Told | str = pickle.load(self._process.stdout)
        trial = Trial.of(graph, script)
        mine = _told(trial.whole, trial.snapshot)
        if isinstance(other, str):
            return f"error of the twin: {other}"
        for name in sorted({*mine, *other}):
            if mine.get(name) != other.get(name):
                agreed = takewhile(lambda pair: pair[0] == pair[1], zip(mine.get(name, ()), other.get(name, ()), strict=False))
                return f"law Twin: {name} differs from output {sum(1 for _ in agreed) + 1} on"
        return None


def _told(outputs: Outputs, snapshot: bytes) -> Told:
    digests = {name: table.column("hs:digest").to_pylist() for name, table in outputs.items()}
    return {**digests, "snapshot": [xxhash.xxh3_64_intdigest(snapshot)]}


def _compute(graph: Graph, script: Sequence[Given]) -> Told:
    """Feeds the messages, which are decoded one by one."""
    plan = graph.plan()
    head = Head.from_plan(plan)
    return _told(*fed(plan, [head.decode(each) for each in raw_messages(script, len(plan.entries))]))


def _serve(asked: BinaryIO, told: BinaryIO) -> None:
    while True:
        try:
            graph, script = pickle.load(asked)
        except EOFError:
            return
        try:
            with np.errstate(all="ignore"):  # kernels give no warnings; their twins do
                answer: Told | str = _compute(graph, script)
        except Exception as error:  # the other process reports any error
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, told)
        told.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
