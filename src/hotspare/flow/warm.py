"""Loads the kernels of window types before they are needed, by running an example of each type.

An engine that had to compile kernels while it runs would appear dead to the other engines. `host.kernels` compiles kernels that are
missing on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.formats.json.decode import decode_json
from hotspare.model.delivery import WHOLE_STREAM
from hotspare.model.resolved import Resolved
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_type import type_of
from hotspare.projects.load import load_text
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat
from hotspare.rows.chunk import Chunk
from hotspare.stages.delivery import delivered
from hotspare.table.loops import groups, multi_index, prefetch, unlinked, unloaded
from hotspare.table.loops.pages import slots_before_gap_check
from hotspare.table.relation import Relation, Shape
from hotspare.table.row_index import empty_index, empty_lists
from hotspare.table.strings import StringTable
from hotspare.table.unlinked import no_runs
from hotspare.windows.registry import WINDOW_TYPES, examples_project

_OPCODES = ("I", "I", "I", "P", "D", "I", "P", "U", "SafeDelete", "I")
"""Opcodes of the example rows. A long word loads the kernel for texts that are not of a simple form."""
_FEW, _FEW_TIMES = 7, 40
"""The rows per step, and the number of these small steps, which load the kernels for few rows. These steps cover the first message
of each source. All remaining rows are one step, which saves half a second at the start of each engine."""
_SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY),))
_NUMBERS = (1, 2, 3, 1, 2, 3, 4, 4, 3, 0)
"""The key of each example row, in the order of `_OPCODES`; 0 is null."""


def warm_up() -> None:
    """Loads every kernel, and compiles missing kernels in this process."""
    run_examples(WINDOW_TYPES)


def types_of(project: Resolved) -> list[str]:
    """Returns the window types that a project uses, in the order of the registry."""
    used = {type_of(each.window).name for each in project.windows}
    return [name for name in WINDOW_TYPES if name in used]


def run_examples(types: Iterable[str]) -> None:
    """Processes example events with windows of these types, takes a snapshot, restores it, and continues: this loads the kernels
    that these types use."""
    plan = compile_plan(load_text(examples_project(types)).resolved)
    head = Head.from_plan(plan)
    pipeline = Pipeline.fresh(plan)
    steps = itertools.count()
    for _ in pipeline.compute_parts(
        head.decode(batch(plan, 0)), take=lambda rows: min(rows, _FEW) if next(steps) < _FEW_TIMES else rows
    ):
        pass
    frozen = pipeline.freeze()
    restored = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
    for outputs in restored.feed(head.decode(batch(plan, 1))).values():  # parts that no snapshot has are rebuilt at the first use
        rows_to_csv(outputs, CsvStyle.EXACT)
    restored.collect_all_strings()
    strings = StringTable()
    strings.intern(pa.array(["x" * 100_000, "y" * 100_000]))
    strings.move_text(strings.sparse_pages(), 1, 1)
    one = np.zeros(1, np.int64)
    decode_json(pa.array([b'{"id":1}', b"1"], pa.binary()), _SCHEMA)
    delivered(Chunk.empty(1), WHOLE_STREAM)
    prefetch.find_evicted_slots(empty_index(), one.reshape(1, 1), one, np.int64(1), np.zeros(1, np.uint8), np.zeros(1, np.int64))
    _run_unloaded_kernels()


def _run_unloaded_kernels() -> None:
    """Calls the kernels of unloaded pages. The restore in `run_examples` calls none of them, because a state with so few pages
    leaves none in the store."""
    rows = Relation(Shape(1, (0,), ())).pages.rows
    number, half, page = np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1, np.uint8)
    unloaded.key_halves(number.reshape(1, 1), number, half)
    unloaded.mark_outline(np.zeros(unloaded.OUTLINE_WORDS, np.uint32), half)
    unloaded.may_have_half(np.zeros(unloaded.OUTLINE_WORDS, np.uint32), half)
    unloaded.scan_key_filter(half, number + 1, number, page, half, np.zeros(1 << unloaded.FILTER_BITS >> 6, np.uint64), page)
    unloaded.index_key_filter(empty_index(), half, number + 1, number, page, 0)
    unloaded.look_up_pages(empty_index(), half, page, page)
    unloaded.rows_before_gap_check(rows.state)
    unloaded.page_to_clear(rows)
    slots_before_gap_check(rows.state)
    unlinked.add_run(rows, no_runs(1), np.int64(0), number[:0])
    unlinked.link_waiting(rows, no_runs(1), np.int64(0), np.int64(0))
    side = Relation(Shape(1, (0,), (), (0,))).pages.rows
    multi_index.admit_all(empty_lists(side, multi_index.LINKS_WIDTH), number[:0], np.int64(0))
    groups.admit_groups(empty_lists(side, groups.LINKS_WIDTH), number[:0], np.int64(0))


def batch(plan: Plan, turn: int) -> pa.RecordBatch:
    """Returns raw rows of every source window: three messages and two ticks each. The rows of turn `turn` follow those of `turn` -
    1."""
    rows = []
    for topic, source in enumerate(plan.resolved.sources):
        text = _rows(plan.resolved.schema(source))
        for row, is_tick in enumerate((False, False, True, False, True)):
            offset = 5 * turn + row
            rows.append((topic, 0, offset, 1_000_000 * offset, is_tick, int(MessageFormat.CSV), b"" if is_tick else text))
    columns = [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), RAW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def _rows(schema: Schema) -> bytes:
    """Returns CSV events of this schema that use every opcode, on repeated keys."""
    return b"\n".join(
        f"{opcode},N,{','.join(_value(field.type, number) for field in schema.fields)}".encode()
        for opcode, number in zip(_OPCODES, _NUMBERS, strict=True)
    )


def _value(type_: FieldType, number: int) -> str:
    if not number:
        return ""
    return str(number * 1_000_000) if type_ is FieldType.STAMP else str(number)
