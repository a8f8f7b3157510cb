"""Runs a project over tables as a plan of Spark: divides the rows of all source windows by key, orders them, and runs the engine's
core over each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.base.choices import RunUntil
from hotspare.base.errors import Mistake, ProjectError, UsageError
from hotspare.base.places import absolute_path
from hotspare.flow.plan import compile_plan
from hotspare.host.project import checked_project
from hotspare.model.names import nearest_names_hint
from hotspare.model.partitioning import obstacles, partition_fields
from hotspare.model.project import WindowId
from hotspare.model.publishing import with_published_windows
from hotspare.model.resolved import Resolved
from hotspare.projects.load import LoadedProject, home_properties, load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import BAD_STREAM
from hotspare.rows.letters import FLAG_TEXTS, OPCODE_TEXTS
from hotspare.runners.spark.private import OnBatches, map_in_arrow, run_this_python
from hotspare.spark.columns import Meta, table_type
from hotspare.spark.in_task import FLAGS, OPCODE, TOPIC, OnBadEvents, ShardWork, TimeRange, needs_ticks
from hotspare.spark.source_tables import Names, SourceTable, check_static, order_column, ordered_by, ties_completed
from hotspare.windows.shared.expressions import expression_mistakes

_KEY = "key"


def apply(
    project: LoadedProject | Path | str,
    tables: Mapping[str, DataFrame],
    *,
    order_by: Names | Mapping[str, Names],
    partition_by: str | Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    partitions: int | None = None,
    bad_events: OnBadEvents = OnBadEvents.FAIL,
    properties: Mapping[str, str] | None = None,
    until: RunUntil = RunUntil.END,
) -> dict[str, DataFrame]:
    """Returns the outputs of a project over tables, by window: those of `hotspare replay` over the same rows in the same order.

    `project` is a loaded one, a file, or the text of one (YAML or ESP XML); `properties` are as in `--set`. `tables` are by source
    window, `query/window`; windows without one get no rows. A table has a column for each field of its window. Other columns are
    ignored, except `opcode` and `flags`, the kind of the event (`hs:opcode` if the window has a field of that name). Without them
    every row is an insert.

        order_by      columns by which rows are ordered, for all tables or by window; equal rows are ordered by window, then by all
                      fields. If the first column is a time, it is the system time of its row, and heartbeats occur in between;
                      otherwise time does not pass.
        partition_by  the field by which rows are divided, for all windows or by window; the outputs of a key do not depend on it. A
                      project that cannot be divided in this way is refused. Without it one task gets all rows.
        outputs       the windows to return, by default those that the project publishes.
        partitions    the number of parts; by default Spark's choice.
        bad_events    KEEP adds the table "bad" of events that were refused.
        until         after the last row time runs on until nothing waits for it; LAST_ROW stops it there.

    A table of outputs has `opcode` and `flags` (as in CSV), the window's fields, `shard`, and `sequence`, which orders the outputs
    of a shard. Each table runs the project when it is evaluated, as DataFrames do. If the project uses time and rows are divided,
    the first and the last time are computed at once. Raises UsageError or ProjectError if an argument does not fit the project.
    """
    loaded = _loaded(project, properties or {})
    resolved = loaded.resolved
    wanted = _wanted(resolved, outputs, bad_events)
    by = _per_window(partition_by, tables)
    _check_windows(resolved, tables)
    for name, table in tables.items():
        check_static(name, table)
    _check_division(resolved, by)
    given = [
        SourceTable.from_frame(topic, str(source), resolved.schema(source), tables[str(source)], ordered_by(order_by, str(source)))
        for topic, source in enumerate(resolved.sources)
        if str(source) in tables
    ]
    _check_orders(given)
    order, key = _order_columns(given), _key_column(given, by)
    rows = reduce(DataFrame.unionByName, _aligned(given, by, order, key))
    span = _time_range(rows, resolved, given[0], order) if by else None
    time = order[0] if given[0].has_time else ""
    divided = _divided(rows, order, time, key, partitions)
    return {name: _outputs(divided, loaded, name, bad_events, until, span, time) for name in wanted}


def _loaded(project: LoadedProject | Path | str, properties: Mapping[str, str]) -> LoadedProject:
    if isinstance(project, LoadedProject):
        return project
    is_file = isinstance(project, Path) or not ("\n" in project or project.lstrip().startswith("<"))
    if is_file:
        return checked_project(absolute_path(project), properties)
    given = {**home_properties(Path.cwd() / "project", None), **properties}
    return load_text(str(project), "", given, expressions=expression_mistakes, connectors=connector_mistakes)


def _wanted(resolved: Resolved, outputs: Sequence[str] | None, bad_events: OnBadEvents) -> list[str]:
    known = [str(window.id) for window in resolved.windows]
    wanted = list(outputs) if outputs is not None else [str(stream) for stream in resolved.streams]
    for name in wanted:
        if name not in known:
            raise UsageError(f"the project has no window {name}", hint=nearest_names_hint(name, known))
    if bad_events is OnBadEvents.KEEP:
        wanted.append(BAD_STREAM)
    if not wanted:
        raise UsageError("no output window was requested, and the project publishes none", hint="give outputs=[...]")
    return wanted


def _check_windows(resolved: Resolved, tables: Mapping[str, DataFrame]) -> None:
    sources = [str(source) for source in resolved.sources]
    for name in tables:
        if name not in sources:
            raise UsageError(f"the project has no source window {name}", hint=nearest_names_hint(name, sources))
    if not tables:
        raise UsageError("no table is given", hint=f"give one for {sources[0]}")


def _per_window(partition_by: str | Mapping[str, str] | None, tables: Mapping[str, DataFrame]) -> dict[str, str]:
    """Returns the field by which the rows of each window are divided, by window; {} if rows are not divided. Raises UsageError if a
    window has none.
    """
    if partition_by is None:
        return {}
    if isinstance(partition_by, str):
        return dict.fromkeys(tables, partition_by)
    for name in tables:
        if name not in partition_by:
            raise UsageError(f"partition_by names no field that divides the rows of {name}")
    return dict(partition_by)


def _check_division(resolved: Resolved, by: Mapping[str, str]) -> None:
    if not by:
        return
    said = {source: by[str(source)] for source in resolved.sources if str(source) in by}
    found = obstacles(resolved, {**partition_fields(resolved), **said})
    if found:
        mistakes = [Mistake(resolved.window(each.window).window.place, each.sentence, each.hint) for each in found]
        raise ProjectError(resolved.project.name, mistakes)


def _check_orders(given: Sequence[SourceTable]) -> None:
    first = given[0]
    for each in given[1:]:
        if each.order_types != first.order_types:
            raise UsageError(
                f"rows of {each.window} cannot be ordered among those of {first.window}",
                detail=f"they are ordered by {', '.join(each.order_types)} and by {', '.join(first.order_types)}",
                hint="name columns of the same types for both in order_by",
            )


def _order_columns(given: Sequence[SourceTable]) -> list[str]:
    """Returns the names of the tasks' columns that order the rows. With one table the columns of its fields are used where
    possible, so that no column is sent twice.
    """
    first = given[0]
    own = [first.as_field(name) if len(given) == 1 else "" for name in first.order]
    return [name or order_column(place) for place, name in enumerate(own)]


def _key_column(given: Sequence[SourceTable], by: Mapping[str, str]) -> str:
    """Returns the name of the tasks' column that divides the rows, "" if rows are not divided. With one table the column of the
    field is used if possible.
    """
    if not by:
        return ""
    first = given[0]
    return (first.field_as_key(by[first.window]) if len(given) == 1 else "") or _KEY


def _aligned(given: Sequence[SourceTable], by: Mapping[str, str], order: Sequence[str], key: str) -> Iterator[DataFrame]:
    """Yields the tables with the same columns, so that they can be united. Columns of other tables are null."""
    metas = [name for name in (OPCODE, FLAGS) if any(name in each.meta_column_names() for each in given)]
    keys = [each.key(by[each.window]) for each in given] if key == _KEY else []
    for number, each in enumerate(given):
        columns = [column for place, column in enumerate(each.orders()) if order[place] == order_column(place)]
        if keys:
            column, is_text = keys[number]
            as_text = not is_text and any(is_text for _, is_text in keys)
            columns.append((column.cast("string") if as_text else column).alias(_KEY))
        if len(given) > 1 or each.topic:
            columns.append(F.lit(each.topic).cast("int").alias(TOPIC))
        for other in given:
            if other is each:
                columns += each.fields()
            else:
                absent = other.table.select(other.fields()).schema.fields
                columns += [F.lit(None).cast(field.dataType).alias(field.name) for field in absent]
        yield each.table.select(*columns, *each.meta_columns(metas))


def _time_range(rows: DataFrame, resolved: Resolved, given: SourceTable, order: Sequence[str]) -> TimeRange:
    """Returns the first and the last time of the rows; (0, 0) if the project does not depend on time. Otherwise Spark computes them
    at once.
    """
    if not (given.has_time and needs_ticks(compile_plan(resolved))):
        return TimeRange(0, 0)
    first, last = rows.agg(F.min(order[0]), F.max(order[0])).collect()[0]
    return TimeRange(first or 0, last or 0)


def _divided(rows: DataFrame, order: Sequence[str], time: str, key: str, partitions: int | None) -> DataFrame:
    """Returns the rows with each shard in one partition and in order. Columns that served only to order or divide the rows are
    removed.
    """
    if not key:
        rows = rows.repartition(1)
    elif partitions is None:
        rows = rows.repartition(F.col(key))
    else:
        rows = rows.repartition(partitions, F.col(key))
    topic = [TOPIC] if TOPIC in rows.columns else []
    content = [name for name in rows.columns if name not in (*order, *topic, _KEY)]
    unknown = {_KEY, *map(order_column, range(len(order)))} - {time}
    return ties_completed(rows, [*order, *topic], content).select(*(name for name in rows.columns if name not in unknown))


def _outputs(
    rows: DataFrame, loaded: LoadedProject, name: str, bad_events: OnBadEvents, until: RunUntil, span: TimeRange | None, time: str
) -> DataFrame:
    """Returns the table of the output stream `name`. Spark runs the project when the table is evaluated."""
    project = loaded.project
    if name != BAD_STREAM:
        query, _, window = name.partition("/")
        project = with_published_windows(project, {WindowId(query, window)})
    work = ShardWork.for_project(project, name, bad_events, span, time, until)
    plan = compile_plan(resolve(project))
    schema = plan.stream_schemas[name]
    before, after = (("hs:opcode", "tinyint"), ("hs:flags", "tinyint")), (("hs:shard", "int"), ("hs:sequence", "bigint"))
    run_this_python(rows.sparkSession)
    found = map_in_arrow(rows, _in_task(work), table_type(schema, before, after))
    meta, (opcode, flags, *others) = Meta.for_schema(schema), found.columns
    # numbers are smaller to transfer, and Spark skips the letters of columns that are not selected
    letters = (_letters(OPCODE_TEXTS, found[f"`{opcode}`"]), _letters(FLAG_TEXTS, found[f"`{flags}`"]))
    rest = [found["`" + each.replace("`", "``") + "`"] for each in others]
    return found.select(*letters, *rest).toDF(meta.opcode, meta.flags, *schema.names, meta.shard, meta.sequence)


def _letters(texts: pa.Array, number: Column) -> Column:
    return F.element_at(F.array(*map(F.lit, texts.to_pylist())), number + 1)


def _in_task(work: ShardWork) -> OnBatches:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        yield from work.run(batches, context.partitionId() if context is not None else 0)

    return run
