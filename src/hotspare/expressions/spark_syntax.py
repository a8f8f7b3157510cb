"""Reads Spark SQL expressions: sqlglot parses; this module converts its tree into ours and refuses all that is not an expression
over a row.

A number with a point is a double here (Spark makes it a decimal). Names of fields match in any case if that is unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import sqlglot
from sqlglot import errors as sqlglot_errors
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from hotspare.expressions.esp_syntax import INT64_MAX, check_one_argument, number_literal
from hotspare.expressions.function_table import CAST_NAMES, FUNCTION_NAMES
from hotspare.expressions.tree import DEPTH_MAX, Call, ExpressionRefused, FieldRef, Literal, Tree, ValueType
from hotspare.model.project import Dialect

_SELECT = "SELECT "
Node: TypeAlias = Any
Builder: TypeAlias = Callable[..., Any]
"""A function of sqlglot that builds the node of a function call from its arguments."""


def _lossless_builder(name: str, builder: Builder) -> Builder:
    """Returns a builder like `builder` that drops no argument. If `builder` would drop one, or no reader here knows its node, the
    call remains a call of `name`. So a later check counts its arguments and reports a mistake in the user's words.
    """
    takes_dialect = "dialect" in builder.__code__.co_varnames if hasattr(builder, "__code__") else False

    def build(args: list[Any], dialect: Any) -> Any:
        node = builder(args, dialect=dialect) if takes_dialect else builder(args)
        if _is_known(node) and all(argument.parent is not None for argument in args if not isinstance(argument, exp.Literal)):
            return node
        return exp.Anonymous(this=name.lower(), expressions=args)

    return build


class _LosslessSpark(Spark):
    """The dialect Spark SQL of sqlglot with builders that drop no argument silently."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Builder]] = {
            name: _lossless_builder(name, builder) for name, builder in SparkParser.FUNCTIONS.items()
        }


_BINARY = MappingProxyType(
    {
        exp.Add: ("add", "+"),
        exp.Sub: ("subtract", "-"),
        exp.Mul: ("multiply", "*"),
        exp.Div: ("divide", "/"),
        exp.IntDiv: ("div", "div"),
        exp.Mod: ("mod", "%"),
        exp.EQ: ("equal", "="),
        exp.NEQ: ("not_equal", "<>"),
        exp.LT: ("less", "<"),
        exp.LTE: ("less_equal", "<="),
        exp.GT: ("greater", ">"),
        exp.GTE: ("greater_equal", ">="),
        exp.NullSafeEQ: ("null_safe_equal", "<=>"),
        exp.And: ("and", "and"),
        exp.Or: ("or", "or"),
        exp.DPipe: ("concat", "||"),
        exp.Like: ("like", "like"),
        exp.ILike: ("ilike", "ilike"),
        exp.RegexpLike: ("rlike", "rlike"),
        exp.Contains: ("contains", "contains"),
        exp.StartsWith: ("startswith", "startswith"),
        exp.EndsWith: ("endswith", "endswith"),
        exp.Nullif: ("nullif", "nullif"),
        exp.Pow: ("pow", "pow"),
        exp.Left: ("left", "left"),
        exp.Right: ("right", "right"),
    }
)
_UNARY = MappingProxyType(
    {
        exp.Not: "not",
        exp.Abs: "abs",
        exp.Sqrt: "sqrt",
        exp.Exp: "exp",
        exp.Ln: "ln",
        exp.Sign: "sign",
        exp.Sin: "sin",
        exp.Cos: "cos",
        exp.Tan: "tan",
        exp.IsNan: "isnan",
        exp.Upper: "upper",
        exp.Lower: "lower",
        exp.Length: "length",
        exp.ArraySize: "size",
        exp.Reverse: "reverse",
        exp.Year: "year",
        exp.Quarter: "quarter",
        exp.Month: "month",
        exp.Day: "day",
        exp.DayOfMonth: "day",
        exp.DayOfYear: "dayofyear",
        exp.DayOfWeek: "dayofweek",
        exp.Hour: "hour",
        exp.Minute: "minute",
        exp.Second: "second",
        exp.UnixSeconds: "unix_seconds",
        exp.UnixMicros: "unix_micros",
    }
)
_OPTIONAL = MappingProxyType(
    {
        exp.Round: ("round", ("this", "decimals")),
        exp.Substring: ("substring", ("this", "start", "length")),
        exp.Replace: ("replace", ("this", "expression", "replacement")),
        exp.RegexpReplace: ("regexp_replace", ("this", "expression", "replacement")),
        exp.Nvl2: ("nvl2", ("this", "true", "false")),
        exp.Between: ("between", ("this", "low", "high")),
        exp.Ceil: ("ceil", ("this",)),
        exp.Floor: ("floor", ("this",)),
        exp.StrPosition: ("instr", ("this", "substr")),
    }
)
_LISTED = MappingProxyType(
    {
        exp.Coalesce: "coalesce",
        exp.Greatest: "greatest",
        exp.Least: "least",
        exp.In: "in",
        exp.Concat: "concat",
        exp.ConcatWs: "concat_ws",
    }
)
_TYPES = MappingProxyType(
    {
        "INT": "int32",
        "BIGINT": "int64",
        "DOUBLE": "double",
        "TEXT": "string",
        "VARCHAR": "string",
        "BOOLEAN": "boolean",
        "TIMESTAMP": "stamp",
        "TIMESTAMPTZ": "stamp",
        "TIMESTAMPNTZ": "stamp",
        "DATE": "date",
    }
)
_IGNORED_ARGUMENTS = frozenset({"safe", "coalesce", "ignore_nulls", "typed", "negate", "flatten", "to", "is_null"})
_TRIM = MappingProxyType({"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim", "": "trim"})


def _is_known(node: Node) -> bool:
    """Whether a reader of this module converts the node of a function. A node that is not a function counts as known."""
    tables: tuple[Mapping[Any, Any], ...] = (_READERS, _BINARY, _UNARY, _OPTIONAL, _LISTED)
    if any(type(node) in table for table in tables) or not isinstance(node, exp.Func):
        return True
    return node.sql_name().lower() in FUNCTION_NAMES[Dialect.SPARK_SQL]


def parse_spark(text: str) -> Tree:
    """Returns the tree of a Spark SQL expression. Raises ExpressionRefused with the column of the first mistake."""
    try:
        statements = sqlglot.parse(_SELECT + text, read=_LosslessSpark)
    except sqlglot_errors.ParseError as error:
        found = error.errors[0] if error.errors else {}
        column = max(1, int(found.get("col") or 1) - len(_SELECT)) if int(found.get("line") or 1) == 1 else 1
        why = str(found.get("description") or "it cannot be read")
        why = "something is missing" if why.startswith("Required keyword") else why[:1].lower() + why[1:].rstrip(".")
        raise ExpressionRefused(column, f"not Spark SQL: {why}", "check operators, quotes and parentheses") from None
    except sqlglot_errors.TokenError:
        raise ExpressionRefused(1, "not Spark SQL: a string or comment is not closed", "close the quote or the comment") from None
    except RecursionError:
        raise ExpressionRefused(1, "nested too deeply", "split the expression over several windows") from None
    except (IndexError, ValueError, AttributeError, TypeError):
        raise ExpressionRefused(1, "not Spark SQL: it cannot be read", "check operators, quotes and parentheses") from None
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select) or any(
        value for name, value in select.args.items() if name not in ("kind", "expressions")
    ):
        raise ExpressionRefused(1, "this is a statement, not an expression", "write only the expression, without select")
    if len(select.expressions) != 1:
        raise ExpressionRefused(
            1, f"these are {len(select.expressions)} expressions, not one", "remove the comma, or give each its own field"
        )
    return _tree(select.expressions[0], 0)


def _column(node: Node) -> int:
    """Returns the column of a node in the expression: its own if known, else the first column of the nodes within it, else 1."""
    own = node.meta.get("start")
    starts = [own] if own is not None else [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return max(1, min(starts, default=0) + 1 - len(_SELECT))


def _tree(node: Node, depth: int) -> Tree:
    if node is None:
        raise ExpressionRefused(1, "not Spark SQL: something is missing", "check operators, quotes and parentheses")
    if depth > DEPTH_MAX:
        raise ExpressionRefused(_column(node), f"nested more than {DEPTH_MAX} deep", "use two windows")
    reader = _READERS.get(type(node))
    if reader is not None:
        return reader(node, depth + 1)
    if type(node) in _BINARY:
        return _binary(node, depth + 1)
    if type(node) in _UNARY:
        _check_form(node, _UNARY[type(node)], ("this",))
        return _call(_UNARY[type(node)], node, [node.this], depth + 1)
    if type(node) in _OPTIONAL:
        return _optional(node, depth + 1)
    if type(node) in _LISTED:
        first = [node.this] if node.args.get("this") is not None else []
        if node.args.get("query") is not None:
            raise _refused(node)
        return _call(_LISTED[type(node)], node, first + node.expressions, depth + 1)
    if isinstance(node, exp.Func):
        name = node.sql_name().lower()
        return Call(
            FUNCTION_NAMES[Dialect.SPARK_SQL].get(name, ""), name, tuple(_tree(a, depth + 1) for a in _values(node)), _column(node)
        )
    raise _refused(node)


def _values(node: Node) -> list[Node]:
    """Returns the argument nodes of a function, in order."""
    values = [v for value in node.args.values() for v in (value if isinstance(value, list) else [value])]
    return [value for value in values if isinstance(value, exp.Expr)]


def _refused(node: Node) -> ExpressionRefused:
    hint = "an expression is computed from the fields of one event"
    if isinstance(node, exp.Filter):
        hint = "put the condition into the argument, as in sum(CASE WHEN a > 1 THEN x END)"
    return ExpressionRefused(_column(node), f"{_sql_text(node)} cannot be used here", hint)


def _sql_text(node: Node) -> str:
    return str(node.sql(dialect="spark"))[:60]


def _call(function: str, node: Node, arguments: list[Node], depth: int, written: str = "") -> Tree:
    return Call(function, written or function, tuple(_tree(a, depth) for a in arguments), _column(node))


def _binary(node: Node, depth: int) -> Tree:
    function, sign = _BINARY[type(node)]
    _check_form(node, function, ("this", "expression"))
    tree = _call(function, node, [node.this, node.expression], depth, sign)
    if node.args.get("negate"):
        return Call("not", f"not {sign}", (tree,), tree.column)
    return tree


def _optional(node: Node, depth: int) -> Tree:
    function, names = _OPTIONAL[type(node)]
    _check_form(node, function, names)
    return _call(function, node, [node.args[n] for n in names if node.args.get(n) is not None], depth)


def _check_form(node: Node, function: str, names: Sequence[str]) -> None:
    """Raises ExpressionRefused if a call has arguments other than `names`: no reader would use them."""
    more = [n for n, v in node.args.items() if v is not None and v is not False and n not in names and n not in _IGNORED_ARGUMENTS]
    if more:
        raise ExpressionRefused(_column(node), f"{function}: this form is not supported", "write it as a plain call with arguments")


def _literal(node: Node, _depth: int) -> Tree:
    if node.is_string:
        return Literal(node.this, ValueType.STRING, _column(node))
    return number_literal(node.this, _column(node))


def _negative(node: Node, depth: int) -> Tree:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        if inner.this == str(INT64_MAX + 1):
            return Literal(-INT64_MAX - 1, ValueType.INT64, _column(node))
        number = number_literal(inner.this, _column(node))
        assert isinstance(number.value, int | float)
        return Literal(-number.value, number.type, number.column)
    return _call("negate", node, [inner], depth, "-")


def _element(node: Node, depth: int) -> Tree:
    """Returns the call for `element_at` and `try_element_at`. Raises ExpressionRefused for `a[0]`, which counts from 0."""
    number = node.expressions
    if node.args.get("offset") != 1 or len(number) != 1:
        raise _refused(node)
    return _call("try_element_at" if node.args.get("safe") else "element_at", node, [node.this, number[0]], depth)


def _field(node: Node, _depth: int) -> Tree:
    if node.args.get("table") is not None or not isinstance(node.this, exp.Identifier):
        raise ExpressionRefused(
            _column(node), f"{_sql_text(node)} is not the name of a field", "put `...` around a name with a point"
        )
    return FieldRef(node.this.this, _column(node))


def _cast(node: Node, depth: int) -> Tree:
    data_type = node.args["to"]
    name = _type_name(node, data_type)
    written = "try_cast" if isinstance(node, exp.TryCast) and node.args.get("safe") else "cast"
    tree = Call(written, written, (_tree(node.this, depth), Literal(name, ValueType.STRING)), _column(node))
    if data_type.this.name != "DATE":
        return tree
    day = (Literal("day", ValueType.STRING), Call(written, written, (tree, Literal("stamp", ValueType.STRING)), tree.column))
    return Call("cast", "cast", (Call("date_trunc", "cast", day, tree.column), Literal("date", ValueType.STRING)), tree.column)


def _type_name(node: Node, data_type: Node) -> str:
    name = data_type.this.name
    if name == "DECIMAL" and [str(p) for p in data_type.expressions] == ["18", "4"]:
        return "money"
    if name not in _TYPES or data_type.expressions:
        wanted = "int, bigint, double, string, boolean, timestamp, date, decimal(18,4)"
        raise ExpressionRefused(
            _column(node), f"type {data_type.sql(dialect='spark').lower()} does not exist here", f"use {wanted}"
        )
    return _TYPES[name]


def _is(node: Node, depth: int) -> Tree:
    if isinstance(node.expression, exp.Null):
        return _call("isnull", node, [node.this], depth, "is null")
    if isinstance(node.expression, exp.Boolean):
        return _call("null_safe_equal", node, [node.this, node.expression], depth, "is")
    raise _refused(node)


def _if(node: Node, depth: int) -> Tree:
    otherwise = node.args.get("false") or exp.Null()
    return _call("case", node, [node.this, node.args["true"], otherwise], depth, "if")


def _case(node: Node, depth: int) -> Tree:
    subject, arguments = node.args.get("this"), []
    for branch in node.args["ifs"]:
        condition = branch.this if subject is None else exp.EQ(this=subject.copy(), expression=branch.this.copy())
        arguments += [condition, branch.args["true"]]
    return _call("case", node, [*arguments, node.args.get("default") or exp.Null()], depth)


def _trim(node: Node, depth: int) -> Tree:
    function = _TRIM[str(node.args.get("position") or "").upper()]
    characters = [node.expression] if node.args.get("expression") is not None else []
    return _call(function, node, [node.this, *characters], depth)


def _log(node: Node, depth: int) -> Tree:
    base, value = node.this, node.args.get("expression")
    if value is not None and isinstance(base, exp.Literal) and base.this == "10":
        return _call("log10", node, [value], depth)
    return _call("log" if value is not None else "ln", node, [base] if value is None else [base, value], depth)


def _count(node: Node, depth: int) -> Tree:
    """Returns `count()` for `count(*)`, and `count_distinct(x)` for `count(distinct x)`; both have a meaning only in aggregate
    windows.
    """
    what = node.this
    name, counted = "count", _values(node)
    if isinstance(what, exp.Star) and len(counted) == 1 and not any(what.args.values()):
        counted = []
    elif isinstance(what, exp.Distinct) and len(counted) == 1:
        name, counted = "count_distinct", list(what.expressions)
    return Call(FUNCTION_NAMES[Dialect.SPARK_SQL].get(name, ""), name, tuple(_tree(a, depth) for a in counted), _column(node))


def _date_trunc(node: Node, depth: int) -> Tree:
    _check_form(node, "date_trunc", ("this", "unit"))
    unit = Literal(str(node.args["unit"].name).lower(), ValueType.STRING, _column(node))
    return Call("date_trunc", "date_trunc", (unit, _tree(node.this, depth)), _column(node))


def _anonymous_call(node: Node, depth: int) -> Tree:
    name = str(node.this).lower()
    arguments = tuple(_tree(a, depth) for a in node.expressions)
    if name in CAST_NAMES[Dialect.SPARK_SQL]:
        check_one_argument(name, len(arguments), _column(node))
        return Call("cast", name, (*arguments, Literal(CAST_NAMES[Dialect.SPARK_SQL][name], ValueType.STRING)), _column(node))
    return Call(FUNCTION_NAMES[Dialect.SPARK_SQL].get(name, ""), str(node.this), arguments, _column(node))


def _unwrap(node: Node, depth: int) -> Tree:
    """Returns the tree inside a wrapper node: parentheses, or the marker by which sqlglot turns the argument of a date function
    into a date.
    """
    if isinstance(node, exp.TsOrDsToDate):
        _check_form(node, "to_date", ("this",))
    if isinstance(node, exp.TsOrDsToDate) and node.args.get("safe"):
        return _cast(exp.Cast(this=node.this, to=exp.DataType.build("date")), depth)
    return _tree(node.this, depth)


_READERS: MappingProxyType[Any, Callable[[Node, int], Tree]] = MappingProxyType(
    {
        exp.Literal: _literal,
        exp.Boolean: lambda node, _depth: Literal(bool(node.this), ValueType.BOOLEAN, _column(node)),
        exp.Null: lambda node, _depth: Literal(None, ValueType.NULL, _column(node)),
        exp.Neg: _negative,
        exp.Column: _field,
        exp.Bracket: _element,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Is: _is,
        exp.If: _if,
        exp.Case: _case,
        exp.Trim: _trim,
        exp.Log: _log,
        exp.Count: _count,
        exp.TimestampTrunc: _date_trunc,
        exp.DateTrunc: _date_trunc,
        exp.Anonymous: _anonymous_call,
        exp.Paren: _unwrap,
        exp.TsOrDsToDate: _unwrap,
    }
)
