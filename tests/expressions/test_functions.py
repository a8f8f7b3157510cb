"""Every function of the table, by each dialect's names, on one row (SPEC A24, A25: functions of expressions)."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from hotspare.base.errors import ProjectError
from hotspare.expressions import arrays
from hotspare.expressions.checking import SYSTEM_TIME_FIELD
from hotspare.expressions.function_table import CAST_NAMES, CLOCK_FUNCTIONS, FUNCTION_NAMES, FUNCTION_TABLE, REFUSED_FUNCTIONS
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from hotspare.model.window_type import Counting
from tests.expressions.samples import ESP, NULL_ROW, SQL, compiled, evaluated, locate_mistake, value_of
from tests.expressions.sas_examples import LOWERED, MORE_EXAMPLES

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING
STAMP, DATE, MONEY = FieldType.STAMP, FieldType.DATE, FieldType.MONEY

EXAMPLES: dict[str, list[tuple[Dialect, str, FieldType, object]]] = {
    "add": [(SQL, "b + 3", I32, 1), (ESP, "sum(a, 1, 2)", I64, 10), (ESP, "increment(a)", I64, 8)],
    "subtract": [(SQL, "a - x", F64, 4.5), (ESP, "diff(a, 3)", I64, 4), (ESP, "decrement(a)", I64, 6)],
    "multiply": [
        (SQL, "m * 2", MONEY, Decimal("24.6912")),
        (ESP, "product(a, b)", I64, -14),
        (SQL, "m * m", MONEY, Decimal("152.4138")),
    ],
    "divide": [(SQL, "a / b", F64, -3.5), (ESP, "a / b", F64, -3.5), (ESP, "quotient(a, 2)", F64, 3.5), (ESP, "a / 2", I64, 3)],
    "div": [(SQL, "a div b", I64, -3)],
    "mod": [(SQL, "a % b", I64, 1), (SQL, "mod(-7, 2)", I32, -1), (ESP, "mod(a, 4)", I64, 3), (ESP, "x % 2", F64, 0.5)],
    "negate": [(SQL, "-a", I64, -7), (SQL, "negative(b)", I32, 2), (ESP, "neg(x)", F64, -2.5), (ESP, "- - a", I64, 7)],
    "positive": [(SQL, "positive(x)", F64, 2.5)],
    "abs": [(SQL, "abs(b)", I32, 2), (ESP, "abs(b)", I32, 2)],
    "ceil": [(SQL, "ceil(x)", I64, 3), (SQL, "ceiling(b)", I64, -2), (ESP, "ceiling(x)", F64, 3.0)],
    "floor": [(SQL, "floor(-x)", I64, -3), (ESP, "floor(m)", I64, 12)],
    "round": [
        (SQL, "round(x)", F64, 3.0),
        (SQL, "round(-x)", F64, -3.0),
        (ESP, "round(m, 1)", MONEY, Decimal("12.3000")),
        (SQL, "round(a)", I64, 7),
    ],
    "sqrt": [(SQL, "sqrt(a + 2)", F64, 3.0), (ESP, "sqrt(16)", F64, 4.0)],
    "exp": [(SQL, "exp(0)", F64, 1.0), (ESP, "exp(0)", F64, 1.0)],
    "ln": [(SQL, "ln(1)", F64, 0.0), (ESP, "log(1)", F64, 0.0), (SQL, "log(-1)", F64, None)],
    "log10": [(SQL, "log10(1000)", F64, 3.0), (ESP, "log10(0)", F64, None)],
    "log": [(SQL, "log(2, 8)", F64, 3.0), (SQL, "log(a, 0)", F64, None)],
    "pow": [(SQL, "pow(2, 3)", F64, 8.0), (ESP, "power(2, 0.5)", F64, math.sqrt(2))],
    "sign": [(SQL, "sign(b)", F64, -1.0), (ESP, "sign(x)", F64, 1.0)],
    "sin": [(SQL, "sin(0)", F64, 0.0)],
    "cos": [(ESP, "cos(0)", F64, 1.0)],
    "tan": [(SQL, "tan(0)", F64, 0.0)],
    "isnan": [(SQL, "cast(isnan(sqrt(b)) as int)", I32, 1)],
    "equal": [(ESP, 's == "Hello, World"', I32, 1), (ESP, "eq(a, 7.5)", I32, 0)],
    "not_equal": [(ESP, "a <> 7", I32, 0), (ESP, "neq(a, b)", I32, 1)],
    "less": [(ESP, "a < 8", I32, 1), (ESP, "lt('b', 'a')", I32, 0)],
    "less_equal": [(ESP, "a <= 7", I32, 1), (ESP, "lte(x, 2)", I32, 0)],
    "greater": [(ESP, "a > x", I32, 1), (ESP, "gt(b, 0)", I32, 0)],
    "greater_equal": [(ESP, "t >= d", I32, 1), (ESP, "gte(a, 8)", I32, 0)],
    "null_safe_equal": [(SQL, "cast(nullif(a, 7) <=> null as int)", I32, 1), (SQL, "cast(a <=> 7 as int)", I32, 1)],
    "in": [
        (SQL, "cast(a in (1, 7) as int)", I32, 1),
        (SQL, "cast(a not in (1, null) as int)", I32, None),
        (ESP, "in(s, 'x', 'y')", I32, 0),
    ],
    "between": [(SQL, "cast(a between 7 and 8 as int)", I32, 1), (ESP, "between(x, 3, 4)", I32, 0)],
    "compare": [(ESP, "compare('a', 'b')", I32, -1), (ESP, "compare(a, 7)", I32, 0)],
    "and": [(ESP, "a > 1 and b > 1", I32, 0), (ESP, "and(a > 1, b < 1, x > 1)", I32, 1)],
    "or": [(ESP, "a < 1 or b < 1", I32, 1), (ESP, "or(a < 1, null)", I32, None)],
    "not": [(ESP, "not a", I32, 0), (ESP, "not(a > 9)", I32, 1), (SQL, "cast(not a > 9 as int)", I32, 1)],
    "isnull": [(SQL, "cast(isnull(a) as int)", I32, 0), (ESP, "isNull(s)", I32, 0), (SQL, "cast(s is null as int)", I32, 0)],
    "isnotnull": [
        (SQL, "cast(isnotnull(a) as int)", I32, 1),
        (ESP, "isSet(a)", I32, 1),
        (SQL, "cast(a is not null as int)", I32, 1),
    ],
    "greatest": [(SQL, "greatest(a, b, null)", I64, 7), (ESP, "max(x, a)", F64, 7.0), (SQL, "greatest('b', s, 'a')", STR, "b")],
    "least": [(SQL, "least(a, b)", I64, -2), (ESP, "min('b', s, 'a')", STR, "Hello, World")],
    "case": [
        (SQL, "case when a > 9 then 'big' when b < 0 then 'neg' end", STR, "neg"),
        (SQL, "case a when 7 then 1 else 0 end", I32, 1),
        (SQL, "if(a > 9, 1, null)", I32, None),
        (ESP, "if(a, 'yes', 'no')", STR, "yes"),
    ],
    "coalesce": [(SQL, "nvl(null, a)", I64, 7), (ESP, "coalesce(null, null, x)", F64, 2.5)],
    "nullif": [(SQL, "nullif(a, 7)", I64, None), (ESP, "nullif(b, 0)", I32, -2)],
    "nvl2": [(SQL, "nvl2(s, 'some', 'none')", STR, "some")],
    "upper": [(SQL, "upper(s)", STR, "HELLO, WORLD"), (ESP, "toUpper('äb')", STR, "ÄB")],
    "lower": [(SQL, "lower(s)", STR, "hello, world"), (ESP, "toLower(s)", STR, "hello, world")],
    "trim": [(SQL, "trim('  a ')", STR, "a"), (ESP, "trim('xax', 'x')", STR, "a"), (SQL, "trim(both 'x' from 'xax')", STR, "a")],
    "ltrim": [(SQL, "ltrim('  a ')", STR, "a "), (ESP, "ltrim(' a')", STR, "a")],
    "rtrim": [(SQL, "rtrim('  a ')", STR, "  a"), (ESP, "rtrim('a ')", STR, "a")],
    "length": [(SQL, "length('äöü')", I32, 3), (ESP, "stringLength(s)", I32, 12), (SQL, "char_length(s)", I32, 12)],
    "substring": [
        (SQL, "substring(s, 2, 3)", STR, "ell"),
        (SQL, "substr(s, -5)", STR, "World"),
        (SQL, "substring(s, 0, 2)", STR, "He"),
        (SQL, "substring(s, a, 2)", STR, " W"),
        (ESP, "mid(s, 1, 5)", STR, "Hello"),
    ],
    "substring_from_0": [(ESP, "substring($s, 0, 2)", STR, "He"), (ESP, "substring(s, a)", STR, "World")],
    "left": [(SQL, "left(s, 2)", STR, "He"), (ESP, "left(s, b)", STR, "")],
    "right": [(SQL, "right(s, 2)", STR, "ld"), (ESP, "right(s, 0)", STR, "")],
    "reverse": [(SQL, "reverse('abc')", STR, "cba"), (ESP, "reverse('ä1')", STR, "1ä")],
    "concat": [
        (SQL, "s || '!'", STR, "Hello, World!"),
        (SQL, "concat('a', 'b', 'c')", STR, "abc"),
        (ESP, "'a' & s & null", STR, None),
    ],
    "concat_ws": [(SQL, "concat_ws('-', 'a', null, 'b')", STR, "a-b")],
    "contains": [(SQL, "cast(contains(s, 'lo') as int)", I32, 1), (ESP, "contains(s, substring(s, 1))", I32, 1)],
    "startswith": [(ESP, "startsWith(s, 'He')", I32, 1), (SQL, "cast(startswith(s, lower(s)) as int)", I32, 0)],
    "endswith": [(ESP, "endsWith(s, 'ld')", I32, 1), (SQL, "cast(endswith(s, upper(s)) as int)", I32, 0)],
    "instr": [(SQL, "instr(s, 'o')", I32, 5), (ESP, "instr(s, 'zz')", I32, 0), (SQL, "locate('o', s)", I32, 5)],
    "indexof": [(ESP, "indexOf('äöü', 'ü')", I32, 2), (ESP, "indexOf(s, 'zz')", I32, -1)],
    "lastindexof": [(ESP, "lastIndexOf(s, 'o')", I32, 8)],
    "replace": [(SQL, "replace(s, 'l', 'L')", STR, "HeLLo, WorLd"), (ESP, "replace(s, '', 'x')", STR, "Hello, World")],
    "match_string": [
        (ESP, 'match_string(s, "Hello*")', I32, 1),
        (ESP, "match_string(s, 'Hello')", I32, 0),
        (ESP, "match_string(null, s)", I32, 0),
    ],
    "like": [(SQL, "cast(s like 'Hel%d' as int)", I32, 1), (SQL, "cast(s not like 'H_l%' as int)", I32, 0)],
    "ilike": [(SQL, "cast(s ilike 'hello%' as int)", I32, 1)],
    "rlike": [(SQL, "cast(s rlike '^H.*d$' as int)", I32, 1), (ESP, "rgxMatch(s, '^o')", I32, 0)],
    "regexp_replace": [
        (SQL, "regexp_replace(s, '(l+)', '<$1>')", STR, "He<ll>o, Wor<l>d"),
        (ESP, "rgxReplaceAll(s, 'o', '0')", STR, "Hell0, W0rld"),
    ],
    "year": [(SQL, "year(t)", I32, 2024), (ESP, "timeYear(d)", I32, 2024)],
    "quarter": [(SQL, "quarter(t)", I32, 4)],
    "month": [(SQL, "month(t)", I32, 10)],
    "day": [(SQL, "day(t)", I32, 17), (SQL, "dayofmonth(d)", I32, 17), (ESP, "timeDayOfMonth(t)", I32, 17)],
    "dayofyear": [(SQL, "dayofyear(t)", I32, 291), (ESP, "timeDayOfYear(t)", I32, 291)],
    "dayofweek": [(SQL, "dayofweek(t)", I32, 5)],
    "weekday": [(SQL, "weekday(t)", I32, 3)],
    "timedayofweek": [(ESP, "timeDayOfWeek(t)", I32, 4)],
    "hour": [(SQL, "hour(t)", I32, 8), (ESP, "timeHour(t)", I32, 8)],
    "minute": [(SQL, "minute(d)", I32, 40), (ESP, "timeMinute(t)", I32, 40)],
    "second": [(SQL, "second(t)", I32, 25), (ESP, "timeSecond(t)", I32, 25)],
    "unix_micros": [(SQL, "unix_micros(t)", I64, 1_729_154_425_123_456)],
    "unix_seconds": [(SQL, "unix_seconds(t)", I64, 1_729_154_425), (SQL, "unix_seconds(timestamp_micros(-1))", I64, -1)],
    "timestamp_micros": [(SQL, "timestamp_micros(1)", STAMP, "1970-01-01 00:00:00.000001")],
    "timestamp_seconds": [(ESP, "timestamp_seconds(86400)", STAMP, "1970-01-02 00:00:00")],
    "date_trunc": [
        (SQL, "date_trunc('month', t)", STAMP, "2024-10-01 00:00:00"),
        (SQL, "date_trunc('week', t)", STAMP, "2024-10-14 00:00:00"),
    ],
    "cast": [
        (SQL, "cast(x as int)", I32, 2),
        (SQL, "cast('12' as bigint)", I64, 12),
        (SQL, "cast(a as string)", STR, "7"),
        (SQL, "cast(x as string)", STR, "2.5"),
        (SQL, "cast(1.0 as string)", STR, "1.0"),
        (SQL, "cast(12345678.0 as string)", STR, "1.2345678E7"),
        (SQL, "cast(t as string)", STR, "2024-10-17 08:40:25.123456"),
        (SQL, "cast(d as string)", STR, "2024-10-17 08:40:25"),
        (SQL, "cast(t as bigint)", I64, 1_729_154_425),
        (SQL, "cast(86400 as timestamp)", STAMP, "1970-01-02 00:00:00"),
        (SQL, "cast(t as date)", DATE, "2024-10-17 00:00:00"),
        (SQL, "cast('2024-02-29' as timestamp)", STAMP, "2024-02-29 00:00:00"),
        (SQL, "cast(m as double)", F64, 12.3456),
        (SQL, "cast('1.5' as decimal(18,4))", MONEY, Decimal("1.5000")),
        (SQL, "int(' 3 ')", I32, 3),
        (SQL, "cast(cast(a as boolean) as int)", I32, 1),
        (SQL, "cast(cast(' TRUE ' as boolean) as string)", STR, "true"),
    ],
    "try_cast": [(SQL, "try_cast(s as int)", I32, None), (SQL, "try_cast('5' as int)", I32, 5)],
    "convert": [
        (SQL, "a", F64, 7.0),
        (ESP, "a = 7", F64, 1.0),
        (SQL, "d", STAMP, "2024-10-17 08:40:25"),
        (ESP, "t + 1000000", STAMP, "2024-10-17 08:40:26.123456"),
    ],
    "convert_checked": [
        (SQL, "a + m", MONEY, Decimal("19.3456")),
        (ESP, "toInteger('42')", I64, 42),
        (ESP, "toString(a)", STR, "7"),
    ],
    "assign": [(ESP, "x", I64, 2), (ESP, "0 - x", I32, -2), (ESP, "a * 1000000000", DATE, "2191-10-27 12:26:40")],
}


EXAMPLES |= MORE_EXAMPLES


def test_every_function_has_an_example() -> None:
    """Examples of functions of array fields are in test_arrays.py."""
    assert set(EXAMPLES) | {function.name for function in arrays.FUNCTIONS} == set(FUNCTION_TABLE)


@pytest.mark.parametrize(
    ("dialect", "text", "target", "expected"),
    [e for examples in (*EXAMPLES.values(), LOWERED) for e in examples],
    ids=lambda e: str(e),
)
def test_example(dialect: Dialect, text: str, target: FieldType, expected: object) -> None:
    found = value_of(text, dialect, target)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("a + b", I64),
        ("upper(s)", STR),
        ("x / a", F64),
        ("year(t)", I32),
        ("abs(m)", MONEY),
        ("if(a > 1, x, null)", F64),
        ("cast(s as int)", I32),
        ("cast(s like 'x' as int)", I32),
        ("date_trunc('day', d)", STAMP),
    ],
)
def test_null_in_gives_null_out(text: str, target: FieldType) -> None:
    assert evaluated(text, SQL, target, NULL_ROW) == ([None], [])


@pytest.mark.parametrize("dialect", list(Dialect))
def test_names_reach_their_function(dialect: Dialect) -> None:
    assert not set(FUNCTION_NAMES[dialect]) & set(REFUSED_FUNCTIONS)
    assert not set(FUNCTION_NAMES[dialect]) & set(CAST_NAMES[dialect])
    assert all(name == name.lower() for name in FUNCTION_NAMES[dialect])


@pytest.mark.parametrize("name", sorted(REFUSED_FUNCTIONS))
def test_what_an_engine_could_not_repeat_is_refused_with_the_reason(name: str) -> None:
    """`now`, `rand` and `uuid` are refused with the reason."""
    mistake = locate_mistake(f"{name}()", SQL if name in CLOCK_FUNCTIONS else ESP)
    assert REFUSED_FUNCTIONS[name] in mistake.message
    assert name in mistake.message


@pytest.mark.parametrize("name", sorted(CLOCK_FUNCTIONS))
def test_the_time_of_the_event_is_told_where_a_window_knows_it(name: str) -> None:
    """SPEC A24, A25: not in joins and splitters."""
    for counting in (Counting.POSITION, Counting.ALLOWED):
        assert SYSTEM_TIME_FIELD in compiled(f"{name}()", ESP, FieldType.INT64, counting).fields
    assert f"{name} cannot be used here" in locate_mistake(f"{name}()", ESP).message
    with pytest.raises(ProjectError, match="takes no argument"):
        compiled(f"{name}(1)", ESP, FieldType.INT64, Counting.POSITION)


@pytest.mark.parametrize("text", ["now()", "current_timestamp", "current_date()", "rand()", "uuid()", "randn(1)"])
def test_spark_spellings_are_refused_too(text: str) -> None:
    assert "is not allowed" in locate_mistake(text, SQL).message
