"""Spark SQL expressions give Spark's own answers (DESIGN section 3), ANSI mode on, over random rows; and fail where Spark fails.

Known differences, left out here and named in docs/expressions.md: numbers with a point are doubles, money keeps its 18 digits,
floor and ceil of what does not fit int64 fail, case conversion goes character by character, regular expressions are RE2's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException, DateTimeException, NumberFormatException, SparkRuntimeException

from hotspare.model.types import FieldType
from hotspare.runners.spark.session import Session, SessionOptions
from tests.unit.expressions.random_sql import expressions
from tests.unit.expressions.samples import SCHEMA, SQL, compiled, with_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING
STAMP, DATE, MONEY = FieldType.STAMP, FieldType.DATE, FieldType.MONEY
ROWS, SEED = 400, 20_241_017
RANDOM, RANDOM_FAILING = 300, 12
FAILURES_CHECKED = 1
"""Rows per expression that fail here and are shown to Spark one by one."""

EXACT: list[tuple[str, FieldType]] = [
    ("a + b", I64),
    ("a - b", I64),
    ("a * b", I64),
    ("b * b", I32),
    ("a / b", F64),
    ("x / b", F64),
    ("a div b", I64),
    ("a % b", I64),
    ("b % a", I64),
    ("x % b", F64),
    ("-a", I64),
    ("abs(b)", I32),
    ("ceil(b / 3D)", I64),
    ("floor(b / 3D)", I64),
    ("round(x / 1e305D)", F64),
    ("sqrt(x)", F64),
    ("sign(x)", F64),
    ("greatest(a, b, x)", F64),
    ("least(x, a)", F64),
    ("greatest(s, 'm')", STR),
    ("cast(x > b as int)", I32),
    ("cast(x = x as int)", I32),
    ("cast(s < 'x' as int)", I32),
    ("cast(a <=> b as int)", I32),
    ("cast(b in (0, 1, null) as int)", I32),
    ("cast(b between -1 and 1 as int)", I32),
    ("cast(a > 0 and b > 0 as int)", I32),
    ("cast(a > 0 or b > 0 as int)", I32),
    ("cast(not (a > 0) as int)", I32),
    ("cast(x is null as int)", I32),
    ("cast(isnan(x) as int)", I32),
    ("if(b <> 0, a div b, 0)", I64),
    ("case when b > 1 then 'x' when b < -1 then s end", STR),
    ("case b when 0 then 1 when 1 then 2 else 3 end", I32),
    ("coalesce(x, a, 1)", F64),
    ("nullif(b, 1)", I32),
    ("nvl2(s, a, b)", I64),
    ("trim(s)", STR),
    ("length(s)", I32),
    ("substring(s, b, 2)", STR),
    ("substring(s, 2)", STR),
    ("substring(s, -3, 2)", STR),
    ("substring(s, 0, 2)", STR),
    ("left(s, b)", STR),
    ("right(s, b)", STR),
    ("reverse(s)", STR),
    ("s || '!'", STR),
    ("concat_ws('-', s, 'x', s)", STR),
    ("concat_ws('-', nullif(s, s), nullif(s, s))", STR),
    ("concat_ws('-')", STR),
    ("round(b, -1)", I32),
    ("round(x, 2)", F64),
    ("cast(contains(s, '1') as int)", I32),
    ("cast(startswith(s, ' ') as int)", I32),
    ("cast(endswith(s, s) as int)", I32),
    ("instr(s, '1')", I32),
    ("replace(s, '1', '--')", STR),
    ("cast(s like '%1_' as int)", I32),
    ("cast(s rlike '[0-9]+' as int)", I32),
    ("translate(s, '1x', 'ab')", STR),
    ("lpad(s, b % 100, '0-')", STR),
    ("rpad(s, 5, 'ab')", STR),
    ("repeat(s, b % 5)", STR),
    ("ascii(s)", I32),
    ("levenshtein(s, '12')", I32),
    ("substring_index(s, '1', 1)", STR),
    ("substring_index(s, '1', b % 3)", STR),
    ('get_json_object(\'{"a": [1, {"b": "x"}], "c": null}\', \'$.a[1].b\')', STR),
    ("get_json_object(s, '$.a')", STR),
    ("url_encode(s)", STR),
    ("url_decode(url_encode(s))", STR),
    ("md5(s)", STR),
    ("sha1(s)", STR),
    ("sha2(s, 512)", STR),
    ("crc32(s)", I64),
    ("year(t)", I32),
    ("quarter(t)", I32),
    ("month(t)", I32),
    ("day(t)", I32),
    ("dayofyear(t)", I32),
    ("dayofweek(t)", I32),
    ("weekday(t)", I32),
    ("hour(t)", I32),
    ("minute(t)", I32),
    ("second(t)", I32),
    ("unix_seconds(t)", I64),
    ("unix_micros(t)", I64),
    ("timestamp_seconds(b)", STAMP),
    ("date_trunc('week', t)", STAMP),
    ("date_trunc('quarter', t)", STAMP),
    ("date_trunc('minute', t)", STAMP),
    ("cast(s as int)", I32),
    ("cast(s as bigint)", I64),
    ("cast(s as double)", F64),
    ("try_cast(s as int)", I32),
    ("cast(x as int)", I32),
    ("cast(x as bigint)", I64),
    ("cast(a as int)", I32),
    ("cast(a as string)", STR),
    ("cast(x as string)", STR),
    ("cast(t as string)", STR),
    ("cast(t as bigint)", I64),
    ("cast(b as timestamp)", STAMP),
    ("cast(m as bigint)", I64),
    ("cast(m as double)", F64),
    ("cast(m as string)", STR),
    ("cast(m + m as decimal(18,4))", MONEY),
    ("cast(m * m as decimal(18,4))", MONEY),
    ("cast(b as decimal(18,4))", MONEY),
    ("cast(cast(b as boolean) as int)", I32),
]
NEAR: list[tuple[str, FieldType]] = [
    ("exp(b)", F64),
    ("ln(abs(x))", F64),
    ("log10(b)", F64),
    ("log(2, b)", F64),
    ("pow(b, 3)", F64),
    ("sin(b)", F64),
    ("cos(b)", F64),
    ("tan(b)", F64),
]
"""Functions of the mathematics library, which may differ in the last digit."""


def random_rows() -> pa.Table:
    draw = random.Random(SEED)

    def some(*values: object) -> object:
        return draw.choice([None, *values, *values])

    texts = ["", "x", " 12 ", "1", "-1", "1.5", "2147483648", "äöü1z", "NaN", "1e3", " ", "99999999999999999999", "0"]
    rows = [
        (
            some(0, 1, -1, 7, 2**63 - 1, -(2**63), draw.randint(-(10**12), 10**12)),
            some(0, 1, -1, 3, -3, 2**31 - 1, -(2**31), draw.randint(-100, 100)),
            some(0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 1e300, draw.uniform(-1e6, 1e6), draw.uniform(-1, 1)),
            some(*texts),
            some(0, -1, 1_729_154_425_123_456, draw.randint(-(2 * 10**15), 4 * 10**15), draw.randint(0, 4 * 10**9) * 10**6),
            some(0, draw.randint(-(10**9), 4 * 10**9)),
            some("0.0000", "1.5000", "-2.0001", "99999999999999.9999", f"{draw.randint(-(10**9), 10**9)}.1234"),
        )
        for _ in range(ROWS)
    ]
    columns = dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True))
    stamp, utc = pa.timestamp("us"), pa.timestamp("us", "UTC")
    return pa.table(
        {
            "a": pa.array(columns["a"], pa.int64()),
            "b": pa.array(columns["b"], pa.int32()),
            "x": pa.array(columns["x"], pa.float64()),
            "s": pa.array(columns["s"], pa.string()),
            "t": pa.array(columns["t"], pa.int64()).cast(stamp).cast(utc),
            "d": pa.array(columns["d"], pa.int64()).cast(pa.timestamp("s")).cast(utc),
            "m": pa.array(columns["m"], pa.string()).cast(pa.decimal128(18, 4)),
        }
    )


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = Session(SessionOptions(cores=1))
    try:
        session.spark.conf.set("spark.sql.session.timeZone", "UTC")
        session.spark.conf.set("spark.sql.ansi.enabled", "true")
        yield session.spark
    finally:
        session.stop()


@dataclass(frozen=True)
class Question:
    """An expression, what it gives here, and how far Spark's answer may lie from it."""

    text: str
    values: pa.Array
    failed: list[int]
    tolerance: float


@pytest.mark.spark
def test_spark_gives_the_same_answers(spark: SparkSession) -> None:
    table = random_rows()
    questions = [asked(table, text, target, 0.0) for text, target in EXACT]
    questions += [asked(table, text, target, 4e-15) for text, target in NEAR]
    sure = [question for question in questions if not question.failed]
    wrong = compared(spark, table, sure, list(range(len(table))))
    for question in questions:
        if question.failed:
            wrong += compared(spark, table, [question], [row for row in range(len(table)) if row not in set(question.failed)])
            wrong += refused(spark, table, question)
    assert not wrong, "\n".join(wrong)


@pytest.mark.spark
def test_spark_gives_the_same_answers_to_random_expressions(spark: SparkSession) -> None:
    """Nested, so that what one function gives is what another one takes. One query for those on which no row fails, and one each
    for the others."""
    table = random_rows()
    questions = [asked(table, text, target, 0.0) for text, target in expressions(RANDOM, SEED)]
    wrong = compared(spark, table, [question for question in questions if not question.failed], list(range(len(table))))
    for question in [question for question in questions if question.failed][:RANDOM_FAILING]:
        wrong += compared(spark, table, [question], [row for row in range(len(table)) if row not in set(question.failed)])
        wrong += refused(spark, table, question)
    assert not wrong, "\n".join(wrong)


def asked(table: pa.Table, text: str, target: FieldType, tolerance: float) -> Question:
    columns = {name: table.column(name).combine_chunks() for name in SCHEMA.names}
    columns["t"] = columns["t"].cast(pa.timestamp("us"))
    columns["d"] = columns["d"].cast(pa.timestamp("us")).cast(pa.timestamp("s"))
    values, failures = compiled(text, SQL, target).evaluate(with_events(columns, len(table)), len(table))
    return Question(text, values, [failure.row for failure in failures], tolerance)


def compared(spark: SparkSession, table: pa.Table, questions: list[Question], rows: list[int]) -> list[str]:
    """Where Spark answers something else about `rows`, in one query."""
    if not rows or not questions:
        return []
    theirs = answers(spark, table.take(rows), [question.text for question in questions])
    if isinstance(theirs, str):
        return [f"{[q.text for q in questions]}: Spark refuses a row that is accepted here: {theirs}"]
    lines: list[str] = []
    for question, his in zip(questions, theirs.columns, strict=True):
        his = his.cast(pa.timestamp("us")) if pa.types.is_timestamp(his.type) else his
        mine = question.values.take(pa.array(rows)).cast(his.type)
        pairs = zip(rows, mine.to_pylist(), his.to_pylist(), strict=True)
        differ = [(row, a, b) for row, a, b in pairs if not alike(a, b, question.tolerance)]
        lines += [f"{question.text} of {table.slice(row, 1).to_pylist()[0]}: {a}, Spark {b}" for row, a, b in differ[:2]]
    return lines


def refused(spark: SparkSession, table: pa.Table, question: Question) -> list[str]:
    """Where Spark answers although the row fails here."""
    lines: list[str] = []
    for row in question.failed[:FAILURES_CHECKED]:
        found = answers(spark, table.slice(row, 1), [question.text])
        if not isinstance(found, str):
            lines.append(f"{question.text} of {table.slice(row, 1).to_pylist()[0]}: fails, Spark {found.to_pylist()}")
    return lines


def answers(spark: SparkSession, table: pa.Table, texts: list[str]) -> pa.Table | str:
    """Spark's values, a column per expression, or how it fails."""
    named = [f"{text} as v{i}" for i, text in enumerate(texts)]
    try:
        return spark.createDataFrame(table).selectExpr(*named).toArrow()
    except (ArithmeticException, NumberFormatException, DateTimeException, SparkRuntimeException) as error:
        return str(error)[:150]


def alike(mine: object, his: object, tolerance: float) -> bool:
    if isinstance(mine, float) and isinstance(his, float):
        if math.isnan(mine) or math.isnan(his):
            return math.isnan(mine) and math.isnan(his)
        if math.isinf(mine) or not tolerance:
            return mine == his and math.copysign(1, mine) == math.copysign(1, his)
        return abs(mine - his) <= tolerance * max(abs(mine), abs(his))
    return mine == his
