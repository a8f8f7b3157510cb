"""`hotspare.spark.apply` in a real session: its outputs are those of `hotspare replay` over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from hotspare.base.errors import ProjectError, UsageError
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.publishing import with_published_windows
from hotspare.model.types import FieldType
from hotspare.projects.load import LoadedProject, load_project, load_text
from hotspare.projects.resolve import resolve
from hotspare.spark import OnBadEvents, apply
from hotspare.spark.columns import Meta
from tests.laws.any_tables import SECOND, AnyTable, Kind, Values, any_table, comparable, replayed, time_field_of
from tests.spark_sessions import Lender

pytestmark = pytest.mark.spark

CASES = Path(__file__).parents[2] / "cases" / "windows"


@pytest.fixture(scope="module")
def spark(lender: Lender) -> Any:
    session = lender.spark
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


def frame(spark: Any, table: AnyTable, random: Random) -> Any:
    """Returns the rows as a DataFrame, in another order."""
    rows = list(range(len(table)))
    random.shuffle(rows)
    mixed, meta = table.taken(rows), Meta.for_schema(table.schema)
    columns = {}
    for field, column in zip(table.schema.fields, mixed.fields, strict=True):
        is_time = field.type in (FieldType.DATE, FieldType.STAMP)
        columns[field.name] = column.cast(pa.timestamp("us", "UTC")) if is_time else column
    columns |= {meta.opcode: mixed.opcode, meta.flags: mixed.flags, "place": pa.array(rows, pa.int64())}
    return spark.createDataFrame(pa.table(columns)).repartition(3)


def in_order(table: AnyTable) -> AnyTable:
    """Returns the rows by time, and among equals by all fields, opcode and flags, as Spark compares them."""
    columns = [*table.fields, table.opcode, table.flags]
    doubles = [c for f, c in zip(table.schema.fields, table.fields, strict=True) if f.type is FieldType.DOUBLE]
    values = list(zip(*(map(rank, column.to_pylist()) for column in columns), strict=True))
    signs = list(zip(*(map(repr, column.to_pylist()) for column in doubles), strict=True)) or [()] * len(table)
    times = [0] * len(table) if table.times_us is None else table.times_us.to_pylist()
    return table.taken(sorted(range(len(table)), key=lambda row: (times[row], values[row], signs[row])))


def rank(value: Any) -> tuple[Any, ...]:
    """Returns a sort key: null first, NaN last, text by its bytes, arrays by their elements."""
    if value is None:
        return (0,)
    if isinstance(value, float) and value != value:
        return (2,)
    if isinstance(value, list):
        return (1, tuple(map(rank, value)))
    return (1, value.encode() if isinstance(value, str) else value)


def values(table: Any) -> list[Values]:
    """Returns the outputs of a DataFrame in their order, shard by shard."""
    found = table.toArrow()
    *names, shard, sequence = found.schema.names
    found = found.sort_by([(shard, "ascending"), (sequence, "ascending")]).combine_chunks()
    opcode, flags, *fields = (found[name].combine_chunks() for name in names)
    return list(zip(opcode.to_pylist(), flags.to_pylist(), *map(comparable, fields), strict=True))


def loaded_case(name: str) -> tuple[LoadedProject, Plan]:
    """Returns a case's project with every window published."""
    loaded = load_text((CASES / f"{name}.case").read_text().partition("\n---\n")[0])
    project = with_published_windows(loaded.project, {window.id for window in loaded.resolved.windows})
    return LoadedProject(project, resolve(project), ()), compile_plan(resolve(project))


@pytest.mark.parametrize(
    "name",
    [
        "source_types",
        "copy_event_time_jumping",
        "aggregate_timed",
        "pattern_failed_logins",
        "two_sources",
        "join_kinds",
        "source_arrays",
    ],
)
def test_a_case_over_tables(name: str, spark: Any, tmp_path: Path) -> None:
    """The rows are in any order, ties included, of one source window and of several."""
    random = Random(name)
    loaded, plan = loaded_case(name)
    schemas = [plan.resolved.schema(source) for source in plan.resolved.sources]
    times = [time_field_of(schema) for schema in schemas]
    times = times if all(times) else [""] * len(times)
    tables = {i: in_order(any_table(s, random, 60, t)) for i, (s, t) in enumerate(zip(schemas, times, strict=True))}
    expected = replayed(plan, tables, tmp_path)
    sources = [str(source) for source in plan.resolved.sources]
    frames = {sources[i]: frame(spark, table, random) for i, table in tables.items()}
    # without times one file follows the other, row by row
    from pyspark.sql import functions as F

    frames = {name: table.withColumn("after", F.lit(i)) for i, (name, table) in enumerate(frames.items())}
    order: Mapping[str, Any] = {name: time or ["after"] for name, time in zip(sources, times, strict=True)}
    found = apply(loaded, frames, order_by=order, bad_events=OnBadEvents.KEEP)
    assert {name: values(table) for name, table in found.items()} == {name: expected.get(name, []) for name in found}
    assert set(plan.stream_schemas) == set(found)
    assert any(expected.values())


SHOP = """
project: shop
heartbeat: 500 milliseconds
queries:
  q:
    windows:
      orders: {type: source, schema: "id*:int64,customer*:int64,d:double,at:stamp", opcodes: insert-only, index: empty}
      customers: {type: source, opcodes: any, schema: "customer*:int64,name:string,since:stamp"}
      recent: {type: copy, retention: {bytime_sliding: 2 seconds}}
      named: {type: join, kind: leftouter, conditions: {customer: customer}, publish: true,
              outputs: {name: r_name, d: l_d}}
      sums: {type: aggregate, schema: "customer*:int64,n:int64,total:double", publish: true,
             outputs: {n: ESP_aCount(), total: ESP_aSum(d)}}
    edges: [orders -> recent, recent -> sums, recent -> named as left, customers -> named as right]
"""


def shop_tables(random: Random) -> dict[int, AnyTable]:
    """Returns the tables by topic: customers, then orders."""
    resolved = load_text(SHOP).resolved
    return {
        topic: in_order(
            any_table(
                resolved.schema(source),
                random,
                rows,
                time_field_of(resolved.schema(source)),
                Kind.INSERTS if topic == 1 else Kind.CHANGELOG,
            )
        )
        for topic, (source, rows) in enumerate(zip(resolved.sources, (20, 80), strict=True))
    }


def test_rows_divided_by_key_give_each_key_the_same(spark: Any, tmp_path: Path) -> None:
    """SPEC K4. Two source windows, joined; time-based deletes occur at the same heartbeats in every shard."""
    random = Random(5)
    tables = shop_tables(random)
    expected = replayed(compile_plan(load_text(SHOP).resolved), tables, tmp_path)
    frames = {"q/customers": frame(spark, tables[0], random), "q/orders": frame(spark, tables[1], random)}
    order = {"q/customers": "since", "q/orders": "at"}
    found = apply(SHOP, frames, order_by=order, partition_by="customer", partitions=4, bad_events=OnBadEvents.KEEP)
    schemas = compile_plan(load_text(SHOP).resolved).stream_schemas
    for name in ("q/sums", "q/named"):
        key = 2 + schemas[name].names.index("customer")
        assert by_key(values(found[name]), key) == by_key(expected[name], key), name
        assert len(found[name].select("shard").distinct().collect()) > 1


def by_key(outputs: list[Values], place: int) -> dict[object, list[Values]]:
    keys: dict[object, list[Values]] = {}
    for output in outputs:
        keys.setdefault(output[place], []).append(output)
    return keys


LOG = """
project: log
queries:
  q:
    singletons: included
    windows:
      given: {type: source, schema: "id*:int64,x:double,at:date,cost:money", opcodes: insert-only, index: empty, publish: true}
    edges: []
"""


def test_columns_of_other_types_that_fit(spark: Any) -> None:
    """SPEC A6. Shorter numbers, days and times without a zone, which are UTC; a date drops the fraction; other columns are
    ignored."""
    given = spark.sql(
        "select cast(i as smallint) ID, cast(i as float) x, timestamp_ntz'2020-01-01 00:00:00.9' + make_dt_interval(0, 0, 0, i) at,"
        " cast(1.5 as decimal(3,1)) cost, 'more' other from (values (2), (1)) as t(i)"
    )
    (table,) = apply(LOG, {"q/given": given}, order_by="at").values()
    rows = table.select("id", "x", "at", "cost", "opcode", "sequence").toArrow()
    at = [moment.timestamp() for moment in rows["at"].to_pylist()]
    assert at == [1577836801.0, 1577836802.0]
    assert [str(row) for row in rows["cost"].to_pylist()] == ["1.5000", "1.5000"]
    assert (rows["id"].to_pylist(), rows["opcode"].to_pylist(), rows["sequence"].to_pylist()) == ([1, 2], ["I", "I"], [1, 2])
    assert table.schema["at"].dataType.simpleString() == "timestamp"
    days = given.withColumn("at", given["at"].cast("date"))
    assert [m.timestamp() for m in apply(LOG, {"q/given": days}, order_by="at")["q/given"].toArrow()["at"].to_pylist()] == [
        1577836800.0
    ] * 2


def test_a_refused_row_is_named_on_the_driver(spark: Any) -> None:
    given = spark.sql("select cast(null as bigint) id, 1.5d x, timestamp'2020-01-01' at, 1 cost")
    with pytest.raises(Exception, match=r"window q/given refuses a row \(null-key\)") as raised:
        apply(LOG, {"q/given": given}, order_by="at")["q/given"].collect()
    assert "1.5" in str(raised.value)


def test_what_does_not_fit_is_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    fitting = spark.sql("select 1L id, 1.5d x, timestamp'2020-01-01' at, 1 cost, 'i' opcode")
    path = tmp_path / "log.yaml"
    path.write_text(LOG)
    for message, tables, more in (
        ("no source window q/givn", {"q/givn": fitting}, {}),
        ("no table is given", {}, {}),
        ("has no column cost", {"q/given": fitting.drop("cost")}, {}),
        ("has no column when", {"q/given": fitting}, {"order_by": "when"}),
        ("column x of the table of q/given is decimal", {"q/given": fitting.selectExpr("id", "1.5 x", "at", "cost")}, {}),
        (
            "column opcode of the table of q/given has type int",
            {"q/given": fitting.selectExpr("id", "x", "at", "cost", "1 opcode")},
            {},
        ),
        ("names no column that orders", {"q/given": fitting}, {"order_by": []}),
        ("no window q/gone", {"q/given": fitting}, {"outputs": ["q/gone"]}),
        ("several columns named x", {"q/given": fitting.selectExpr("*", "2.5d X")}, {}),
        ("several columns named opcode", {"q/given": fitting.selectExpr("*", "'d' opcode")}, {}),
        ("is a str, not a DataFrame", {"q/given": "given.parquet"}, {}),
        ("q/given is streaming", {"q/given": spark.readStream.format("rate").load()}, {}),
    ):
        with pytest.raises(UsageError, match=message):
            apply(path, tables, **{"order_by": "at", **more})
    of_no_field = fitting.selectExpr("*", "1 more", "2 more")
    assert apply(path, {"q/given": of_no_field}, order_by="at")["q/given"].columns[:3] == ["opcode", "flags", "id"]
    with pytest.raises(ProjectError, match="window q/given cannot be partitioned: its field x is a double"):
        apply(path, {"q/given": fitting}, order_by="at", partition_by="x")
    frames = {"q/orders": spark.sql("select 1L id, 1L customer, 1d d, timestamp'2020-01-01' at")}
    frames["q/customers"] = spark.sql("select 1L customer, 'a' name, timestamp'2020-01-01' since")
    with pytest.raises(UsageError, match="rows of q/orders cannot be ordered among those of q/customers"):
        apply(SHOP, frames, order_by={"q/orders": "at", "q/customers": "name"})


def test_a_table_larger_than_a_batch_streams_through(spark: Any) -> None:
    """Outputs are emitted while rows still arrive; none is lost or doubled over many batches."""
    given = spark.range(300_000).selectExpr("id", "id / 2 x", "timestamp_micros(id * 1000) at", "1 cost")
    (table,) = apply(LOG, {"q/given": given}, order_by="at").values()
    count, least, most, numbers = table.selectExpr("count(*)", "min(id)", "max(id)", "count(distinct sequence)").collect()[0]
    assert (count, least, most, numbers) == (300_000, 0, 299_999, 300_000)


def test_a_file_is_a_project_too(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    path.write_text(LOG)
    given = spark.sql("select 1L id, 1.5d x, timestamp'2020-01-01' at, 1 cost")
    by_file = apply(path, {"q/given": given}, order_by="at")["q/given"].collect()
    assert by_file == apply(load_project(path), {"q/given": given}, order_by="at")["q/given"].collect()
    assert by_file[0]["at"].timestamp() * SECOND > 0
