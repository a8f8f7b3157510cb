"""Evaluation belongs to rows: no cut, no neighbour and no untaken branch changes a row's result (law Cut for expressions)."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.expressions.casts import double_text
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from hotspare.rows.bad_reasons import BadReason
from tests.examples import examples
from tests.expressions.samples import ESP, SQL, compiled, condition, evaluated, rows_of, with_events

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING
STAMP, MONEY = FieldType.STAMP, FieldType.MONEY

INT64S = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
INT32S = st.one_of(st.none(), st.integers(-2, 2), st.integers(-(2**31), 2**31 - 1))
DOUBLES = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -2.5, 1e300]), st.floats())
STRINGS = st.one_of(st.none(), st.sampled_from(["", "12", " 7 ", "x", "1.5", "true", "äöü", "9" * 30]), st.text(max_size=6))
STAMPS = st.one_of(st.none(), st.integers(-(10**15), 10**16))
DATES = st.one_of(st.none(), st.integers(-(10**9), 10**10))
MONEYS = st.one_of(st.none(), st.sampled_from(["0", "1.5", "-2.0001", "99999999999999.9999"]))
ROWS = st.lists(st.tuples(INT64S, INT32S, DOUBLES, STRINGS, STAMPS, DATES, MONEYS), min_size=1, max_size=12)

EXPRESSIONS: list[tuple[str, Dialect, FieldType]] = [
    ("a + b", SQL, I64),
    ("a * a - b", SQL, I64),
    ("a div b", SQL, I64),
    ("a % b", SQL, I64),
    ("x / b", SQL, F64),
    ("-a", SQL, I64),
    ("abs(b)", SQL, I32),
    ("m * a", SQL, MONEY),
    ("m + m", SQL, MONEY),
    ("floor(x)", SQL, I64),
    ("cast(s as int)", SQL, I32),
    ("cast(s as double)", SQL, F64),
    ("cast(cast(s as boolean) as int)", SQL, I32),
    ("cast(x as int)", SQL, I32),
    ("cast(a as int)", SQL, I32),
    ("cast(a as decimal(18,4))", SQL, MONEY),
    ("if(b <> 0, a div b, 0)", SQL, I64),
    ("case when cast(s as int) > 5 then a div b when x > 0 then 1 end", SQL, I64),
    ("coalesce(a div b, a * 2, 5)", SQL, I64),
    ("nvl2(a, a div b, b)", SQL, I64),
    ("x", ESP, I64),
    ("b <> 0 and a / b > 1", ESP, I32),
    ("b = 0 or a / b > 1", ESP, I32),
    ("greatest(a, b, x)", SQL, F64),
    ("concat(s, upper(s))", SQL, STR),
    ("substring(s, b, 2)", SQL, STR),
    ("timestamp_seconds(a)", SQL, STAMP),
    ("date_trunc('month', t)", SQL, STAMP),
    ("try_cast(s as bigint)", SQL, I64),
    ("match_string(s, '*2*')", ESP, I32),
]


@pytest.mark.parametrize(("text", "dialect", "target"), EXPRESSIONS, ids=[e[0] for e in EXPRESSIONS])
@examples(0.35)
@given(rows=ROWS)
def test_a_row_does_not_depend_on_its_neighbours(
    text: str, dialect: Dialect, target: FieldType, rows: list[tuple[object, ...]]
) -> None:
    columns, expression = rows_of(*rows), compiled(text, dialect, target)
    values, failures = expression.evaluate(columns, len(rows))
    alone = [expression.evaluate({name: c.slice(i, 1) for name, c in columns.items()}, 1) for i in range(len(rows))]
    together = pa.concat_arrays([single for single, _ in alone])
    assert [bits(v) for v in values] == [bits(v) for v in together]
    assert [(f.row, f.message) for f in failures] == [(i, f.message) for i, (_, fs) in enumerate(alone) for f in fs]
    assert not any(values[f.row].is_valid for f in failures)


def bits(value: pa.Scalar) -> str:
    """Returns comparable values: NaN equals itself, and a stamp may be outside of Python's range."""
    return str(value.value) if pa.types.is_timestamp(value.type) else repr(value.as_py())


@pytest.mark.parametrize(
    "text",
    [
        "if(b <> 0, a / b, 0)",
        "if(b = 0, 0, a / b)",
        "case when b = 0 then 0 when a / b > 1 then 1 else 2 end",
        "coalesce(x, a / b)",
        "cast(b = 0 or a / b > 0 as int)",
        "cast(b <> 0 and a / b > 0 as int)",
        "nullif(a, 5) / if(b = 0, 1, b)",
    ],
)
def test_a_branch_that_is_not_taken_does_not_fail(text: str) -> None:
    _, failures = evaluated(text, SQL, F64, rows_of((7, 0, 1.0, "", 0, 0, "0"), (7, 2, 1.0, "", 0, 0, "0")))
    assert failures == []


@pytest.mark.parametrize("text", ["if(b = 0, t, d)", "coalesce(if(b = 0, t, null), d)", "case when b <> 0 then d else t end"])
def test_a_date_that_no_stamp_holds_fails_only_where_it_is_taken(text: str) -> None:
    """A date converts to a stamp implicitly, and may be out of range."""
    rows = rows_of((7, 0, 1.0, "", 5, 10**15, "0"), (7, 1, 1.0, "", 5, 7, "0"), (7, 1, 1.0, "", 5, 10**15, "0"))
    _, failures = evaluated(text, SQL, STAMP, rows)
    assert [failure.row for failure in failures] == [2]


def test_a_failure_names_window_field_reason_and_expression() -> None:
    values, failures = evaluated("a /\n b", SQL, F64, rows_of((7, 0, 1.0, "", 0, 0, "0"), (7, 2, 1.0, "", 0, 0, "0")))
    assert values == [None, 3.5]
    (failure,) = failures
    assert failure.row == 0
    assert failure.reason is BadReason.EXPRESSION
    assert failure.message == "window q/w, field f: division by zero in a / b"


def test_a_row_that_fails_twice_is_one_failure_the_first() -> None:
    _, failures = evaluated("cast(s as int) + a div b", SQL, I64, rows_of((7, 0, 1.0, "no", 0, 0, "0")))
    assert [f.message for f in failures] == ["window q/w, field f: the text does not fit int32 in cast(s as int) + a div b"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**63, -(2.0**64)])
def test_narrowing_that_does_not_fit_fails_by_its_own_reason(value: float) -> None:
    _, failures = evaluated("x", ESP, I64, rows_of((7, 0, value, "", 0, 0, "0")))
    assert [f.reason for f in failures] == [BadReason.NUMBER_RANGE]


def test_narrowing_drops_the_fraction() -> None:
    rows = [(1, 1, x, "", 0, 0, "0") for x in (2.9, -2.9, -0.5, 2.0**62)]
    assert evaluated("x", ESP, I64, rows_of(*rows)) == ([2, -2, 0, 2**62], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = x", [True, None, True]),
        ("x > 1e300", [False, None, True]),
        ("x < 5", [True, None, False]),
        ("x in (1.5, 2)", [True, None, False]),
        ("greatest(x, 9) = x", [False, None, True]),
        ("least(x, 9) = 9", [False, True, True]),
        ("x <=> null", [False, True, False]),
        ("x = nullif(1, 1)", [None, None, None]),
        ("-0.0 = 0.0", [True, True, True]),
    ],
)
def test_nan_is_the_greatest_and_null_is_unknown(text: str, expected: list[bool | None]) -> None:
    columns = rows_of(*[(1, 1, x, "", 0, 0, "0") for x in (1.5, None, float("nan"))])
    values, failures = condition(text, SQL).evaluate(columns, 3)
    assert (values.to_pylist(), list(failures)) == (expected, [])


def test_opcode_and_flags_are_visible() -> None:
    """SPEC A26: names ESP_OPCODE, ESP_FLAGS."""
    columns = with_events(rows_of((1, 1, 1.0, "", 0, 0, "0"), (1, 1, 1.0, "", 0, 0, "0")), 0)
    columns |= {"ESP_OPCODE": pa.array(["I", "D"]), "ESP_FLAGS": pa.array(["N", "R"])}
    values, _ = condition('ESP_OPCODE == "D" and ESP_FLAGS == "R"', ESP).evaluate(columns, 2)
    assert values.to_pylist() == [False, True]


def test_a_field_alone_is_passed_and_not_computed() -> None:
    assert compiled("a", SQL, I64).passed_field == "a"
    assert compiled("A", SQL, I64).passed_field == "a"
    assert compiled("a + 0", SQL, I64).passed_field == ""
    assert compiled("a", SQL, F64).passed_field == ""


def test_compiled_expressions_travel() -> None:
    before = compiled("if(b <> 0, round(x / b, 2), -0.0)", SQL, F64)
    after = pickle.loads(pickle.dumps(before))
    assert after == before
    columns = rows_of((7, 2, 1.0, "", 0, 0, "0"), (7, 0, 1.0, "", 0, 0, "0"))
    assert str(after.evaluate(columns, 2)[0].to_pylist()) == "[0.5, -0.0]"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_text_of_a_double_reads_back(value: float) -> None:
    text = double_text(value)
    assert float(text) == value
    assert "." in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (1234567.5, "1234567.5"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (1.5e20, "1.5E20"),
        (-0.0, "-0.0"),
    ],
)
def test_text_of_a_double_is_that_of_sql(value: float, text: str) -> None:
    assert double_text(value) == text
