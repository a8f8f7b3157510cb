"""Takes out of the code what a row of the specification says: the test that is named for the row has to fail.

A sample of rows, over different areas. `python -m tests.scope.plants` runs the named tests in one process, first as the code
is, then each with its plant, and writes a line of JSON for each run: the plant's name, empty for the first, and how the test ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pytest

from hotspare.adapters.changelog_reading import RowChoice
from hotspare.bus.memory import MemoryBusClient, MemoryProducer
from hotspare.coordination.memory import MemoryCoordination, MemoryCoordinationClient
from hotspare.flow.pipeline import Pipeline
from hotspare.ha.effects import committed
from hotspare.ha.outputs.held import HeldOutputs
from hotspare.model import retention_needs
from hotspare.model.events import Flag, Opcode
from hotspare.model.frontends.properties import Substitution
from hotspare.rows.batch import BAD_STREAM
from hotspare.rows.chunk import Chunk
from hotspare.windows.copy.operator import CopyOperator
from hotspare.windows.join import operator as joins
from hotspare.windows.join.declaration import JoinKind
from hotspare.windows.shared import keyed
from hotspare.windows.shared.contract import Clock, OperatorResult
from hotspare.windows.source.operator import SourceOperator
from hotspare.windows.union import operator as unions
from hotspare.windows.union.operator import merge_chunks
from tests.cases.case import read_case
from tests.repo.tree import ROOT

Patch = pytest.MonkeyPatch


class Ending(Enum):
    PASSED = "passed"
    FAILED = "failed"
    """By an assertion of its own."""
    BROKEN = "broken"
    """By any other error: the plant does not fit the code, or the test does not run."""


@dataclass(frozen=True)
class Plant:
    """`place`: the case, or `path::name` and parameters, that shows `row`."""

    row: str
    place: str
    put: Callable[[Patch], None]

    @property
    def node(self) -> str:
        case = PurePosixPath(self.place)
        return f"tests/cases/test_cases.py::test_case[{case.stem}]" if case.suffix == ".case" else self.place


PLANTS: dict[str, Plant] = {}
"""By what they do."""


def plant(row: str, place: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(put: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTS[put.__name__] = Plant(row, place, put)
        return put

    return register


@plant("A4", "tests/projects/test_esp_xml.py::test_properties_are_overridden_from_outside")
def properties_stay_as_they_are(patch: Patch) -> None:
    patch.setattr(Substitution, "replace_references", lambda self, text, place: text)


def _copied(patch: Patch, before: Callable[[Chunk], Chunk], after: Callable[[Chunk], Chunk]) -> None:
    apply = CopyOperator.process_chunks

    def changed(self: CopyOperator, page: Any, inputs: Sequence[Chunk], *rest: Any) -> OperatorResult:
        applied = apply(self, page, [before(chunk) for chunk in inputs], *rest)
        applied.chunk = after(applied.chunk)
        return applied

    patch.setattr(CopyOperator, "process_chunks", changed)


def _string_property(chunk: Chunk) -> Chunk:
    return chunk


@plant("A8", "tests/cases/windows/copy_without_retention.case")
def a_safe_delete_is_a_delete(patch: Patch) -> None:
    def strict(chunk: Chunk) -> Chunk:
        opcode = chunk.opcode.copy()
        opcode[opcode == Opcode.SAFE_DELETE] = Opcode.DELETE
        return Chunk(chunk.rank, opcode, chunk.flags, chunk.lanes, chunk.valid)

    _copied(patch, strict, _string_property)


@plant("A9", "tests/windows/filter/test_filter.py::test_a_filter_on_flags_drops_exactly_retention_deletes")
def the_retention_flag_is_not_set(patch: Patch) -> None:
    def unflagged(chunk: Chunk) -> Chunk:
        return Chunk(chunk.rank, chunk.opcode, chunk.flags & ~chunk.flags.dtype.type(Flag.RETENTION), chunk.lanes, chunk.valid)

    _copied(patch, _string_property, unflagged)


@plant("A12", "tests/cases/windows/copy_without_retention.case")
def a_delete_carries_nothing_but_its_key(patch: Patch) -> None:
    def emptied(chunk: Chunk) -> Chunk:
        valid = chunk.valid.copy()
        valid[chunk.opcode == Opcode.DELETE, 1:] = False
        return Chunk(chunk.rank, chunk.opcode, chunk.flags, chunk.lanes, valid)

    _copied(patch, _string_property, emptied)


@plant("A16", "tests/cases/windows/source_generated_int64.case")
def keys_are_not_generated(patch: Patch) -> None:
    patch.setattr(SourceOperator, "_with_keys", lambda self, chunk, counters, strings: chunk)


@plant("A20", "tests/cases/windows/copy_system_time_sliding.case")
def retention_sees_no_ticks(patch: Patch) -> None:
    patch.setattr(keyed, "clock_of", lambda *_: Clock.NONE)


@plant("A27", "tests/cases/windows/join_kinds.case")
def every_join_is_an_inner_one(patch: Patch) -> None:
    rules = joins._rules
    patch.setattr(joins, "_rules", lambda declared, *rest: rules(replace(declared, kind=JoinKind.INNER), *rest))


@plant("A29", "tests/cases/windows/union_strict.case")
def every_union_is_loose(patch: Patch) -> None:
    begin = unions.UnionOperator.__init__

    def loose(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._is_loose = True

    patch.setattr(unions.UnionOperator, "__init__", loose)


@plant("A35", "tests/cases/windows/union_diamond.case")
def edges_are_taken_in_no_order(patch: Patch) -> None:
    patch.setattr(unions, "merge_chunks", lambda inputs: merge_chunks(inputs[::-1]))


@plant("A44", "tests/ha/test_joining.py::test_a_changed_project_is_refused_with_the_difference_and_two_ways_on")
def a_group_does_not_keep_what_it_agreed_on(patch: Patch) -> None:
    patch.setattr(MemoryCoordinationClient, "set_fact_once", lambda self, group, name, value: value)


@plant("C7", "tests/contract/test_coordination.py::test_two_groups_never_meet[memory]")
def all_groups_share_an_election(patch: Patch) -> None:
    group = MemoryCoordination.group
    patch.setattr(MemoryCoordination, "group", lambda self, name: group(self, "g"))


@plant("E15", "tests/ha/test_joining.py::test_lost_positions_are_named_with_the_retention_that_would_have_been_enough")
def a_topic_never_says_what_it_lost(patch: Patch) -> None:
    patch.setattr(MemoryBusClient, "begin_offset", lambda self, partition: 0)


@plant("E16", "tests/contract/test_producer.py::test_a_newer_epoch_fences_older_ones_and_they_write_nothing[memory]")
def an_old_epoch_may_publish(patch: Patch) -> None:
    patch.setattr(MemoryProducer, "_check_fence", lambda self, epoch: None)


@plant("F15", "tests/cases/windows/bad_rows.case")
def bad_events_are_dropped(patch: Patch) -> None:
    feed = Pipeline.feed

    def silent(self: Pipeline, decoded: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        return {stream: rows for stream, rows in feed(self, decoded).items() if stream != BAD_STREAM}

    patch.setattr(Pipeline, "feed", silent)


@plant("H10", "tests/model/test_retention_needs.py::test_a_topic_as_long_as_the_window_is_not_warned_of[1799999-1]")
def no_window_asks_more_than_a_topic_keeps(patch: Patch) -> None:
    patch.setattr(retention_needs, "_exceeds_retention", lambda need, retention_ms: False)


@plant("I15", "tests/adapters/test_changelog_reading.py::test_i15_only_deletes_by_retention_are_dropped")
def every_row_is_written(patch: Patch) -> None:
    patch.setattr(RowChoice, "select_rows", lambda self, batch, update_open: batch)


@plant("Z9", "tests/ha/test_committed.py::test_a_wrong_spare_that_lags_is_noticed_while_it_lags")
def nobody_compares(patch: Patch) -> None:
    patch.setattr(committed, "_compare", lambda state, ports, stream, progress: False)


@plant("Z10", "tests/ha/test_held.py::test_beyond_its_memory_it_goes_to_disk_and_comes_back")
def what_is_held_has_no_bound(patch: Patch) -> None:
    patch.setattr(HeldOutputs, "_keep_budget", lambda self, streams: 0)


class _Endings:
    """Hears of each test how it ended."""

    def __init__(self) -> None:
        self.found: list[Ending] = []

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is not None:
            is_own = call.when == "call" and call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
            self.found.append(Ending.FAILED if is_own else Ending.BROKEN)
        elif call.when == "call":
            self.found.append(Ending.PASSED)


def ending(nodes: list[str]) -> Ending:
    """The worst ending of any of the tests; broken where none ran."""
    heard = _Endings()
    pytest.main([*nodes, "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly"], plugins=[heard])
    order = (Ending.BROKEN, Ending.FAILED, Ending.PASSED)
    return next((each for each in order if each in heard.found), Ending.BROKEN)


def runs() -> Iterator[tuple[str, Ending]]:
    yield "", ending(sorted({each.node for each in PLANTS.values()}))
    for name, each in PLANTS.items():
        with Patch.context() as patch:
            each.put(patch)
            read_case.cache_clear()  # a plan that was compiled without the plant would not have it
            yield name, ending([each.node])


if __name__ == "__main__":
    os.chdir(ROOT)
    for name, end in runs():
        sys.stderr.write(json.dumps({"plant": name, "ending": end.value}) + "\n")
