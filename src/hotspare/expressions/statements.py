"""Types statements: looks up variables and regular expressions, and turns methods into assignments (SPEC A24).

`r.findfirst(s)` becomes two assignments before its statement, of the text and of the number of the match, and a call that searches
that match. `matchstart` and similar methods use the same match. So a regular expression needs no object with state. `a.set(i, v)`
of an array becomes an assignment of the array with that element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotspare.expressions.array_variables import ELEMENT_OF
from hotspare.expressions.checking import Checker, VisibleNames, check_regex, converted
from hotspare.expressions.function import TypeMismatch, common_type
from hotspare.expressions.tree import (
    Assign,
    CallStatement,
    CountingLoop,
    Declare,
    ExpressionRefused,
    IfStatement,
    Loop,
    Method,
    Return,
    Statement,
    Statements,
    Tree,
    Typed,
    TypedAssign,
    TypedBlock,
    TypedCall,
    TypedIf,
    TypedLiteral,
    TypedLoop,
    TypedReturn,
    TypedStatement,
    TypedVariable,
    ValueType,
    assigned_variables,
    walk_typed,
)
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import Dialect

REGEX = "regex"
"""The written type of a variable that holds a regular expression."""
WINDOW_PREFIX = "window:"
"""The prefix of the names of variables that a window retains from event to event."""
_INT32, _INT64, _STRING, _BOOLEAN = ValueType.INT32, ValueType.INT64, ValueType.STRING, ValueType.BOOLEAN
_FROM_ONE = TypedLiteral(1, _INT32)
_METHODS = {"compile": (1, 2), "findfirst": (1, 1), "findnext": (1, 1), "matchstart": (0, 0), "matchlength": (0, 0)}
_METHODS |= {"substart": (1, 1), "sublength": (1, 1), "replace": (2, 2)}
"""The minimum and maximum number of arguments of each method of a regular expression."""
_ARRAY_METHODS = {"get": (1, 1), "set": (2, 2), "dim": (0, 1)}
SETTER_METHODS = ("set", "dim")
"""The methods of arrays that are statements without a value; `dim` is one only with an argument."""


@dataclass
class CodeScope(VisibleNames):
    """The scope of one piece of code.

    `regex_variables`: the pattern of each variable with a regular expression, None until code compiles it. `own_variables`: the
    types of the variables that the code declares. `pending_statements`: statements to insert before the current one.
    `statement_call`: the method call that is a statement by itself. `searched_variables`: the variables for which the code searched
    a match.
    """

    regex_variables: dict[str, str | None] = field(default_factory=dict)
    own_variables: dict[str, ValueType] = field(default_factory=dict)
    pending_statements: list[TypedStatement] = field(default_factory=list)
    statement_call: Method | None = None
    searched_variables: dict[str, None] = field(default_factory=dict)

    def type_method_call(self, node: Method, checker: Checker) -> Typed:
        if node.variable not in self.regex_variables:
            array = checker.resolve_name(node.variable)
            return (
                super().type_method_call(node, checker)
                if array is None or array.type not in ELEMENT_OF
                else self._array(node, checker, array)
            )
        arguments = _arguments(node, checker, _METHODS)
        if node.name == "compile":
            return self._compiled(node, arguments[0])
        pattern = self.regex_variables[node.variable]
        if pattern is None:
            hint = f'write {node.variable}.compile("...") before, best in the initializer'
            raise ExpressionRefused(node.column, f"{node.variable} is not compiled yet", hint)
        return self._matched(node, checker, arguments, TypedLiteral(pattern, _STRING))

    def _array(self, node: Method, checker: Checker, array: Typed) -> Typed:
        """Returns the typed call of a method of an array. A method that sets the array adds an assignment to `pending_statements`
        instead.
        """
        arguments = _arguments(node, checker, _ARRAY_METHODS)
        if node.name not in SETTER_METHODS or not arguments:
            if node.name == "get":
                number = checker.as_variable_value(arguments[0], _INT64, f"argument of {node.name}")
                return TypedCall("array_item", (array, number), ELEMENT_OF[array.type], node.column)
            size = TypedCall("list_size" if array.type is ValueType.LIST else "size", (array,), _INT32, node.column)
            return TypedCall("coalesce", (size, TypedLiteral(0, _INT32)), _INT32, node.column)
        if node is not self.statement_call:
            raise ExpressionRefused(
                node.column, f"{node.variable}.{node.name}(...) has no value", "write it as a statement of its own"
            )
        if not isinstance(array, TypedVariable):
            raise ExpressionRefused(
                node.column, f"{node.variable} is not a variable that can be set", "assign it to a variable before"
            )
        function, types = ("array_resized", (_INT64,)) if node.name == "dim" else ("array_with", (_INT64, ELEMENT_OF[array.type]))
        fitted = (
            checker.as_variable_value(each, type_, f"argument of {node.name}") for each, type_ in zip(arguments, types, strict=True)
        )
        self.pending_statements.append(TypedAssign(array.name, TypedCall(function, (array, *fitted), array.type, node.column)))
        return TypedLiteral(value=True, type=_BOOLEAN)

    def _compiled(self, node: Method, pattern: Typed) -> Typed:
        if not (isinstance(pattern, TypedLiteral) and isinstance(pattern.value, str)):
            raise ExpressionRefused(node.column, "compile: the regular expression is not a constant", "write it between quotes")
        check_regex(node, [pattern.value])
        self.regex_variables[node.variable] = pattern.value
        return TypedLiteral(value=True, type=_BOOLEAN)

    def _matched(self, node: Method, checker: Checker, arguments: Sequence[Typed], pattern: TypedLiteral) -> Typed:
        what = f"argument of {node.name}"
        if node.name == "replace":
            text, new = (checker.as_variable_value(argument, _STRING, what) for argument in arguments)
            if not isinstance(new, TypedLiteral):
                raise ExpressionRefused(node.column, "replace: the replacement is not a constant", "write it between quotes")
            check_regex(node, [pattern.value, new.value])
            return TypedCall("regexp_replace", (text, pattern, new), _STRING, node.column)
        text_name, number_name = f"{node.variable} text", f"{node.variable} match"
        text, number = self._variable(text_name, _STRING), self._variable(number_name, _INT32)
        if node.name in ("findfirst", "findnext"):
            next_number: Typed = _FROM_ONE
            if node.name == "findnext":
                known = TypedCall("coalesce", (number, TypedLiteral(0, _INT32)), _INT32)
                next_number = TypedCall("add", (known, _FROM_ONE), _INT32, node.column)
            self.searched_variables[node.variable] = None
            self.pending_statements.append(TypedAssign(text_name, checker.as_variable_value(arguments[0], _STRING, what)))
            self.pending_statements.append(TypedAssign(number_name, next_number))
            start = TypedCall("match_start", (text, pattern, number, TypedLiteral(0, _INT32)), _INT32, node.column)
            return TypedCall("greater", (start, TypedLiteral(0, _INT32)), _BOOLEAN, node.column)
        if node.variable not in self.searched_variables:
            hint = f"look for a match before, with {node.variable}.findfirst(...) in the same expression"
            raise ExpressionRefused(node.column, f"{node.name}: nothing was looked for", hint)
        group = checker.as_variable_value(arguments[0], _INT32, what) if arguments else TypedLiteral(0, _INT32)
        function = "match_start" if node.name.endswith("start") else "match_length"
        return TypedCall(function, (text, pattern, number, group), _INT32, node.column)

    def _variable(self, name: str, type_: ValueType) -> Typed:
        self.own_variables.setdefault(name, type_)
        return TypedVariable(name, type_)


@dataclass
class CodeReading:
    """The typing of one piece of code. `scope` has the window's names at first; declarations in the code add to it. `make_checker`
    returns a checker of expressions over a scope.
    """

    make_checker: Callable[[VisibleNames], Checker]
    dialect: Dialect
    scope: CodeScope

    def __post_init__(self) -> None:
        self.checker = self.make_checker(self.scope)

    def typed(self, tree: Tree | Statements, fitted: Callable[[Checker, Typed], Typed] | None = None) -> Typed:
        """Returns the typed tree of an expression, or a typed block of statements. `fitted` converts the value to the type that the
        caller wants.
        """
        if isinstance(tree, Statements):
            return self.block(tree, fitted)
        typed = self.checker.typed(tree)
        if fitted is not None:
            typed = fitted(self.checker, typed)
        before = self._before()
        return TypedBlock((*before, TypedReturn(typed)), tuple(self.scope.own_variables.items()), typed.type) if before else typed

    def block(self, tree: Tree | Statements, fitted: Callable[[Checker, Typed], Typed] | None = None) -> TypedBlock:
        """Returns the typed block of the statements; an expression becomes a block that returns it. `fitted` converts each returned
        value to the wanted type. Without it all returned values are converted to their common type.
        """
        statements = self._all(tree.statements if isinstance(tree, Statements) else (Return(tree, tree.column),))
        values = list(_returned(statements))
        if fitted is None:
            try:
                type_ = common_type([value.type for value in values], self.dialect) if values else ValueType.NULL
            except TypeMismatch as mismatch:
                raise ExpressionRefused(1, f"return: {mismatch.message}", mismatch.hint) from None
            made = {id_of: converted(value, type_) for id_of, value in enumerate(values)}
        else:
            made = {id_of: fitted(self.checker, value) for id_of, value in enumerate(values)}
            type_ = made[0].type if made else ValueType.NULL
        numbers = iter(range(len(values)))
        whole = _with_returns(statements, lambda _: made[next(numbers)])
        return TypedBlock(whole, tuple(self.scope.own_variables.items()), type_)

    def _all(self, statements: Sequence[Statement]) -> tuple[TypedStatement, ...]:
        return tuple(typed for statement in statements for typed in self._one(statement))

    def _one(self, statement: Statement) -> list[TypedStatement]:
        if isinstance(statement, Declare):
            return self._declared(statement)
        if isinstance(statement, Assign):
            value = self.checker.typed(statement.value)
            return [*self._before(), self._assign(statement.name, value, statement.column)]
        if isinstance(statement, CallStatement):
            self.scope.statement_call = statement.call
            self.checker.typed(statement.call)
            return self._before()
        if isinstance(statement, Return):
            value = TypedLiteral(None, ValueType.NULL) if statement.value is None else self.checker.typed(statement.value)
            return [*self._before(), TypedReturn(value)]
        if isinstance(statement, IfStatement):
            condition = self.checker.condition(statement.condition)
            return [*self._before(), TypedIf(condition, self._all(statement.then), self._all(statement.otherwise))]
        if isinstance(statement, Loop):
            condition = self.checker.condition(statement.condition)
            before = tuple(self._before())
            return [TypedLoop(before, condition, self._all(statement.body))]
        return self._counted(statement)

    def _before(self) -> list[TypedStatement]:
        before, self.scope.pending_statements = self.scope.pending_statements, []
        return before

    def _declared(self, statement: Declare) -> list[TypedStatement]:
        made: list[TypedStatement] = []
        for name in statement.names:
            if name in self.scope.own_variables or name in self.scope.regex_variables:
                raise ExpressionRefused(statement.column, f"the variable {name} is declared twice", "leave one of them out")
            if statement.type == REGEX:
                self.scope.regex_variables[name] = None
                continue
            type_ = ValueType(statement.type)
            self.scope.own_variables[name] = type_
            self.scope.variables[name] = TypedVariable(name, type_)
        return made

    def _assign(self, name: str, value: Typed, column: int) -> TypedAssign:
        variable = self.scope.variables.get(name)
        if not isinstance(variable, TypedVariable):
            known = [n for n, v in self.scope.variables.items() if isinstance(v, TypedVariable)]
            raise ExpressionRefused(column, f"{name} is not a variable that can be set", nearest_names_hint(name, known))
        return TypedAssign(variable.name, self.checker.as_variable_value(value, variable.type, f"variable {name}"))

    def _counted(self, statement: CountingLoop) -> list[TypedStatement]:
        if statement.name not in self.scope.variables:
            self._declared(Declare((statement.name,), "int64", statement.column))
        variable = self.scope.variables[statement.name]
        first = self._assign(statement.name, self.checker.typed(statement.first), statement.column)
        end_name = f"end {len(self.scope.own_variables)}"
        self.scope.own_variables[end_name] = variable.type
        end = TypedVariable(end_name, variable.type)
        last = TypedAssign(
            end_name, self.checker.as_variable_value(self.checker.typed(statement.last), variable.type, "end of the loop")
        )
        before = self._before()
        function = "less_equal" if statement.step > 0 else "greater_equal"
        condition = TypedCall(function, (variable, end), _BOOLEAN, statement.column)
        step = self.checker.as_variable_value(TypedLiteral(statement.step, ValueType.INT64), variable.type, "step of the loop")
        after = TypedAssign(first.name, TypedCall("add", (variable, step), variable.type, statement.column))
        return [*before, first, last, TypedLoop((), condition, (*self._all(statement.body), after))]


def _arguments(node: Method, checker: Checker, methods: Mapping[str, tuple[int, int]]) -> list[Typed]:
    """Returns the typed arguments of a method call. Raises ExpressionRefused for an unknown method or a wrong number of
    arguments.
    """
    if node.name not in methods:
        raise ExpressionRefused(node.column, f"unknown method {node.name}", nearest_names_hint(node.name, methods))
    least, most = methods[node.name]
    if not least <= len(node.arguments) <= most:
        raise ExpressionRefused(
            node.column, f"{node.name}: {len(node.arguments)} arguments given, not {least}", "give as many as it takes"
        )
    return [checker.typed(argument) for argument in node.arguments]


def _returned(statements: Sequence[TypedStatement]) -> Sequence[Typed]:
    """Returns the value of each `return` in the statements, nested ones included, in order."""
    found: list[Typed] = []

    def collect_value(value: Typed) -> Typed:
        found.append(value)
        return value

    _with_returns(statements, collect_value)
    return found


def _with_returns(statements: Sequence[TypedStatement], change: Callable[[Typed], Typed]) -> tuple[TypedStatement, ...]:
    """Returns the statements with `change` applied to the value of each `return`, in order."""
    made: list[TypedStatement] = []
    for each in statements:
        if isinstance(each, TypedReturn):
            made.append(TypedReturn(change(each.value)))
        elif isinstance(each, TypedIf):
            then = _with_returns(each.then, change)
            made.append(replace(each, then=then, otherwise=_with_returns(each.otherwise, change)))
        elif isinstance(each, TypedLoop):
            made.append(replace(each, body=_with_returns(each.body, change)))
        else:
            made.append(each)
    return tuple(made)


def has_window_variables(node: Typed) -> bool:
    """Whether a tree reads or sets variables that a window retains from event to event."""
    for each in walk_typed(node):
        if isinstance(each, TypedVariable) and each.name.startswith(WINDOW_PREFIX):
            return True
        if isinstance(each, TypedBlock) and any(name.startswith(WINDOW_PREFIX) for name in assigned_variables(each.statements)):
            return True
    return False
