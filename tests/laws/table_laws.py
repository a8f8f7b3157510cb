"""Law Runner for tables as a function of a graph and a seed: tests try some, `make laws-search` any number."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pyarrow as pa

from hotspare.flow.plan import Plan
from hotspare.model.publishing import with_published_windows
from hotspare.rows.batch import BAD_STREAM
from hotspare.rows.letters import flag_letters, opcode_letters
from hotspare.spark.in_task import STEP_ROWS, OnBadEvents, ShardWork
from tests.laws.any_graphs import Graph
from tests.laws.any_tables import AnyTable, Values, any_table, comparable, replayed, task_batches, time_field_of

STEPS = (1, 7, STEP_ROWS)
BESIDE = ("hs:opcode", "hs:flags", "hs:shard", "hs:sequence")


def opaque_values(outputs: list[pa.RecordBatch]) -> list[Values]:
    """Returns the values of a task's outputs, as `any_tables.output_values`."""
    rows: list[Values] = []
    for batch in outputs:
        inner = [column for name, column in zip(batch.schema.names, batch.columns, strict=True) if name not in BESIDE]
        letters = opcode_letters(batch.column("hs:opcode")), flag_letters(batch.column("hs:flags"))
        rows += zip(*(column.to_pylist() for column in letters), *map(comparable, inner), strict=True)
    return rows


def check_all_streams(plan: Plan, tables: Mapping[int, AnyTable], random: Random) -> None:
    """Runs each stream by itself, as `apply` does."""
    project = plan.resolved.project
    with tempfile.TemporaryDirectory() as folder:
        expected = replayed(plan, tables, Path(folder))
    for stream in plan.stream_schemas:
        chosen = project
        if stream != BAD_STREAM:
            chosen = with_published_windows(project, {w.id for w in plan.resolved.windows if str(w.id) == stream})
        outputs = list(
            ShardWork.for_project(chosen, stream, OnBadEvents.KEEP, None).run(task_batches(tables, random), 0, random.choice(STEPS))
        )
        assert opaque_values(outputs) == expected.get(stream, []), stream
        numbers = [number for batch in outputs for number in batch.column("hs:sequence").to_pylist()]
        assert numbers == list(range(1, len(numbers) + 1))


def tables_differ(graph: Graph, seed: int) -> str | None:
    """Whether the outputs of a task differ from those of a replay, for any rows of this graph, cut anywhere, with ties and refused
    rows; None: they do not."""
    random, plan = Random(seed), graph.plan()
    schemas = [plan.resolved.schema(source) for source in plan.resolved.sources]
    tables = {i: any_table(s, random, random.randint(0, 40), time_field_of(s)) for i, s in enumerate(schemas)}
    try:
        check_all_streams(plan, tables, random)
    except Exception:
        return f"tables: {traceback.format_exc()}"
    return None
