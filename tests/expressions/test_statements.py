"""Statements, variables, regular expressions and user-defined functions (SPEC A24)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import Place, ProjectError
from hotspare.expressions.blocks import LOOP_ITERATIONS_MAX
from hotspare.expressions.compiled import CompiledExpression, compile_assignment
from hotspare.expressions.prelude import Prelude, compile_prelude
from hotspare.expressions.single_values import RowwiseExpressions
from hotspare.expressions.statements import WINDOW_PREFIX
from hotspare.model.project import NO_INITIALIZATION, Expression, Initialization, UserFunction
from hotspare.model.types import Field, FieldType
from hotspare.model.window_type import Counting
from tests.expressions.samples import ESP, ONE_ROW, SCHEMA, rows_of

I32, I64, F64, STR = FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING


def initialization(code: str = "", **functions: str) -> Initialization:
    types = {"texts": "string"}
    made = tuple(UserFunction(name, types.get(name, "int64"), Expression(text, ESP)) for name, text in functions.items())
    return Initialization(Expression(code, ESP, Place("p.xml", 3, 1)) if code else None, made)


def of_window(text: str, target: FieldType, given: Initialization) -> tuple[CompiledExpression, Prelude]:
    expression = Expression(text, ESP, Place("p.xml", 10, 5))
    prelude = compile_prelude(given, (expression,), "window q/w")
    return compile_assignment(expression, SCHEMA, Field("f", target), "q/w", Counting.REFUSED, prelude), prelude


def value_of(text: str, target: FieldType, given: Initialization = NO_INITIALIZATION) -> object:
    values, failures = of_window(text, target, given)[0].evaluate(ONE_ROW, 1)
    assert not list(failures)
    return values[0].as_py()


def message_of(text: str, given: Initialization = NO_INITIALIZATION) -> str:
    with pytest.raises(ProjectError) as caught:
        of_window(text, I64, given)
    return caught.value.mistakes[0].message


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("if a > 3 then return 'x' else return 'y'", STR, "x"),
        ("if a > 9 then return 'x' else if b < 0 then return 'y'; return 'z'", STR, "y"),
        ("if (a > 9) return 1; return 2", I32, 2),
        ("if (a > 1) and (b < 1) then return 1 else return 2", I32, 1),
        ("if(a > 9, 1, 2)", I32, 2),
        ("integer n; n = a; return n * 2", I64, 14),
        ("string t = 'a' integer i for i = 3 to 1 step -1 begin t = t & i end return t", STR, "a321"),
        ("integer n = 0 while n < 5 begin n = n + 2 end n", I64, 6),
        ("real r = 1.5 boolean yes = r > 1 if yes then r = r + 1 // a comment\n return r", F64, 2.5),
        ("integer x x = 3 if x = 3 then return 1 return 0", I32, 1),
        ("string t t = 5 return t", STR, "5"),
        ("integer n = '12' return n", I64, 12),
        ("integer n return n", I64, None),
        ("if a > 100 then return 1", I32, None),
        ("begin integer n = 1; return n end", I64, 1),
        ("return", I64, None),
        ("regex r r.compile('[a-z]+') integer n while r.findnext(s) n = coalesce(n, 0) * 100 + r.matchlength() return n", I64, 404),
        ("regex r r.compile('(o)(.)') if r.findnext(s) then if r.findnext(s) then return r.substart(2)", I32, 10),
        ("regex r r.compile('^W') if r.findfirst(s) then return 1 return 0", I32, 0),
        ("regex r r.compile('l+') return r.replace(s, '-')", STR, "He-o, Wor-d"),
        ("regex r r.compile('z') if not r.findfirst(s) then return r.matchstart()", I32, 0),
        ("integer array n n.dim(3) n.set(1, a) n.set(3, 5) return n.get(1) * 10 + n.get(3)", I64, 75),
        ("string array t t.dim(2) t.set(2, b) return t.get(2) & t.dim()", STR, "-22"),
        ("real array r r.dim(2) r.set(1, x) r.dim(1) return coalesce(r.get(2), r.get(1))", F64, 2.5),
        ("integer array n return n.dim()", I32, 0),
        ("integer array n n.dim(2) return n.get(0)", I64, None),
        ("integer array n integer array k n.dim(1) n.set(1, 4) k = n n.set(1, 5) return k.get(1)", I64, 4),
    ],
)
def test_statements_give_what_they_return(text: str, target: FieldType, expected: object) -> None:
    assert value_of(text, target) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("integer n n = zz return n", "unknown field zz"),
        ("integer a1 integer a1 return 1", "declared twice"),
        ("while a > 1", "a statement is missing"),
        ("begin return 1", "end is missing"),
        ("private thing n return n", "thing is not a type of a variable"),
        ("dq quality\nreturn 1", "variables of type dq cannot be supported"),
        ("date array n return 1", "there are no arrays of date"),
        ("integer array n return n.dim(2)", "n.dim(...) has no value"),
        ("integer array n n.put(1)", "unknown method put"),
        ("integer array n n.set(1)", "set: 1 arguments given, not 2"),
        ("for i = 1 to 3 step x return i", "the step is not a whole number"),
        ("r.findfirst(s)", "r is not a variable with a regular expression"),
        ("regex r return r.findfirst(s)", "r is not compiled yet"),
        ("regex r r.compile(s) return 1", "is not a constant"),
        ("regex r r.compile('(') return 1", "compile: "),
        ("regex r r.compile('a') return r.matchstart()", "nothing was looked for"),
        ("regex r r.compile('a') return r.find(s)", "unknown method find"),
        ("regex r r.compile('a') return r.findfirst(s, s)", "2 arguments given"),
        ("if a > 1 then return 1 else return 'x'", "the expression is string, field f is int64"),
        ("once()", "unknown function once"),
        ("parameter(1)", "unknown function parameter"),
    ],
)
def test_mistakes_in_statements_are_told(text: str, message: str) -> None:
    assert message in message_of(text)


def test_functions_see_parameters_fields_and_variables_of_the_window() -> None:
    given = initialization(
        "integer k = 3", twice="private integer p p = parameter(1); return (p + k) * 2", field="return a", count="parametercount()"
    )
    assert value_of("twice(a) + twice(1)", I64, given) == 28
    assert value_of("if(field() = 7 and count(1, 2) = 2, 1, 0)", I32, given) == 1


@pytest.mark.parametrize(
    ("functions", "text", "message"),
    [
        ({"f": "return f()"}, "f()", "f calls itself"),
        ({"f": "return g()", "g": "return f()"}, "f()", "f calls itself"),
        ({"f": "return parameter(2)"}, "f(1)", "reads number 2"),
        ({"f": "return parameter(a)"}, "f(1)", "takes the number"),
        ({"upper": "return 1"}, "upper(s)", "there is a function upper already"),
        ({"f": "integer n"}, "f()", "f returns nothing"),
        ({"f": "return zz"}, "f()", "function f, column 8 of its code: unknown field zz"),
    ],
)
def test_mistakes_in_functions_are_told(functions: dict[str, str], text: str, message: str) -> None:
    assert message in message_of(text, initialization("", **functions))


def test_an_initializer_sees_nothing_of_events_and_may_not_fail() -> None:
    assert "unknown field a" in message_of("1", initialization("integer n = a"))
    assert "the code fails: division by zero" in message_of("1", initialization("integer n = 1 / 0"))


def test_variables_that_nobody_sets_are_constants() -> None:
    given = initialization("integer n = 3 string t t = 'x' & n integer i for i = 1 to 3 n = n + i")
    expression, prelude = of_window("t & n", STR, given)
    assert not prelude.state
    assert expression.evaluate(ONE_ROW, 1)[0].to_pylist() == ["x39"]


def test_loops_and_variables_have_limits() -> None:
    endless = of_window("integer n while true n = 1 return n", I64, Initialization())[0]
    (failure,) = endless.evaluate(ONE_ROW, 1)[1]
    assert f"loops turn more than {LOOP_ITERATIONS_MAX} times" in failure.message
    growing = of_window("string t = 'aaaaaaaa' integer i for i = 1 to 100 t = t & t return t", STR, Initialization())[0]
    (failure,) = growing.evaluate(ONE_ROW, 1)[1]
    assert "a variable has more than" in failure.message


CODE = [
    ("integer i integer n = 0 for i = b to 5 begin if i = 3 then n = n + a else n = n - i end return n", I64),
    ("integer n = a while n > 1 begin n = n / 2 if n > 1000 then return -1 end return n", I64),
    ("if x > 0 then return x / b else if s = 'x' then return a return b", F64),
    (
        "regex r r.compile('[0-9]') integer n = 0 "
        "while r.findnext(s) begin n = n * 10 + int(mid(s, r.matchstart(), 1)) end return n",
        I64,
    ),
    ("boolean c = isnull(a) or a > b if c and not isnull(b) then return coalesce(a, b, 0) return least(a, 5)", I64),
    ("string t = s & 'y' integer i for i = 1 to b t = t & i return t", STR),
    ("if t > d then return year(t) return m", FieldType.MONEY),
    ("once(a) + once(b) - x", F64),
    (
        "integer array n integer array none n.dim(b) n.set(1, a) if x > 0 then n.set(2, b) "
        "integer i for i = 1 to n.dim() n.set(i, coalesce(n.get(i), i)) return n.get(b) + n.dim() + none.dim()",
        I64,
    ),
    ("string array t t.dim(3) if b > 0 then t.set(b, s) return t.get(1) & coalesce(t.get(b), '-')", STR),
    ("texts(s, a)", STR),
    ("return round(x) + round(x / 3, 2)", F64),
    ("return x / b + abs(a) % 7 - (0 - b)", F64),
    ("if x > 1.5 and x <> 3 then return mid(upper(s), 2, 2) & lower(s) & b return toString(a % b)", STR),
    ("integer n = x int32 k = a return n + k", I64),
    ("if inlist(b, 1, 2, a) or between(a, b, 7) then return max(a, b, 3) return min(b, length(s))", I64),
    ("if contains(s, '1') then return replace(s, '1', '2') return concat(left(s, 1), md5(s), toString(neg(b)))", STR),
    ("boolean c = b return integer(c) + (x >= x) + indexof(s, 'b')", I64),
]
GIVEN = initialization(
    "integer k = 2 integer array kept kept.dim(2) kept.set(2, 7)",
    once="integer i integer p = parameter(1) for i = 1 to 2 p = p + k return p",
    texts="return parameterstring(1) & parameterinteger(2) & kept.get(2)",
)
NUMBERS = st.one_of(st.none(), st.integers(-9, 9), st.sampled_from([2**63 - 1, -(2**63)]))
ROWS = st.lists(
    st.tuples(
        NUMBERS,
        st.one_of(st.none(), st.integers(-9, 9)),
        st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1.5])),
        st.one_of(st.none(), st.sampled_from(["x", "a1b22", ""])),
        st.one_of(st.none(), st.integers(-(10**12), 10**15)),
        st.one_of(st.none(), st.integers(-(10**6), 10**9)),
        st.one_of(st.none(), st.sampled_from(["1.5", "-2"])),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize(("text", "target"), CODE, ids=[text for text, _ in CODE])
@given(rows=ROWS)
def test_columns_rows_alone_and_one_after_the_other_give_the_same(
    text: str, target: FieldType, rows: list[tuple[object, ...]]
) -> None:
    """Law Cut, and windows with state compute as those without."""
    columns, (expression, _) = rows_of(*rows), of_window(text, target, GIVEN)
    values, failures = expression.evaluate(columns, len(rows))
    said = [(failure.row, failure.message) for failure in failures]
    alone = [expression.evaluate({name: c.slice(i, 1) for name, c in columns.items()}, 1) for i in range(len(rows))]
    assert list(map(str, pa.concat_arrays([value for value, _ in alone]))) == list(map(str, values))
    assert [(i, f.message) for i, (_, fs) in enumerate(alone) for f in fs] == said
    (stepped,), failed = RowwiseExpressions((expression.tree,)).run(
        {n: columns[n] for n in expression.fields}, range(len(rows)), {}
    )
    assert list(map(str, stepped)) == list(map(str, values))
    assert [(row, expression.failure_message(why.message)) for row, _, why in failed] == said


def test_arrays_are_kept_from_event_to_event() -> None:
    """The arrays are state of the window: each event sees the changes of earlier ones."""
    given = initialization("integer array newest newest.dim(2)")
    text = "newest.set(2, newest.get(1)) newest.set(1, a) return coalesce(newest.get(2), 0)"
    expression, prelude = of_window(text, I64, given)
    variables = {WINDOW_PREFIX + each.name: each.initial for each in prelude.state}
    columns = rows_of(*[(a, *[None] * 6) for a in (5, 6, 7)])
    (values,), failed = RowwiseExpressions((expression.tree,)).run({"a": columns["a"]}, range(3), variables)
    assert (values.to_pylist(), failed) == ([0, 5, 6], [])
    assert list(variables.values()) == [[7, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("integer array n n.set(1, 2) return 1", "the array has no such element"),
        ("integer array n n.dim(1001) return 1", "an array has 0 to 1000 elements"),
        ("string array t t.dim(1) t.set(1, repeat('x', 4097)) return 1", "an element has more than 4096 bytes"),
    ],
)
def test_events_that_go_beyond_an_array_are_bad(text: str, message: str) -> None:
    _, failures = of_window(text, I64, NO_INITIALIZATION)[0].evaluate(ONE_ROW, 1)
    assert [message in failure.message for failure in failures] == [True]
