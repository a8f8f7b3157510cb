"""Spark SQL expressions give Spark's own results, ANSI mode on, over random rows; and fail if Spark fails.

Known differences, excluded here and named in docs/expressions.md: numbers with a point are doubles, money keeps its 18 digits,
floor and ceil fail beyond int64, case conversion goes character by character, regular expressions are RE2's, padding or repeating
beyond a limit fails: Spark then runs out of memory, and never answers.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException, DateTimeException, NumberFormatException, SparkRuntimeException

from hotspare.expressions import arrays
from hotspare.expressions.function_table import FUNCTION_TABLE
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from tests.expressions.random_sql import FORMS, expressions
from tests.expressions.samples import ESP, FN, SCHEMA, SQL, compiled, with_events
from tests.spark_sessions import Lender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING
STAMP, DATE, MONEY = FieldType.STAMP, FieldType.DATE, FieldType.MONEY
ROWS, SEED = 300, 20_241_017
RANDOM = 300
REFUSALS_MAX = 10
"""The number of expressions with failing rows of which one such row is sent to Spark: each is a query of its own."""

EXACT: list[tuple[str, FieldType]] = [
    ("a + b", I64),
    ("a - b", I64),
    ("a * b", I64),
    ("b * b", I32),
    ("a / b", F64),
    ("x / b", F64),
    ("a div b", I64),
    ("a % b", I64),
    ("mod(a, 7)", I64),
    ("negative(b)", I32),
    ("positive(x)", F64),
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
    ("cast(isnull(s) or isnotnull(x) as int)", I32),
    ("trim(s)", STR),
    ("rtrim(s)", STR),
    ("upper(s)", STR),
    ("lower(upper(s))", STR),
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
    ("regexp_replace(s, '([0-9])', '<$1>')", STR),
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
    ("timestamp_micros(b)", STAMP),
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
"""The functions of the mathematics library, which may differ in the last digit."""
ALIKE: list[tuple[Dialect, str, str, FieldType]] = [
    (ESP, "a / 7", "a / 7", F64),
    (ESP, "compare(a, b)", "cast(sign(cast(a > b as int) - cast(a < b as int)) as int)", I32),
    (ESP, "inlist(b, 0, 1, 3)", "cast(b in (0, 1, 3) as int)", I32),
    (ESP, "between(b, -1, 1)", "cast(b between -1 and 1 as int)", I32),
    (ESP, "and(a > 0, b > 0, x > 0)", "cast(a > 0 and b > 0 and x > 0 as int)", I32),
    (ESP, "max(a, b)", "greatest(a, b)", I64),
    (ESP, "s & '-' & s", "s || '-' || s", STR),
    (ESP, "mid(s, 2, 2)", "substring(s, 2, 2)", STR),
    (ESP, "substring(s, 1, 2)", "substring(s, 2, 2)", STR),
    (ESP, "indexof(s, '1')", "instr(s, '1') - 1", I32),
    (
        ESP,
        "lastindexof(s, '1')",
        "case when s like '%1%' then length(s) - instr(reverse(s), '1') when s is not null then -1 end",
        I32,
    ),
    (ESP, "match_string(s, '*1?')", "cast(coalesce(s like '%1_', false) as int)", I32),
    (ESP, "asc(s)", "ascii(s)", I32),
    (ESP, "chr(abs(b) % 100 + 1)", "chr(abs(cast(b as bigint)) % 100 + 1)", STR),
    (ESP, "edit_distance(s, '12')", "levenshtein(s, '12')", I32),
    (ESP, "isalpha(s)", "cast(s rlike '^[A-Za-zäöü]+$' as int)", I32),
    (ESP, "isblank(s)", "cast(trim(s) = '' as int)", I32),
    (ESP, "sort(s)", "array_join(array_sort(split(s, '')), '')", STR),
    (ESP, "timedayofweek(t)", "dayofweek(t) - 1", I32),
    (ESP, "timeminuteofday(t)", "hour(t) * 60 + minute(t)", I32),
    (ESP, "timesecondofday(t)", "hour(t) * 3600 + minute(t) * 60 + second(t)", I32),
    (ESP, "timestring(t, '%d.%m. %H:%M:%S')", "date_format(t, 'dd.MM. HH:mm:ss')", STR),
    (ESP, "if a > 0 then return a % 10 else return b", "if(a > 0, a % 10, b)", I64),
    (ESP, "string v = s if isnull(s) then v = '-' return v & length(v)", "coalesce(s, '-') || length(coalesce(s, '-'))", STR),
    (ESP, "string v = '' integer i for i = length(s) to 1 step -1 v = v & mid(s, i, 1) return v", "reverse(coalesce(s, ''))", STR),
    (ESP, "regex r r.compile('[0-9]') return r.replace(s, '#')", "regexp_replace(s, '[0-9]', '#')", STR),
    (ESP, "regex r r.compile('[0-9]+') if r.findfirst(s) then return r.matchstart()", "nullif(regexp_instr(s, '[0-9]+'), 0)", I32),
    (
        FN,
        "substringBefore($s, '1')",
        "case when contains(s, '1') then substring_index(s, '1', 1) when s is not null then '' end",
        STR,
    ),
    (
        FN,
        "substringAfter($s, '1')",
        "case when contains(s, '1') then substring(s, instr(s, '1') + 1) when s is not null then '' end",
        STR,
    ),
    (FN, "normalizeSpace(concat($s, '  ', $s))", "trim(regexp_replace(s || '  ' || s, ' +', ' '))", STR),
    (FN, "translate($s, '1x', 'ab')", "translate(s, '1x', 'ab')", STR),
    (FN, "rgx('([0-9]+)', $s, 1)", "if(s rlike '[0-9]', regexp_extract(s, '([0-9]+)', 1), null)", STR),
    (FN, "listSize(rgxMatches('[0-9]', $s))", "regexp_count(s, '[0-9]')", I32),
    (FN, "listString(rgxMatches('[0-9]', $s), '+')", "array_join(regexp_extract_all(s, '[0-9]', 0), '+')", STR),
    (FN, "rgxIndex($s, '1', 'x')", "case when s rlike '1' then 0 when s rlike 'x' then 1 when s is not null then -1 end", I32),
    (FN, "listItem(listOf('a,b,c', ','), 1)", "split('a,b,c', ',')[1]", STR),
    (FN, "listContains(listOf($s, ','), '1')", "cast(array_contains(split(s, ','), '1') as int)", I32),
    (FN, "mapValue(mapOf('a:1,b:2', ',', ':'), 'b')", "str_to_map('a:1,b:2')['b']", STR),
    (FN, "json(concat('{\"k\":[1,', toString($b), ']}'), 'k[1]')", "get_json_object('{\"k\":[1,' || b || ']}', '$.k[1]')", STR),
    (FN, "jsonSize(concat('[', toString($b), ',1]'), '')", "json_array_length('[' || b || ',1]')", I32),
    (FN, "xpath(concat('<e><v>', toString($b), '</v></e>'), 'v/text()')", "xpath_string('<e><v>' || b || '</v></e>', '/e/v')", STR),
    (FN, "base64Encode($s)", "base64(encode(s, 'UTF-8'))", STR),
    (FN, "base64Decode(base64Encode($s))", "decode(unbase64(base64(encode(s, 'UTF-8'))), 'UTF-8')", STR),
    (FN, "urlEncode($s)", "replace(url_encode(s), '+', '%20')", STR),
    (FN, "urlDecode(urlEncode($s))", "s", STR),
    (FN, "sha2($s, 256)", "sha2(s, 256)", STR),
    (
        FN,
        "switch($b, 0, 'no', 1, 'one', 'many')",
        "case b when 0 then 'no' when 1 then 'one' else 'many' end",
        STR,
    ),
    (FN, "interval($b, 0, 'low', 10, 'mid', 'high')", "case when b < 0 then 'low' when b < 10 then 'mid' else 'high' end", STR),
    (FN, "timeParse(timeString($t))", "unix_seconds(t)", I64),
    (FN, "timeGmtToLocal($t)", "unix_seconds(t)", I64),
]
"""SAS expressions, each with an equivalent one in Spark SQL."""


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
def spark(lender: Lender) -> SparkSession:
    session = lender.spark
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    return session


@dataclass(frozen=True)
class Question:
    """An expression, in Spark's form and in the tested one; its values here, and the tolerance for Spark's."""

    text: str
    called: str
    values: pa.Array
    failed: list[int]
    tolerance: float = 0.0


@pytest.mark.spark
def test_spark_gives_the_same_answers(spark: SparkSession) -> None:
    table = random_rows()
    questions = [asked(table, text, target) for text, target in EXACT]
    questions += [replace(asked(table, text, target), tolerance=4e-15) for text, target in NEAR]
    check(spark, table, questions)


@pytest.mark.spark
def test_spark_gives_the_same_answers_to_sas_expressions(spark: SparkSession) -> None:
    table = random_rows()
    check(spark, table, [replace(asked(table, text, target, dialect), text=sql) for dialect, text, sql, target in ALIKE])


@pytest.mark.spark
def test_spark_gives_the_same_answers_to_random_expressions(spark: SparkSession) -> None:
    """Nested expressions: the result of one function is an argument of another."""
    table = random_rows()
    check(spark, table, [asked(table, text, target) for text, target in expressions(RANDOM, SEED)])


def test_spark_is_asked_about_every_function_of_its_own() -> None:
    """Except those of arrays, which are checked against lists, and synonyms."""
    said = " ".join([text for text, _ in (*EXACT, *NEAR)] + [form for forms in FORMS.values() for form in forms])
    words = set(re.findall(r"[a-z_0-9]+(?=\()|rlike", said))
    of_arrays = {function.name for function in arrays.FUNCTIONS}
    assert [
        f.name
        for f in FUNCTION_TABLE.values()
        if f.spark_names and f.name not in of_arrays and not words.intersection(f.spark_names)
    ] == []


def asked(table: pa.Table, text: str, target: FieldType, dialect: Dialect = SQL) -> Question:
    columns = {name: table.column(name).combine_chunks() for name in SCHEMA.names}
    columns["t"] = columns["t"].cast(pa.timestamp("us"))
    columns["d"] = columns["d"].cast(pa.timestamp("us")).cast(pa.timestamp("s"))
    values, failures = compiled(text, dialect, target).evaluate(with_events(columns, len(table)), len(table))
    return Question(text, text, values, [failure.row for failure in failures])


def check(spark: SparkSession, table: pa.Table, questions: list[Question]) -> None:
    """Compares all rows that do not fail here, in one query; and checks that failing rows also fail in Spark."""
    wrong = compared(spark, table, questions)
    for question in [question for question in questions if question.failed][:REFUSALS_MAX]:
        row = table.slice(question.failed[0], 1)
        found = answers(spark, row, [question.text])
        if not isinstance(found, str):
            wrong.append(f"{question.called} of {row.to_pylist()[0]}: fails, Spark {found.to_pylist()}")
    assert not wrong, "\n".join(wrong)


def compared(spark: SparkSession, table: pa.Table, questions: list[Question]) -> list[str]:
    """Returns a line for each different result of Spark. An extra column excludes rows that fail here."""
    texts: list[str] = []
    for number, question in enumerate(questions):
        text = question.text
        if question.failed:
            good = np.ones(len(table), np.bool_)
            good[question.failed] = False
            table = table.append_column(f"good{number}", pa.array(good))
            text = f"case when good{number} then {text} end"
        texts.append(text)
    theirs = answers(spark, table, texts)
    if isinstance(theirs, str):
        return [f"Spark refuses a row that is accepted here: {theirs}"]
    lines: list[str] = []
    for question, his in zip(questions, theirs.columns, strict=True):
        his = his.cast(pa.timestamp("us")) if pa.types.is_timestamp(his.type) else his
        pairs = enumerate(zip(question.values.cast(his.type).to_pylist(), his.to_pylist(), strict=True))
        failed = set(question.failed)
        differ = [(row, a, b) for row, (a, b) in pairs if row not in failed and not alike(a, b, question.tolerance)]
        lines += [f"{question.called} of {table.slice(row, 1).to_pylist()[0]}: {a!r}, Spark {b!r}" for row, a, b in differ[:2]]
    return lines


def answers(spark: SparkSession, table: pa.Table, texts: list[str]) -> pa.Table | str:
    """Returns Spark's values, a column per expression, or its error."""
    named = [f"{text} as v{i}" for i, text in enumerate(texts)]
    try:
        return spark.createDataFrame(table).selectExpr(*named).toArrow()
    except (ArithmeticException, NumberFormatException, DateTimeException, SparkRuntimeException) as error:
        return str(error)[:400]


def alike(mine: object, his: object, tolerance: float) -> bool:
    if isinstance(mine, float) and isinstance(his, float):
        if math.isnan(mine) or math.isnan(his):
            return math.isnan(mine) and math.isnan(his)
        if math.isinf(mine) or not tolerance:
            return mine == his and math.copysign(1, mine) == math.copysign(1, his)
        return abs(mine - his) <= tolerance * max(abs(mine), abs(his))
    return mine == his
