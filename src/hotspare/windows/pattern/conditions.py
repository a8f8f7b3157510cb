"""Splits the condition of an event of interest into the parts that need the event alone, and those that need the match (SPEC A30).

    condition ──► and ──┬─► event      fields alone: one evaluation for all events of a batch
                        ├─► bindings   variable == fields: computed for the batch, the kernel compares or keeps the value
                        ├─► compares   variables against fields: each side is computed once all its inputs are known
                        └─► residual   everything else: evaluated for an event and each open match

A name that is not a field of the event's input is a variable. Its type is that of its binding. In a condition that binds a
variable, the variable is replaced by the bound value. Conditions see variables that earlier events have bound.

Sides and bindings are evaluated only where the event's own part is true, so an earlier part guards the later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.checking import Checker
from hotspare.expressions.compiled import EVENT_FIELDS, CompiledExpression, as_project_error, compiled_tree, parse
from hotspare.expressions.tree import (
    Call,
    ExpressionRefused,
    FieldRef,
    Literal,
    Statements,
    Tree,
    Typed,
    TypedCall,
    TypedField,
    ValueType,
    fields_used,
)
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import FieldType, Schema
from hotspare.windows.pattern.patterns import EventOfInterest, WindowPattern

T = TypeVar("T", Tree, Typed)

COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_MIRRORED = dict(zip(COMPARED, ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"), strict=True))
_UNORDERED = (ValueType.STRING, ValueType.BLOB)


@dataclass(frozen=True, slots=True)
class Compare:
    """The comparison `variables function fields`, such as `p < price + 1`. The left side reads variables only, the right side
    fields only; both have one type.
    """

    function: str
    variables: Typed
    fields: CompiledExpression


@dataclass(slots=True)
class EventCondition:
    """The condition of an event of interest, in parts that are all to be true. `number`: that of its input. `event`: the part over
    fields alone, None if there is none. `bindings`: variables with the values they are bound to. `compares`: variables against
    fields. `residual`: the rest, over fields and variables.
    """

    name: str
    number: int
    schema: Schema
    label: str
    text: str
    event: CompiledExpression | None = None
    bindings: dict[str, CompiledExpression] = field(default_factory=dict)
    compares: list[Compare] = field(default_factory=list)
    residual: CompiledExpression | None = None

    def compiled(self, tree: Typed) -> CompiledExpression:
        return compiled_tree(tree, self.text, self.label, self.schema)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a pattern's events of interest, in their order, and the types of its variables."""

    events: tuple[EventCondition, ...]
    variables: Mapping[str, ValueType]

    def derived(self, event: EventCondition, tree: Typed) -> CompiledExpression:
        """Returns an expression over variables as one over fields of `event`, which binds all of these variables."""
        return event.compiled(_with(tree, {name: each.tree for name, each in event.bindings.items()}))


def compile_conditions(pattern: WindowPattern, label: str, inputs: Sequence[tuple[str, Schema]]) -> Conditions:
    """Compiles the conditions of a pattern. `inputs`: name and schema of each input. Raises ProjectError with the mistakes."""
    numbers = {name: i for i, (name, _) in enumerate(inputs)}
    mistakes: list[Mistake] = []
    trees: list[tuple[EventCondition, EventOfInterest, Tree | None]] = []
    for event in pattern.events:
        number = numbers[event.source]
        what = f"{label}, event {event.name}"
        text = event.condition.text if event.condition is not None else ""
        condition, tree = EventCondition(event.name, number, inputs[number][1], what, text), None
        if event.condition is not None:
            try:
                tree = _expression(event.condition)
            except ExpressionRefused as refused:
                mistakes += as_project_error(event.condition, what, refused).mistakes
        trees.append((condition, event, tree))
    variables: dict[str, ValueType] = {}
    for step in (_record_variables, _split_condition):
        for condition, event, tree in trees:
            if tree is None or event.condition is None or (mistakes and step is _split_condition):
                continue
            try:
                step(condition, event.condition, tree, variables)
            except ExpressionRefused as refused:
                mistakes += as_project_error(event.condition, condition.label, refused).mistakes
    if mistakes:
        raise ProjectError(label, mistakes)
    found = tuple(condition for condition, _, _ in trees)
    for condition in found:
        _move_to_residual(condition, found)
    return Conditions(found, variables)


def _expression(written: Expression) -> Tree:
    tree = parse(written.text, written.dialect)
    if isinstance(tree, Statements):
        raise ExpressionRefused(
            1, "a condition of a pattern is one expression, without statements", "compute it in a window before"
        )
    return tree


def _record_variables(condition: EventCondition, written: Expression, tree: Tree, variables: dict[str, ValueType]) -> None:
    """Adds the variables that an event binds to `variables`, with their types. Raises ExpressionRefused if a type is not allowed or
    differs between events.
    """
    known = _names(condition.schema)
    for part in _conjuncts(tree):
        for name, value in _assigned(part, known, written.dialect):
            type_ = Checker(known, written.dialect).typed(value).type
            if type_ in (ValueType.BOOLEAN, ValueType.NULL):
                message = f"variable {name} would be {type_.value}"
                raise ExpressionRefused(_column(part), message, "bind it to a value that a field may have")
            if variables.setdefault(name, type_) is not type_:
                message = f"variable {name} is {variables[name].value} in another event, and {type_.value} here"
                raise ExpressionRefused(_column(part), message, "let it be of one type: cast one of them")


def _assigned(part: Tree, known: Mapping[str, ValueType], dialect: Dialect) -> Iterator[tuple[str, Tree]]:
    """Yields (variable, value) if a part of a condition is `variable == value` or `value == variable`; yields at most one pair. The
    value must read at least one field and no variable.
    """
    if not isinstance(part, Call) or part.function != "equal" or len(part.arguments) != 2:
        return
    for one, other in (part.arguments, part.arguments[::-1]):
        if isinstance(one, FieldRef) and not _is_field(one, known, dialect):
            needed = list(_references(other))
            if needed and all(_is_field(each, known, dialect) for each in needed):
                yield one.name, other
                return


def _split_condition(condition: EventCondition, written: Expression, tree: Tree, variables: dict[str, ValueType]) -> None:
    known = _names(condition.schema)
    typed = Checker({**{n: t for n, t in variables.items() if n not in known}, **known}, written.dialect).condition(tree)
    own: list[Typed] = []
    others: list[Typed] = []
    bindings: dict[str, Typed] = {}
    for part in _conjuncts(typed):
        name, value = _bound(part, variables, known)
        if value is not None and name not in bindings:
            bindings[name] = value
        else:
            others.append(part)
    for part in others:
        part = _with(part, bindings)
        if not any(_is_variable(name, variables, known) for name in fields_used(part)):
            own.append(part)
            continue
        compare = _compare(condition, part, variables, known)
        if compare is None:
            rest = condition.residual.tree if condition.residual is not None else None
            condition.residual = condition.compiled(part if rest is None else _all_of([rest, part]))
        else:
            condition.compares.append(compare)
    condition.event = condition.compiled(_all_of(own)) if own else None
    condition.bindings = {name: condition.compiled(value) for name, value in bindings.items()}


def _bound(part: Typed, variables: Mapping[str, ValueType], known: Mapping[str, ValueType]) -> tuple[str, Typed | None]:
    """Returns (variable, value) as `_assigned`, but from a typed tree; ("", None) if the part binds no variable."""
    if isinstance(part, TypedCall) and part.function == "equal":
        for one, other in (part.arguments, part.arguments[::-1]):
            if isinstance(one, TypedField) and _is_variable(one.name, variables, known):
                needed = fields_used(other)
                if needed and other.type is one.type and not any(_is_variable(name, variables, known) for name in needed):
                    return one.name, other
    return "", None


def _compare(
    condition: EventCondition, part: Typed, variables: Mapping[str, ValueType], known: Mapping[str, ValueType]
) -> Compare | None:
    if not isinstance(part, TypedCall) or part.function not in COMPARED:
        return None
    left, right = part.arguments
    sides = [[_is_variable(name, variables, known) for name in fields_used(side)] for side in (left, right)]
    if left.type is ValueType.BOOLEAN or (left.type in _UNORDERED and part.function not in COMPARED[:2]):
        return None
    if sides[0] and all(sides[0]) and not any(sides[1]):
        return Compare(part.function, left, condition.compiled(right))
    if sides[1] and all(sides[1]) and not any(sides[0]):
        return Compare(_MIRRORED[part.function], right, condition.compiled(left))
    return None


def _move_to_residual(condition: EventCondition, events: Sequence[EventCondition]) -> None:
    """Moves all comparisons of a condition to its residual if it has one, or if different events bind the variables of one
    comparison. All move together, so that an earlier part still guards the later ones.
    """
    left = [each for each in condition.compares if not _is_bound_together(fields_used(each.variables), events)]
    if not left and condition.residual is None:
        return
    trees: list[Typed] = [
        TypedCall(each.function, (each.variables, each.fields.tree), ValueType.BOOLEAN) for each in condition.compares
    ]
    if condition.residual is not None:
        trees.append(condition.residual.tree)
    condition.residual, condition.compares = condition.compiled(_all_of(trees)), []


def _is_bound_together(names: Sequence[str], events: Iterable[EventCondition]) -> bool:
    """Whether each event that binds any of the variables `names` binds all of them."""
    return all(set(names) <= event.bindings.keys() for event in events if not event.bindings.keys().isdisjoint(names))


def _with(tree: Typed, values: Mapping[str, Typed]) -> Typed:
    """Returns the tree with the fields that are named in `values` replaced by these values."""
    if isinstance(tree, TypedField):
        return values.get(tree.name, tree)
    if not isinstance(tree, TypedCall):
        return tree
    return replace(tree, arguments=tuple(_with(argument, values) for argument in tree.arguments))


def _conjuncts(tree: T) -> Iterator[T]:
    """Yields the operands of a tree of nested `and`; the tree itself if it is not an `and`."""
    if isinstance(tree, Call | TypedCall) and tree.function == "and":
        for argument in tree.arguments:
            yield from _conjuncts(argument)
    else:
        yield tree


def _all_of(parts: Sequence[Typed]) -> Typed:
    return parts[0] if len(parts) == 1 else TypedCall("and", tuple(parts), ValueType.BOOLEAN)


def _references(tree: Tree) -> Iterator[FieldRef]:
    if isinstance(tree, FieldRef):
        yield tree
    elif isinstance(tree, Call):
        for argument in tree.arguments:
            yield from _references(argument)


def _column(tree: Tree) -> int:
    return max(1, tree.column if isinstance(tree, Literal | FieldRef | Call) else 1)


def _names(schema: Schema) -> dict[str, ValueType]:
    names = {f.name: ValueType.from_field_type(f.type) for f in schema.fields}
    return names | {name: ValueType.STRING for name in EVENT_FIELDS if name not in names}


def _is_field(reference: FieldRef, known: Mapping[str, ValueType], dialect: Dialect) -> bool:
    """Whether `reference` names a field in `known`. Spark SQL ignores case if that is unambiguous."""
    if reference.name in known:
        return True
    return dialect is Dialect.SPARK_SQL and sum(name.lower() == reference.name.lower() for name in known) == 1


def _is_variable(name: str, variables: Mapping[str, ValueType], known: Mapping[str, ValueType]) -> bool:
    return name in variables and name not in known


def field_type(type_: ValueType) -> FieldType:
    """Returns the field type in which a variable, or a compared side, of this type is stored."""
    return FieldType(type_.value)
