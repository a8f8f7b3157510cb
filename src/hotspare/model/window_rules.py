"""Rules that several window types share: schemas, keys, passed-through fields, expressions, retention (SPEC A6, A14, A19-A26)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hotspare.base.errors import Place
from hotspare.model.durations import DURATION_US_MAX
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import (
    EXPRESSION_LENGTH_MAX,
    FIELD_NAME,
    FIELD_NAME_LENGTH_MAX,
    FLAGS_FIELD,
    OPCODE_FIELD,
    did_you_mean,
    first_unprintable,
    nearest_names_hint,
    repeated,
)
from hotspare.model.project import Expression, IndexType, Initialization, Retention, RetentionKind, Window
from hotspare.model.types import FIELDS_MAX, TIME_TYPES, Field, Schema

RETENTION_COUNT_MAX = 1_000_000_000
_WORD, _ASSIGNED = re.compile(r"[A-Za-z_]\w*"), re.compile(r"([A-Za-z_]\w*)\s*:?=(?!=)")


def check_schema(window: Window, schema: Schema, found: Mistakes) -> None:
    place = window.schema_place if window.schema_place.line else window.place
    if len(schema) > FIELDS_MAX:
        found.add(place, f"window {window.name} has {len(schema)} fields; the limit is {FIELDS_MAX}", "use fewer fields")
    for name in repeated(schema.names):
        found.add(place, f"window {window.name} has two fields {name}", "give one of them another name")
    for name in schema.names:
        if not FIELD_NAME.fullmatch(name) or len(name) > FIELD_NAME_LENGTH_MAX:
            found.add(
                place,
                f"window {window.name} has a field name {name!r} that expressions cannot use",
                f"use letters, digits and '_', not a digit first, at most {FIELD_NAME_LENGTH_MAX}",
            )
    for name in (OPCODE_FIELD, FLAGS_FIELD):
        if name in schema.index:
            message = f"window {window.name} has a field {name}: expressions downstream see the field, not that of the event itself"
            found.warn(place, message, "give the field another name")
    for field in key_fields_of(schema):
        if field.type.is_array:
            found.add(
                place, f"key {field.name} of window {window.name} is an {field.type.value}", "let a field of another type be key"
            )
    if not schema.key_indexes:
        found.add(place, f"window {window.name} has no key field", 'mark at least one: id*:int64, or key="true" in XML')


def check_retention(window: Window, retention: Retention | None, schema: Schema | None, found: Mistakes) -> None:
    if retention is None:
        return
    place = retention.place if retention.place.line else window.place
    by_count = retention.kind.is_by_count
    if window.index is IndexType.EMPTY:
        found.add(
            place, f"window {window.name} has retention but its index pi_EMPTY keeps nothing", "use pi_HASH, or leave out one"
        )
    if not 0 < retention.limit <= (RETENTION_COUNT_MAX if by_count else DURATION_US_MAX):
        found.add(place, f"window {window.name} has a retention limit of {retention.limit}", "use a positive one")
    if retention.kind is RetentionKind.BYTIME_JUMPING_LOOKBACK and not 0 < retention.unit_us <= DURATION_US_MAX:
        found.add(place, f"window {window.name} has retention bytime_jumping_lookback without a unit", "add one, such as unit hour")
    if retention.kind is not RetentionKind.BYTIME_JUMPING_LOOKBACK and retention.unit_us:
        found.add(
            place, f"window {window.name} has a retention unit, which only bytime_jumping_lookback uses", "leave the unit out"
        )
    _check_groups(window, retention, schema, place, found)
    if not retention.time_field:
        return
    if by_count:
        found.add(place, f"window {window.name} has retention by count, which uses no field", "leave the field out")
        return
    if schema is None:
        return
    index = schema.index.get(retention.time_field)
    if index is None:
        found.add(
            place,
            f"window {window.name} has retention by the unknown field {retention.time_field!r}",
            nearest_names_hint(retention.time_field, schema.names),
        )
    elif schema.fields[index].type not in TIME_TYPES:
        found.add(
            place,
            f"window {window.name} has retention by the field {retention.time_field}, which is {schema.fields[index].type.value}",
            "use a field of type date or stamp",
        )


def _check_groups(window: Window, retention: Retention, schema: Schema | None, place: Place, found: Mistakes) -> None:
    """Adds mistakes for invalid fields by which retention groups rows, and for groups with a kind that does not support them."""
    if retention.by and retention.kind is not RetentionKind.BYCOUNT_SLIDING:
        message = f"window {window.name} has retention {retention.kind.value} by groups, which only bycount_sliding supports"
        found.add(place, message, "leave `by` out, or write bycount_sliding: and the number of rows that each group keeps")
    for name in repeated(retention.by):
        found.add(place, f"window {window.name} has retention by groups of {name} twice", "name the field once")
    if schema is None:
        return
    for name in dict.fromkeys(retention.by):
        index = schema.index.get(name)
        if index is None:
            message = f"window {window.name} has retention by groups of the unknown field {name!r}"
            found.add(place, message, nearest_names_hint(name, schema.names))
        elif schema.fields[index].type.is_array:
            message = f"window {window.name} has retention by groups of {name}, which is {schema.fields[index].type.value}"
            found.add(place, message, "use a field of another type, such as one element, computed before")


def check_passed_schema(window: Window, input_schema: Schema | None, found: Mistakes) -> None:
    if window.schema is not None and input_schema is not None and window.schema != input_schema:
        found.add(
            window.schema_place if window.schema_place.line else window.place,
            f"window {window.name} has the schema of its input, {input_schema}, but the project declares {window.schema}",
            "leave the schema out",
        )


def check_derived_schema(window: Window, schema: Schema, found: Mistakes) -> None:
    """Checks a schema that follows from inputs and options; a project may also write it."""
    check_schema(window, schema, found)
    if window.schema is not None and window.schema != schema:
        message = f"window {window.name} has the schema {schema}, but the project declares {window.schema}"
        found.add(window.schema_place if window.schema_place.line else window.place, message, "leave the schema out")


def check_keys(window: Window, schema: Schema, input_schema: Schema, found: Mistakes) -> None:
    """Adds a mistake unless the window's key has the names and types of its input's key, in any order (SPEC A24)."""
    own, given = key_fields_of(schema), key_fields_of(input_schema)
    if own and given and set(own) != set(given):
        found.add(
            window.schema_place if window.schema_place.line else window.place,
            f"window {window.name} has the key {fields_text(own)}, but its input has {fields_text(given)}",
            "a window of this type passes the key through",
        )


def check_passed_field(window: Window, field: Field, input_schema: Schema, found: Mistakes, *, otherwise: str) -> None:
    index = input_schema.index.get(field.name)
    place = window.schema_place if window.schema_place.line else window.place
    if index is None:
        hint = did_you_mean(field.name, input_schema.names) or otherwise
        found.add(place, f"field {field.name} of window {window.name} is not in its input and nothing computes it", hint)
    elif input_schema.fields[index].type is not field.type:
        found.add(
            place,
            f"field {field.name} of window {window.name} is {field.type.value}, "
            f"but it passes through from the input, where it is {input_schema.fields[index].type.value}",
            "give it the type that it has in the input",
        )


def check_expression(window: Window, expression: Expression, found: Mistakes) -> None:
    place = expression.place if expression.place.line else window.place
    if not expression.text.strip():
        found.add(place, f"window {window.name} has an empty expression", "write an expression, such as the name of a field")
    if len(expression.text) > EXPRESSION_LENGTH_MAX:
        found.add(
            place,
            f"an expression of window {window.name} is longer than {EXPRESSION_LENGTH_MAX} characters",
            "split it over several windows",
        )
    if odd := first_unprintable(expression.text):
        found.add(place, f"an expression of window {window.name} contains the character {odd!r}", "remove the character")


def check_initialization(window: Window, initialization: Initialization, found: Mistakes) -> None:
    if initialization.code is not None:
        check_expression(window, initialization.code, found)
    names = [function.name.lower() for function in initialization.functions]
    for name in repeated(names):
        found.add(window.place, f"window {window.name} has two functions {name}", "give one of them another name")
    for function in initialization.functions:
        place = function.code.place if function.code.place.line else window.place
        if not FIELD_NAME.fullmatch(function.name) or len(function.name) > FIELD_NAME_LENGTH_MAX:
            message = f"window {window.name} has a function name {function.name!r} that expressions cannot use"
            found.add(place, message, "use letters, digits and '_', not a digit first")
        check_expression(window, function.code, found)


def check_keeps_nothing(window: Window, initialization: Initialization, expressions: Iterable[Expression], found: Mistakes) -> None:
    """Adds a mistake if an expression sets a variable, for a window that does not evaluate event by event: its variables are
    constants."""
    if sets_variables(initialization, expressions):
        message = f"window {window.name} sets a variable of its initializer, but keeps no variables from event to event"
        found.add(window.place, message, "set it in a compute window upstream or downstream")


def sets_variables(initialization: Initialization, expressions: Iterable[Expression]) -> bool:
    """Whether an expression or function may set a variable of the initializer, so that the window keeps it from event to event."""
    if initialization.code is None:
        return False
    texts = [expression.text for expression in expressions] + [function.code.text for function in initialization.functions]
    declared = set(_WORD.findall(initialization.code.text))
    return any(name in declared for text in texts for name in _ASSIGNED.findall(text))


def key_fields_of(schema: Schema) -> list[Field]:
    return [schema.fields[i] for i in schema.key_indexes]


def fields_text(fields: list[Field]) -> str:
    return ", ".join(f"{f.name}:{f.type.value}" for f in fields)
