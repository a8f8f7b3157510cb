"""Expressions over the rows of a group (SPEC A28). Calls of aggregate functions are extracted. What remains is an expression over
their results and the key of the group.

    ESP_aSum(x) / ESP_aCount() + 1        calls: sum of x, count of rows        rest: `aggregate:0` / `aggregate:1` + 1

The argument of a call is itself an expression, over the fields of a row. In Spark SQL the functions also have shorter names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.arrays import ELEMENT
from hotspare.expressions.checking import Checker, converted
from hotspare.expressions.compiled import CompiledExpression, as_project_error, compiled_tree, parse
from hotspare.expressions.function import TypeMismatch, can_convert, numeric_type
from hotspare.expressions.prelude import NO_PRELUDE, Prelude, Typing
from hotspare.expressions.tree import Call, Constant, ExpressionRefused, FieldRef, Literal, Statements, Tree, Typed, ValueType
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Field, FieldType, Schema

PERIOD_S_MAX = 100 * 366 * 86_400


class Aggregate(Enum):
    """The aggregate functions. The value of a member is its name in ESP XML, or the Spark SQL name if ESP XML has no such
    function.
    """

    SUM = "ESP_aSum"
    AVERAGE = "ESP_aAve"
    COUNT = "ESP_aCount"
    COUNT_NON_NULL = "ESP_aCountNonNull"
    COUNT_NULL = "ESP_aCountNull"
    COUNT_OPCODES = "ESP_aCountOpcodes"
    LAST = "ESP_aLast"
    LAST_NON_DELETE = "ESP_aLastNonDelete"
    LAST_OPCODE = "ESP_aLastOpcode"
    DEVIATION = "ESP_aStd"
    VARIANCE = "ESP_aVariance"
    SPREAD = "ESP_aCSS"
    SQUARES = "ESP_aUSS"
    VARIATION = "ESP_aCV"
    WEIGHTED = "ESP_aWAve"
    IDENTIFIER = "ESP_aGUID"
    SUM_TIMED = "ESP_aSumTimed"
    AVERAGE_TIMED = "ESP_aAveTimed"
    COUNT_TIMED = "ESP_aCountTimed"
    MIN_TIMED = "ESP_aMinTimed"
    MAX_TIMED = "ESP_aMaxTimed"
    MIN = "ESP_aMin"
    MAX = "ESP_aMax"
    COUNT_DISTINCT = "ESP_aCountDistinct"
    MODE = "ESP_aMode"
    FIRST = "ESP_aFirst"
    LAG = "ESP_aLag"
    CONCATENATION = "ESP_aCat"
    COLLECTION = "collect"
    MEDIAN = "median"
    PERCENTILE = "percentile"
    NTH = "nth"


class ParameterKind(Enum):
    """The kinds of values that an argument of an aggregate function accepts; the value of a member is its wording in messages."""

    NUMBER = "a number"
    """int64, money or double."""
    WHOLE_OR_DOUBLE = "a number other than money"
    """int64 or double; the result of the function is a double."""
    VALUE = "a value"
    OPCODE = "1, 2 or 3: insert, update or delete"
    PERIOD = "a number of seconds"
    PLACE = "a whole number from 0 on"
    NUMBER_OF_ROW = "a whole number from 1 on"
    SHARE = "a number from 0 to 1"
    TEXT = "a value as text"
    ELEMENT = "a number that an array holds"
    """int32, int64 or double. The argument is converted to text before it is aggregated."""
    SEPARATOR = "a text"


_CONSTANTS = frozenset(
    {
        ParameterKind.OPCODE,
        ParameterKind.PERIOD,
        ParameterKind.PLACE,
        ParameterKind.NUMBER_OF_ROW,
        ParameterKind.SHARE,
        ParameterKind.SEPARATOR,
    }
)
LAG_OFFSET_MAX = 1_000


_FIRST_ARGUMENT_TYPE = None
"""The `result` of a function whose result has the type of its first argument."""
_OPCODES = {"I": 1, "U": 2, "D": 3}


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """The description of an aggregate function.

    `parameter_kinds`: the kinds of its arguments, in order. `required`: the number of leading arguments that a call must have; -1:
    all. `spark_names`: its lower-case names that only Spark SQL has.
    """

    aggregate: Aggregate
    parameter_kinds: tuple[ParameterKind, ...]
    result: ValueType | None
    meaning: str
    spark_names: tuple[str, ...] = ()
    required: int = -1


_N, _D, _V, _P = ParameterKind.NUMBER, ParameterKind.WHOLE_OR_DOUBLE, ParameterKind.VALUE, ParameterKind.PERIOD
_INT32, _INT64, _DOUBLE, _STRING = ValueType.INT32, ValueType.INT64, ValueType.DOUBLE, ValueType.STRING
A = Aggregate

AGGREGATE_FUNCTIONS = (
    AggregateFunction(A.SUM, (_N,), _FIRST_ARGUMENT_TYPE, "the sum; of whole numbers int64", ("sum",)),
    AggregateFunction(A.AVERAGE, (_D,), _DOUBLE, "the average", ("avg", "mean")),
    AggregateFunction(A.COUNT, (_V,), _INT64, "the count of rows; with an argument, the count of values", ("count",), 0),
    AggregateFunction(A.COUNT_NON_NULL, (_V,), _INT64, "the count of values that are not null"),
    AggregateFunction(A.COUNT_NULL, (_V,), _INT64, "the count of values that are null"),
    AggregateFunction(
        A.COUNT_OPCODES, (ParameterKind.OPCODE,), _INT64, "the count of events with this opcode since the group began"
    ),
    AggregateFunction(A.LAST, (_V,), _FIRST_ARGUMENT_TYPE, "the value of the last event, even if it is a delete"),
    AggregateFunction(A.LAST_NON_DELETE, (_V,), _FIRST_ARGUMENT_TYPE, "the value of the last event that was not a delete"),
    AggregateFunction(A.LAST_OPCODE, (), _INT32, "the opcode of the last event: 1 insert, 2 update, 3 delete"),
    AggregateFunction(A.DEVIATION, (_D,), _DOUBLE, "the standard deviation of a sample", ("stddev", "stddev_samp", "std")),
    AggregateFunction(A.VARIANCE, (_D,), _DOUBLE, "the variance of a sample", ("variance", "var_samp")),
    AggregateFunction(A.SPREAD, (_D,), _DOUBLE, "the sum of squared differences from the average"),
    AggregateFunction(A.SQUARES, (_D,), _DOUBLE, "the sum of squares"),
    AggregateFunction(A.VARIATION, (_D,), _DOUBLE, "the standard deviation in percent of the average; null if that is 0"),
    AggregateFunction(
        A.WEIGHTED, (_D, _D), _DOUBLE, "the average, each value with the weight before it; null if the weights sum up to 0"
    ),
    AggregateFunction(A.IDENTIFIER, (), _STRING, "a text of its own for each change of the group"),
    AggregateFunction(A.SUM_TIMED, (_N, _P), _FIRST_ARGUMENT_TYPE, "the sum of the values of this period"),
    AggregateFunction(A.AVERAGE_TIMED, (_D, _P), _DOUBLE, "the average of the values of this period"),
    AggregateFunction(A.COUNT_TIMED, (_P,), _INT64, "the count of rows that arrived in this period"),
    AggregateFunction(A.MIN_TIMED, (_V, _P), _FIRST_ARGUMENT_TYPE, "the least value that arrived in this period"),
    AggregateFunction(A.MAX_TIMED, (_V, _P), _FIRST_ARGUMENT_TYPE, "the greatest value that arrived in this period"),
    AggregateFunction(A.MIN, (_V,), _FIRST_ARGUMENT_TYPE, "the least value", ("min",)),
    AggregateFunction(A.MAX, (_V,), _FIRST_ARGUMENT_TYPE, "the greatest value; NaN is the greatest of all", ("max",)),
    AggregateFunction(A.COUNT_DISTINCT, (_V,), _INT64, "the count of different values", ("count_distinct",)),
    AggregateFunction(A.MODE, (_V,), _FIRST_ARGUMENT_TYPE, "the most frequent value, the least of several", ("mode",)),
    AggregateFunction(A.FIRST, (_V,), _FIRST_ARGUMENT_TYPE, "the value of the row that arrived first", ("first",)),
    AggregateFunction(
        A.LAG, (_V, ParameterKind.PLACE), _FIRST_ARGUMENT_TYPE, "the value of a row before the last one: 0 is the last itself"
    ),
    AggregateFunction(
        A.CONCATENATION, (ParameterKind.TEXT, ParameterKind.SEPARATOR), _STRING, "all values in order of arrival, as one text"
    ),
    AggregateFunction(
        A.COLLECTION,
        (ParameterKind.ELEMENT,),
        _FIRST_ARGUMENT_TYPE,
        "all values in order of arrival, as an array",
        ("collect_list", "array_agg"),
    ),
    AggregateFunction(A.MEDIAN, (_D,), _DOUBLE, "the value in the middle, or between both in the middle", ("median",)),
    AggregateFunction(
        A.PERCENTILE, (_D, ParameterKind.SHARE), _DOUBLE, "the value at a share of the way, in proportion", ("quantile",)
    ),
    AggregateFunction(
        A.NTH,
        (_V, ParameterKind.NUMBER_OF_ROW),
        _FIRST_ARGUMENT_TYPE,
        "the value of a row in order of arrival: 1 is the first",
        ("nth",),
    ),
)
_BY_NAME = {
    Dialect.ESP: {f.aggregate.value.lower(): f for f in AGGREGATE_FUNCTIONS if f.aggregate.value.startswith("ESP_")},
    Dialect.SPARK_SQL: {name: f for f in AGGREGATE_FUNCTIONS for name in (f.aggregate.value.lower(), *f.spark_names)},
}


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate function.

    `arguments`: expressions over the fields of a row, each with the type of a field. `constants`: the values of the constant
    arguments, in order. `type`: the type of the result.
    """

    aggregate: Aggregate
    arguments: tuple[CompiledExpression, ...]
    constants: tuple[Constant, ...]
    type: ValueType

    @property
    def equality_key(self) -> object:
        """A value that is equal for two calls if and only if function, arguments and constants are equal: such calls share a
        result.
        """
        return self.aggregate, tuple(argument.tree for argument in self.arguments), self.constants


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The compiled fields of a window. `calls`: the aggregate calls. `aggregate_schema`: the key fields of a group, then one field
    per call. `outputs`: expressions over `aggregate_schema` that compute the window's fields.
    """

    calls: tuple[AggregateCall, ...]
    aggregate_schema: Schema
    outputs: tuple[CompiledExpression, ...]


class AggregateReader:
    """Compiles expressions over groups of rows and collects their aggregate calls in `calls`.

    `given`: the schema of the rows. `groups`: the fields that form the key of a group. `prelude`: constants and functions that the
    expressions may use.
    """

    def __init__(self, given: Schema, groups: Sequence[str], prelude: Prelude = NO_PRELUDE) -> None:
        self._prelude = prelude
        self._given = given
        self._groups = tuple(groups)
        self._fields = {f.name: ValueType.from_field_type(f.type) for f in given.fields}
        self.calls: list[AggregateCall] = []

    def compile_field(self, expression: Expression, field: Field | None, label: str) -> CompiledExpression:
        """Returns an expression over the group key and the results of the aggregate calls, which are added to `calls`.

        The value is converted to the type of `field`, unless `field` is None. Raises ProjectError with the first mistake in the
        expression.
        """

        def type_expression(tree: Tree | Statements) -> Typed:
            if isinstance(tree, Statements):
                raise ExpressionRefused(tree.column or 1, "an aggregate takes expressions, not statements", "write one expression")
            left = self._extract_calls(tree, expression, label)
            checker = self._checker(self._visible(), expression.dialect)
            return (
                checker.typed(left) if field is None else checker.assigned(left, ValueType.from_field_type(field.type), field.name)
            )

        try:
            typed = type_expression(parse(expression.text, expression.dialect))
        except ExpressionRefused as refused:
            raise as_project_error(expression, label, refused) from None
        visible = Schema(tuple(Field(name, FieldType(type_.value)) for name, type_ in self._visible().items()))
        return compiled_tree(typed, expression.text, label, visible)

    def _checker(self, fields: dict[str, ValueType], dialect: Dialect) -> Checker:
        return Typing(fields, dialect, self._prelude).code().checker

    def _visible(self) -> dict[str, ValueType]:
        keys = {name: self._fields[name] for name in self._groups if name in self._fields}
        return keys | {f"aggregate:{i}": call.type for i, call in enumerate(self.calls)}

    def _extract_calls(self, tree: Tree, expression: Expression, label: str) -> Tree:
        if isinstance(tree, Literal):
            return tree
        if isinstance(tree, FieldRef):
            return self._key(tree, expression.dialect)
        if not isinstance(tree, Call):
            raise ExpressionRefused(tree.column, "an aggregate has no variables", "compute it in a window downstream")
        function = _BY_NAME[expression.dialect].get(tree.written_name.lower()) if not tree.function else None
        if function is None:
            arguments = tuple(self._extract_calls(argument, expression, label) for argument in tree.arguments)
            return Call(tree.function, tree.written_name, arguments, tree.column)
        call = self._call(tree, function, expression, label)
        known = [each.equality_key for each in self.calls]
        if call.equality_key not in known:
            self.calls.append(call)
        return FieldRef(f"aggregate:{[*known, call.equality_key].index(call.equality_key)}", tree.column)

    def _key(self, node: FieldRef, dialect: Dialect) -> FieldRef:
        alike = [n for n in self._fields if n == node.name or (dialect is Dialect.SPARK_SQL and n.lower() == node.name.lower())]
        if len(alike) == 1 and alike[0] not in self._groups:
            hint = f"take it from the rows of the group, for example with ESP_aLast({alike[0]}), or make it a key of the window"
            raise ExpressionRefused(node.column, f"field {alike[0]} may differ between the rows of a group", hint)
        return node

    def _call(self, call: Call, function: AggregateFunction, expression: Expression, label: str) -> AggregateCall:
        least = len(function.parameter_kinds) if function.required < 0 else function.required
        if not least <= len(call.arguments) <= len(function.parameter_kinds):
            wanted = str(least) if least == len(function.parameter_kinds) else f"{least} to {len(function.parameter_kinds)}"
            message = f"{call.written_name}: {len(call.arguments)} arguments given, not {wanted}"
            raise ExpressionRefused(call.column, message, "give as many as it takes")
        arguments = call.arguments
        if function.aggregate is Aggregate.WEIGHTED:
            arguments = tuple(_only_with(a, b, call) for a, b in (arguments, arguments[::-1]))
        made: list[CompiledExpression] = []
        constants: list[Constant] = []
        array: ValueType | None = None
        for tree, takes in zip(arguments, function.parameter_kinds, strict=False):
            if takes in _CONSTANTS:
                constants.append(_constant(tree, takes, call))
            else:
                typed = self._argument(tree, takes, function, call, expression.dialect)
                made.append(compiled_tree(typed, expression.text, label, self._given))
                if takes is ParameterKind.ELEMENT:
                    array = self._array_of(tree, call, expression.dialect)
        if function.aggregate is Aggregate.WEIGHTED and made[0].tree.type is not made[1].tree.type:
            made = [compiled_tree(converted(each.tree, ValueType.DOUBLE), expression.text, label, self._given) for each in made]
        type_ = array or function.result or made[0].tree.type
        return AggregateCall(function.aggregate, tuple(made), tuple(constants), type_)

    def _argument(self, tree: Tree, takes: ParameterKind, function: AggregateFunction, call: Call, dialect: Dialect) -> Typed:
        self._refuse_nested(tree, call, dialect)
        if takes in (ParameterKind.TEXT, ParameterKind.ELEMENT):
            tree = Call("cast", call.written_name, (tree, Literal("string", ValueType.STRING)), call.column)
        typed = self._checker(self._fields, dialect).typed(tree)
        if takes in (ParameterKind.TEXT, ParameterKind.ELEMENT):
            return typed
        if takes is ParameterKind.VALUE:
            if typed.type is ValueType.BOOLEAN and can_convert(typed.type, ValueType.INT64, dialect):
                return converted(typed, ValueType.INT64)
            if typed.type in (ValueType.BOOLEAN, ValueType.NULL):
                raise ExpressionRefused(call.column, f"{call.written_name}: no field can be {typed.type.value}", "give it a field")
            return typed
        try:
            type_ = numeric_type([typed.type], dialect)
        except TypeMismatch as mismatch:
            raise ExpressionRefused(call.column, f"{call.written_name}: {mismatch.message}", mismatch.hint) from None
        type_ = ValueType.INT64 if type_ is ValueType.INT32 else type_
        if takes is ParameterKind.WHOLE_OR_DOUBLE and type_ is ValueType.MONEY:
            type_ = ValueType.DOUBLE
        return converted(typed, type_)

    def _array_of(self, tree: Tree, call: Call, dialect: Dialect) -> ValueType:
        """Returns the array type whose elements have the type of `tree`. Raises ExpressionRefused if arrays cannot hold
        that type.
        """
        found = Checker(self._fields, dialect).typed(tree).type
        arrays = {element: array for array, element in ELEMENT.items()}
        if found not in arrays:
            message = f"{call.written_name}: the values are {found.value}, and arrays hold numbers"
            raise ExpressionRefused(call.column, message, f"give it one of: {', '.join(each.value for each in arrays)}")
        return arrays[found]

    def _refuse_nested(self, tree: Tree, outer: Call, dialect: Dialect) -> None:
        for call in _calls(tree):
            if not call.function and call.written_name.lower() in _BY_NAME[dialect]:
                message = f"{outer.written_name} of {call.written_name}: aggregate functions take fields of rows"
                raise ExpressionRefused(call.column, message, "put a second aggregate downstream of the first")


def compile_aggregation(
    window: str,
    given: Schema,
    computed: Iterable[tuple[Field, Expression | None]],
    groups: Sequence[Field],
    prelude: Prelude = NO_PRELUDE,
) -> Aggregation:
    """Returns the compiled fields of a window. In `computed`, None as the expression marks a key field, which is copied. Raises
    ProjectError with the mistakes of all fields.
    """
    reader = AggregateReader(given, [field.name for field in groups], prelude)
    outputs: list[CompiledExpression] = []
    mistakes: list[Mistake] = []
    for field, written in computed:
        expression = written or Expression(f"`{field.name}`", Dialect.SPARK_SQL)
        try:
            outputs.append(reader.compile_field(expression, field, f"window {window}, field {field.name}"))
        except ProjectError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ProjectError(window, mistakes)
    made = [Field(f"aggregate:{i}", FieldType(call.type.value)) for i, call in enumerate(reader.calls)]
    return Aggregation(tuple(reader.calls), Schema((*groups, *made)), tuple(outputs))


def _calls(tree: Tree) -> Iterable[Call]:
    if isinstance(tree, Call):
        yield tree
        for argument in tree.arguments:
            yield from _calls(argument)


def _only_with(tree: Tree, other: Tree, call: Call) -> Tree:
    """Returns a tree whose value is that of `tree` if `other` is not null, else null."""
    return Call(
        "case",
        call.written_name,
        (Call("isnotnull", call.written_name, (other,)), tree, Literal(None, ValueType.NULL)),
        call.column,
    )


def _constant(tree: Tree, takes: ParameterKind, call: Call) -> Constant:
    value = tree.value if isinstance(tree, Literal) else None
    if takes is ParameterKind.SEPARATOR and isinstance(value, str):
        return value
    if takes is ParameterKind.OPCODE:
        value = _OPCODES.get(value.upper(), 0) if isinstance(value, str) else value
        if value in _OPCODES.values():
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if takes is ParameterKind.PERIOD and 0 < value <= PERIOD_S_MAX:
            return round(value * 1_000_000)
        if takes is ParameterKind.SHARE and 0 <= value <= 1:
            return float(value)
        least = 0 if takes is ParameterKind.PLACE else 1
        if (
            takes in (ParameterKind.PLACE, ParameterKind.NUMBER_OF_ROW)
            and isinstance(value, int)
            and least <= value <= LAG_OFFSET_MAX
        ):
            return value
    raise ExpressionRefused(
        call.column, f"{call.written_name}: the argument is not {takes.value}", "write the value itself, not a field"
    )
