"""The variables and functions of a window's code, which its expressions can use (SPEC A24).

The initializer runs once, when the window is compiled, without any input. A variable that no expression sets afterwards is a
constant. One that an expression sets is state: the window retains it from event to event, and in its page. An initializer that
reads the time runs with the first event, before the expression, because time begins there. All its variables are state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa

from hotspare.base.errors import Mistake, Place, ProjectError
from hotspare.expressions.blocks import final_variables
from hotspare.expressions.checking import SYSTEM_TIME_FIELD, Checker, VisibleNames
from hotspare.expressions.evaluate import EVALUATOR
from hotspare.expressions.frame import Frame
from hotspare.expressions.function_table import CAST_NAMES, EVENT_COUNTER, FUNCTION_NAMES, REFUSED_FUNCTIONS
from hotspare.expressions.statement_syntax import VARIABLE_TYPES, parse_code
from hotspare.expressions.statements import REGEX, SETTER_METHODS, WINDOW_PREFIX, CodeReading, CodeScope
from hotspare.expressions.tree import (
    Assign,
    Call,
    CallStatement,
    Constant,
    CountingLoop,
    Declare,
    ExpressionRefused,
    FieldRef,
    IfStatement,
    Literal,
    Loop,
    Return,
    Statement,
    Statements,
    Tree,
    Typed,
    TypedBlock,
    TypedLiteral,
    TypedVariable,
    ValueType,
    fields_used,
)
from hotspare.model.names import one_of
from hotspare.model.project import Dialect, Expression, Initialization, UserFunction

CALLS_MAX = 4
"""The maximum depth of calls between functions of the code."""
PARAMETER_TYPES = {
    "parameter": None,
    "parameterboolean": ValueType.BOOLEAN,
    "parameterdate": ValueType.STAMP,
    "parameterinteger": ValueType.INT64,
    "parameterreal": ValueType.DOUBLE,
    "parameterstring": ValueType.STRING,
}
"""The calls by which the code of a function reads an argument: unchanged (None), or converted to a type."""
PARAMETERS = (*PARAMETER_TYPES, "parametercount")
"""The calls that only the code of a function may contain."""


@dataclass(frozen=True)
class Variable:
    """A variable of the window. `initial`: its value before the first event; dates and stamps are stored numbers."""

    name: str
    type: ValueType
    initial: Constant


@dataclass(frozen=True, eq=False)
class Prelude:
    """The compiled code of a window. `constants`: variables that no code sets. `state`: variables that code sets.
    `regex_variables`: (name, pattern) of variables with a regular expression. `functions`: each function with its parsed code.
    """

    constants: tuple[Variable, ...] = ()
    state: tuple[Variable, ...] = ()
    regex_variables: tuple[tuple[str, str], ...] = ()
    functions: tuple[tuple[UserFunction, Tree | Statements], ...] = ()
    deferred_statements: tuple[Statement, ...] = ()
    """The statements of an initializer that reads the time, which runs with the first event; () for any other initializer."""

    def with_deferred_statements(self, tree: Tree | Statements) -> Tree | Statements:
        """Returns the code `tree`, preceded by the deferred initializer, which runs only at the first event. Without one `tree` is
        returned.
        """
        if not self.deferred_statements:
            return tree
        is_begun = Call("isnotnull", "isset", (FieldRef(_INITIALIZED),))
        own = tree.statements if isinstance(tree, Statements) else (Return(tree, tree.column),)
        return Statements((IfStatement(is_begun, (), self.deferred_statements), *own), tree.column)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of constants and state variables, all of which code could set."""
        return tuple(v.name for v in (*self.constants, *self.state))


NO_PRELUDE = Prelude()


@lru_cache(maxsize=1024)
def compile_prelude(initialization: Initialization, expressions: tuple[Expression, ...], label: str) -> Prelude:
    """Returns the prelude of a window that has these `expressions`. The code of functions is only parsed; it is typed at each call.
    Raises ProjectError with all mistakes.
    """
    mistakes: list[Mistake] = []
    functions: list[tuple[UserFunction, Tree | Statements]] = []
    declared: list[Variable] = []
    patterns: list[tuple[str, str]] = []
    late: tuple[Statement, ...] = ()
    if initialization.code is not None and initialization.code.text.strip():
        try:
            declared, patterns = _run_initializer(initialization.code)
            late = _deferred_statements(initialization.code, declared)
        except ExpressionRefused as refused:
            mistakes.append(locate_mistake(initialization.code, refused, f"{label}, initializer"))
    names = tuple(variable.name for variable in declared)
    for function in initialization.functions:
        try:
            functions.append((function, _parsed(function, names)))
        except ExpressionRefused as refused:
            mistakes.append(locate_mistake(function.code, refused, f"{label}, function {function.name}"))
    if mistakes:
        raise ProjectError(label, mistakes)
    assigned = set(_set_in([tree for _, tree in functions])) | set(_set_in(_read(expressions, names)))
    assigned |= set(names) if late else set()
    constants = tuple(v for v in declared if v.name not in assigned)
    return Prelude(constants, tuple(v for v in declared if v.name in assigned), tuple(patterns), tuple(functions), late)


def locate_mistake(expression: Expression, refused: ExpressionRefused, label: str) -> Mistake:
    """Returns the mistake at its place in the project, computed from the column in the expression's text, which may have several
    lines.
    """
    before = expression.text[: refused.column - 1]
    lines, place = before.count("\n"), expression.place
    if not place.line:
        place = Place(place.file, 0, refused.column)
    elif lines:
        place = Place(place.file, place.line + lines, len(before) - before.rfind("\n"))
    else:
        place = Place(place.file, place.line, (place.column or 1) + refused.column - 1)
    return Mistake(place, f"{label}: {refused.message}", refused.hint)


def _run_initializer(code: Expression) -> tuple[list[Variable], list[tuple[str, str]]]:
    """Runs the initializer. Returns the declared variables with their values, and (name, pattern) of those with a regular
    expression. If the code reads the time, it does not run: all values are null, and _INITIALIZED is added.
    """
    if code.dialect is not Dialect.ESP:
        raise ExpressionRefused(1, "the initializer is not in the SAS language", "write its code in the language esp")
    scope = CodeScope()
    block = CodeReading(partial(_checker_of_nothing, code.dialect), code.dialect, scope).block(parse_code(code.text))
    own = {name: type_ for name, type_ in block.variables if " " not in name}
    patterns = [(name, pattern) for name, pattern in scope.regex_variables.items() if pattern is not None]
    if SYSTEM_TIME_FIELD in fields_used(block):
        return [Variable(name, type_, None) for name, type_ in {**own, _INITIALIZED: ValueType.BOOLEAN}.items()], patterns
    frame = Frame({}, 1)
    values = final_variables(EVALUATOR, frame, block)
    if frame.failures is not None:
        raise ExpressionRefused(
            1, f"the code fails: {frame.failures.causes[0][1]}", "set the variables to values that can be computed"
        )
    return [Variable(name, type_, _initial(values[name])) for name, type_ in own.items()], patterns


_INITIALIZED = "hs begun"
"""The variable that records that the initializer ran; no code can write the name."""


def _deferred_statements(code: Expression, declared: Sequence[Variable]) -> tuple[Statement, ...]:
    """Returns the statements that run with the first event, for an initializer that reads the time; () for any other. A final
    return, declarations of `declared` variables and of regular expressions are left out, and an assignment to _INITIALIZED is
    appended. Raises ExpressionRefused if the code returns before its end."""
    names = {v.name for v in declared}
    if _INITIALIZED not in names:
        return ()
    tree = parse_code(code.text)
    statements = tree.statements if isinstance(tree, Statements) else ()
    if statements and isinstance(statements[-1], Return):
        statements = statements[:-1]
    if any(isinstance(each, Return) for each in _walked(statements)):
        message = "an initializer that reads the time returns before its end"
        raise ExpressionRefused(1, message, "let it set its variables without return")
    kept = [each for each in statements if not isinstance(each, Declare) or not names.issuperset(each.names)]
    kept = [each for each in kept if not (isinstance(each, Declare) and each.type == REGEX)]
    return (*kept, Assign(_INITIALIZED, Literal(value=True, type=ValueType.BOOLEAN)))


def _initial(values: pa.Array) -> Constant:
    (value,) = stored_values(values)
    return tuple(value) if isinstance(value, list) else value


def _checker_of_nothing(dialect: Dialect, scope: VisibleNames) -> Checker:
    return Checker({SYSTEM_TIME_FIELD: ValueType.STAMP}, dialect, scope)


def stored_values(values: pa.Array) -> list[Constant]:
    """Returns the values as Python values; stamps become the stored numbers."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    found: list[Constant] = values.to_pylist()
    return found


def _parsed(function: UserFunction, variables: tuple[str, ...]) -> Tree | Statements:
    name = function.name.lower()
    if (
        name in FUNCTION_NAMES[Dialect.ESP]
        or name in CAST_NAMES[Dialect.ESP]
        or name in REFUSED_FUNCTIONS
        or name in (EVENT_COUNTER, *PARAMETERS)
    ):
        raise ExpressionRefused(1, f"there is a function {function.name} already", "give it another name")
    if function.type not in VARIABLE_TYPES or function.type == REGEX:
        kinds = one_of(sorted(set(VARIABLE_TYPES) - {REGEX}))
        raise ExpressionRefused(1, f"{function.type or 'nothing'} is not a type of a value", kinds)
    if function.code.dialect is not Dialect.ESP:
        raise ExpressionRefused(1, "its code is not in the SAS language", "write it in the language esp")
    if not function.code.text.strip():
        raise ExpressionRefused(1, "it has no code", "write return and an expression")
    return parse_code(function.code.text, variables)


def _read(expressions: Iterable[Expression], names: tuple[str, ...]) -> list[Tree | Statements]:
    """Returns the trees of the SAS expressions that can be parsed. Invalid ones are skipped, because compiling them reports the
    mistake.
    """
    found: list[Tree | Statements] = []
    for each in expressions:
        if each.dialect is Dialect.ESP and each.text.strip():
            try:
                found.append(parse_code(each.text, names))
            except ExpressionRefused:
                continue
    return found


def _set_in(trees: Sequence[Tree | Statements]) -> list[str]:
    """Returns the variables that the code sets but does not declare. These are the window's variables."""
    found: list[str] = []
    for tree in trees:
        if isinstance(tree, Statements):
            inner = list(_walked(tree.statements))
            own = {name for each in inner if isinstance(each, Declare) for name in each.names}
            found += [name for each in inner if (name := _set_by(each)) and name not in own]
    return found


def _set_by(statement: Statement) -> str:
    """Returns the variable that a statement sets: by an assignment, as a loop's counter, by an element of an array or by resizing
    an array; "" if the statement sets none."""
    if isinstance(statement, Assign | CountingLoop):
        return statement.name
    return statement.call.variable if isinstance(statement, CallStatement) and statement.call.name in SETTER_METHODS else ""


def _walked(statements: Sequence[Statement]) -> Iterable[Statement]:
    for each in statements:
        yield each
        if isinstance(each, IfStatement):
            yield from _walked((*each.then, *each.otherwise))
        elif isinstance(each, Loop | CountingLoop):
            yield from _walked(each.body)


class Typing:
    """Types the code of one expression over `fields` (names to types), with the variables and functions of the prelude."""

    def __init__(
        self, fields: dict[str, ValueType], dialect: Dialect, prelude: Prelude, label: str = "", input_name: str = ""
    ) -> None:
        """Stores the scope. `label` makes the variable names of this expression unique. `input_name`: the value of input(), "" if
        the code must not call it.
        """
        self._fields, self._dialect, self.prelude = fields, dialect, prelude
        self._label, self._input_name = label, input_name
        self._calling: list[str] = []

    def code(self, label: str = "") -> CodeReading:
        """Returns a reader that types code, in a new scope with the window's variables and functions. `label` is appended to that
        of the expression.
        """
        return CodeReading(
            lambda scope: Checker(self._fields, self._dialect, scope), self._dialect, self._scope(self._label + label)
        )

    def _scope(self, label: str) -> CodeScope:
        prelude = self.prelude
        variables: dict[str, Typed] = {v.name: TypedLiteral(v.initial, v.type) for v in prelude.constants}
        variables |= {v.name: TypedVariable(WINDOW_PREFIX + v.name, v.type) for v in prelude.state}
        functions = {f.name.lower(): partial(self._call, f, tree) for f, tree in prelude.functions}
        calls: dict[str, Callable[[Call, Sequence[Typed]], Typed]] = dict(functions)
        if self._input_name:
            calls["input"] = lambda _call, _: TypedLiteral(self._input_name, ValueType.STRING)
        return CodeScope(variables, calls, label, dict(prelude.regex_variables))

    def _call(self, function: UserFunction, tree: Tree | Statements, call: Call, arguments: Sequence[Typed]) -> Typed:
        if function.name in self._calling or len(self._calling) >= CALLS_MAX:
            raise ExpressionRefused(call.column, f"{function.name} calls itself", "write a loop instead")
        code = self.code(f" {function.name} {call.column}")
        parameters = {f"parameter {i + 1}": argument.type for i, argument in enumerate(arguments)}
        code.scope.own_variables |= parameters
        types = tuple(parameters.values())
        for name, type_ in PARAMETER_TYPES.items():
            code.scope.functions[name] = partial(_parameter, function, types, code.checker, type_)
        code.scope.functions |= {"parametercount": lambda _call, _: TypedLiteral(len(arguments), ValueType.INT32)}
        result = ValueType(VARIABLE_TYPES[function.type])
        self._calling.append(function.name)
        try:
            block = code.block(tree, lambda checker, value: checker.as_variable_value(value, result, f"function {function.name}"))
        except ExpressionRefused as refused:
            message = f"function {function.name}, column {refused.column} of its code: {refused.message}"
            raise ExpressionRefused(call.column, message, refused.hint) from None
        finally:
            self._calling.pop()
        if block.type is ValueType.NULL:
            raise ExpressionRefused(
                call.column, f"function {function.name} returns nothing", "end its code with return and a value"
            )
        return TypedBlock(block.statements, block.variables, block.type, tuple(arguments))


def _parameter(
    function: UserFunction,
    types: Sequence[ValueType],
    checker: Checker,
    wanted: ValueType | None,
    call: Call,
    arguments: Sequence[Typed],
) -> Typed:
    number = call.arguments[0] if len(arguments) == 1 else None
    if not (isinstance(number, Literal) and isinstance(number.value, int)):
        message = f"{call.written_name} takes the number of the parameter"
        raise ExpressionRefused(call.column, message, f"write {call.written_name}(1)")
    if not 1 <= number.value <= len(types):
        message = f"{function.name} is called with {len(types)} arguments, but reads number {number.value}"
        raise ExpressionRefused(call.column, message, "give as many as it takes")
    given = TypedVariable(f"parameter {number.value}", types[number.value - 1])
    return given if wanted is None else checker.as_variable_value(given, wanted, f"parameter {number.value}")
