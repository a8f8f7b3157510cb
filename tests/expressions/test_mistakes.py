"""An invalid expression is reported with its place, once, and never accepted (SPEC A24-A26)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import Place, ProjectError
from hotspare.expressions.compiled import Counting
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType
from tests.expressions.samples import ESP, SQL, compiled, condition, locate_mistake

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING


@pytest.mark.parametrize(
    ("dialect", "text", "column", "part"),
    [
        (ESP, "a + zz", 5, "unknown field zz"),
        (SQL, "a + zz", 5, "unknown field zz"),
        (ESP, "abz(a)", 1, "unknown function abz"),
        (SQL, "1 + abz(a)", 5, "unknown function abz"),
        (ESP, "((a)", 5, ") is missing"),
        (ESP, "a +", 4, "ends too early"),
        (ESP, "'abc", 1, "not closed"),
        (ESP, "a ? b", 3, "unexpected character"),
        (ESP, "a b", 3, "unexpected b"),
        (ESP, "and", 1, "unexpected and"),
        (ESP, "99999999999999999999", 1, "does not fit int64"),
        (SQL, "99999999999999999999", 1, "does not fit int64"),
        (SQL, "a +", 3, "not Spark SQL"),
        (SQL, "a b c", 5, "not Spark SQL"),
        (SQL, "a, b", 1, "2 expressions"),
        (SQL, "a from t", 1, "a statement"),
        (SQL, "a; drop", 1, "a statement"),
        (SQL, "a as b", 1, "cannot be used here"),
        (SQL, "*", 1, "cannot be used here"),
        (SQL, "(select 1)", 9, "cannot be used here"),
        (SQL, "t.a", 1, "not the name of a field"),
        (SQL, "cast(a as tinyint)", 6, "type tinyint does not exist here"),
        (SQL, "cast(a as decimal(10,2))", 6, "type decimal(10, 2) does not exist here"),
        (SQL, "upper(a)", 1, "argument 1 has type int64, not string"),
        (SQL, "upper(s, s)", 1, "2 arguments given, not 1"),
        (SQL, "int(a, b)", 1, "int takes one argument, 2 are given"),
        (SQL, "1 + bigint(a, b)", 5, "bigint takes one argument, 2 are given"),
        (SQL, "length(s, a)", 1, "this form is not supported"),
        (SQL, "pow(a)", 6, "something is missing"),
        (SQL, "datediff(a)", 1, "unknown function datediff"),
        (SQL, "date_add(t, 'x')", 1, "unknown function date_add"),
        (SQL, "1 + date_add(DAYY, 1, t)", 5, "unknown function date_add"),
        (SQL, "dateadd(MONTH, 1, t)", 1, "unknown function dateadd"),
        (ESP, "int(a, b)", 1, "int takes one argument, 2 are given"),
        (ESP, "upper(s, s)", 1, "2 arguments given, not 1"),
        (ESP, "s + 1", 3, "string is not a number"),
        (SQL, "if(s, 1, 2)", 4, "a condition has type string"),
        (SQL, "coalesce(a, s)", 1, "int64 and string have no common type"),
        (SQL, "s like s", 1, "must be a constant"),
        (SQL, "s rlike '('", 1, "missing )"),
        (SQL, "date_trunc('lustrum', t)", 1, "unknown unit lustrum"),
        (ESP, "eventCounter()", 1, "only a functional window"),
        (ESP, "hs:event", 3, "unexpected character"),
        (SQL, "`hs:event-counter`", 1, "unknown field"),
        (ESP, "", 1, "empty"),
        (SQL, "  ", 1, "empty"),
    ],
)
def test_mistake_names_its_column(dialect: Dialect, text: str, column: int, part: str) -> None:
    mistake = locate_mistake(text, dialect)
    assert part in mistake.message
    assert mistake.message.startswith("window q/w, field f: ")
    assert mistake.place == Place("p.xml", 10, 5 + column - 1)


@pytest.mark.parametrize(
    ("dialect", "text", "hint"),
    [(ESP, "vibratoin", ""), (ESP, "toUper(s)", "toupper"), (SQL, "lenght(s)", "length"), (ESP, "S", "s")],
)
def test_did_you_mean(dialect: Dialect, text: str, hint: str) -> None:
    found = locate_mistake(text, dialect).hint
    assert found == f"did you mean {hint!r}?" if hint else found.startswith("known are")


def test_a_filtered_aggregate_is_refused_with_the_form_that_has_its_meaning() -> None:
    found = locate_mistake("sum(x) filter (where a > 1)", SQL)
    assert found.message.endswith("SUM(x) FILTER(WHERE a > 1) cannot be used here")
    assert found.hint == "put the condition into the argument, as in sum(CASE WHEN a > 1 THEN x END)"


def test_place_follows_the_lines_of_the_text() -> None:
    assert locate_mistake("a +\n  b +\n   zz", ESP).place == Place("p.xml", 12, 4)


@pytest.mark.parametrize(
    ("dialect", "text", "target"),
    [
        (SQL, "a", I32),
        (SQL, "x", I64),
        (SQL, "a > 1", I32),
        (SQL, "s", I64),
        (SQL, "a", STR),
        (ESP, "a", STR),
        (ESP, "s", F64),
        (SQL, "t", FieldType.DATE),
        (SQL, "x", FieldType.MONEY),
        (SQL, "a", FieldType.STAMP),
    ],
)
def test_assignment_that_loses_something_is_refused(dialect: Dialect, text: str, target: FieldType) -> None:
    mistake = locate_mistake(text, dialect, target)
    assert target.value in mistake.message


@pytest.mark.parametrize(
    ("text", "target"), [("x", I64), ("a", I32), ("a > 1", I32), ("a", FieldType.STAMP), ("t", FieldType.DATE)]
)
def test_sas_narrows_numbers(text: str, target: FieldType) -> None:
    compiled(text, ESP, target)


def test_spark_finds_fields_in_any_case_and_sas_does_not() -> None:
    compiled("A + B", SQL, I64)
    assert "unknown field A" in locate_mistake("A", ESP).message


def test_a_condition_is_boolean() -> None:
    condition("a > 1 and s = 'x'", SQL)
    condition("a", ESP)
    with pytest.raises(ProjectError, match="the condition has type int64"):
        condition("a", SQL)
    with pytest.raises(ProjectError, match="only a functional window"):
        condition("eventCounter() > 1", ESP)


def test_a_counter_where_a_window_counts() -> None:
    assert compiled("eventCounter() * 2", ESP, I64, Counting.ALLOWED).fields == ("hs:event-counter",)
    with pytest.raises(ProjectError, match="takes no argument"):
        compiled("eventCounter(a)", ESP, I64, Counting.ALLOWED)


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "text",
    [
        "(" * 3000 + "a" + ")" * 3000,
        "+".join(["a"] * 3000),
        "-" * 3001 + "a",
        "not " * 3000 + "a",
        "x" * 16_385,
    ],
    ids=["parentheses", "sum", "signs", "nots", "long"],
)
def test_limits(dialect: Dialect, text: str) -> None:
    """An excessive expression is refused or computed, but never breaks the reader."""
    try:
        compiled(text, dialect, I64)
    except ProjectError as error:
        assert len(error.mistakes) == 1


@given(st.text(alphabet="ab().,+-*/%<>=!&'\"$ 01eE\\n;[]{}", max_size=30), st.sampled_from(list(Dialect)))
def test_any_text_is_compiled_or_refused(text: str, dialect: Dialect) -> None:
    try:
        compiled(text, dialect, I64)
    except ProjectError as error:
        assert len(error.mistakes) == 1
        assert error.mistakes[0].place.line >= 10


def test_operators_bind_as_in_sas() -> None:
    """Lowest first: or, and, not, comparison, &, + -, * / %, sign."""
    same = [
        ("a + b * 2", "a + (b * 2)"),
        ("a - b - 1", "(a - b) - 1"),
        ("-a * b", "(-a) * b"),
        ("a > 1 and b < 2 or x = 3", "((a > 1) and (b < 2)) or (x = 3)"),
        ("not a > 1 and b < 2", "(not (a > 1)) and (b < 2)"),
        ("s & 'x' = 'yx'", "(s & 'x') = 'yx'"),
        ("a + 1 > b * 2", "(a + 1) > (b * 2)"),
        ("$a + $b", "a + b"),
        ("IF(A1 = 1, 2, 3)".replace("A1", "a"), "if(a == 1, 2, 3)"),
    ]
    for short, full in same:
        assert _shape(short) == _shape(full), short


def _shape(text: str) -> str:
    return re.sub(r"column=\d+", "", repr(condition(text, ESP).tree))
