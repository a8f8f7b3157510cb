"""Compiles expressions: `compile_value` and the others read, type and check one once; `evaluate` runs it over Arrow columns.

Names visible in an expression: fields of the input, and ESP_OPCODE and ESP_FLAGS (SPEC A26), strings of the letters that CSV uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.checking import COUNTER_FIELD, POSITION_FIELD, SYSTEM_TIME_FIELD, Checker
from hotspare.expressions.esp_syntax import parse_function
from hotspare.expressions.evaluate import EVALUATOR
from hotspare.expressions.frame import NO_FAILURES, FailureLedger, Failures, Frame
from hotspare.expressions.prelude import NO_PRELUDE, Prelude, Typing, locate_mistake
from hotspare.expressions.statement_syntax import parse_code
from hotspare.expressions.statements import has_window_variables
from hotspare.expressions.tree import ExpressionRefused, Statements, Tree, Typed, TypedField, ValueType, fields_used
from hotspare.model.names import EXPRESSION_LENGTH_MAX, FLAGS_FIELD, OPCODE_FIELD
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Field, Schema
from hotspare.model.window_type import Counting
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.elementwise import halved, true_rows, with_nulls

EVENT_FIELDS = (OPCODE_FIELD, FLAGS_FIELD)
STATE_FIELD = "hs:variables"
"""The field that an expression lists if it uses variables that its window keeps from event to event."""
VALUE_BYTES_MAX = 1 << 24
VALUE_TOO_LONG = f"the text has more than {VALUE_BYTES_MAX} bytes"
"""The failure of a row whose text exceeds VALUE_BYTES_MAX: a message holds a whole row and has at most 64 MiB."""


Fitted: TypeAlias = Callable[[Checker, Typed], Typed]
"""Converts a value to the type that is wanted; ExpressionRefused if impossible."""
COMPILED_MAX = 4096
"""The most compiled expressions in the cache, so that checking a project and running it compile each expression once."""


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A typed expression; plain data, so it can be sent to another process.

    `fields`: the names that `evaluate` reads, of the input schema, EVENT_FIELDS, COUNTER_FIELD and similar ones. `passed_field`:
    the input field if the expression is just that field, unchanged; else "".
    """

    text: str
    label: str
    tree: Typed
    fields: tuple[str, ...]
    passed_field: str = ""

    def evaluate(
        self, columns: Mapping[str, pa.Array], length: int, memo: dict[Any, Any] | None = None
    ) -> tuple[pa.Array, Failures]:
        """Returns values of type `tree.type.arrow`, one per row, and the rows that failed (null there), ascending.

        Elementwise: a row's result depends on that row alone. No value makes it raise. If a kernel raises, or returns another
        number of rows or another type, the rows are halved, and a single row that still fails is a failure. ArrowInvalid if the
        texts of all rows exceed one array (2 GiB): pass fewer rows. `memo`: shared by expressions of the same rows, such as parsed
        documents.
        """

        def attempt(begin: int, end: int) -> tuple[pa.Array, FailureLedger | None]:
            rows = columns if end - begin == length else {n: columns[n].slice(begin, end - begin) for n in self.fields}
            frame = Frame(rows, end - begin, memo)
            values = frame.array(EVALUATOR.evaluate_node(self.tree, frame))
            if self.tree.type is ValueType.STRING:
                _check_sizes(frame, values)
            return with_nulls(values, frame.failed_rows()), frame.failures

        pieces: list[pa.Array] = []
        failed: list[tuple[int, FailureLedger]] = []
        for part in halved(attempt, length):
            values, failures = part.result or (pa.nulls(1, self.tree.type.arrow), _raised(part.error))
            if failures is None and len(values) == length:
                return values, NO_FAILURES
            pieces.append(values)
            failed += [(part.begin, failures)] if failures is not None else []
        whole = pieces[0] if len(pieces) == 1 else pa.concat_arrays([pa.nulls(0, self.tree.type.arrow), *pieces])
        return whole, self._failures(failed)

    def failure_message(self, message: str) -> str:
        """Returns the message of a failure with its label and the expression."""
        return f"{self.label}: {message} in {self.text}"

    def _failures(self, parts: Sequence[tuple[int, FailureLedger]]) -> Failures:
        """Returns the failures of parts of the rows, each with its begin; the causes name the expression."""
        causes = list(dict.fromkeys(cause for _, ledger in parts for cause in ledger.causes))
        rows, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for begin, ledger in parts:
            place = np.array([causes.index(cause) for cause in ledger.causes], np.int64)
            rows.append(ledger.rows + begin)
            numbers.append(place[ledger.first[ledger.rows] - 1])
        said = tuple((reason, self.failure_message(message)) for reason, message in causes)
        return Failures(np.concatenate(rows), np.concatenate(numbers), said)


def _raised(error: Exception | None) -> FailureLedger:
    """Returns the failure of one row. Its message has only the error's class: the rest of an error may differ between engines."""
    ledger = FailureLedger(1)
    ledger.record_row_failure(np.zeros(1, np.int64), BadReason.EXPRESSION, f"the value cannot be computed ({type(error).__name__})")
    return ledger


def _check_sizes(frame: Frame, values: pa.Array) -> None:
    """Fails texts that no message can carry."""
    if values.buffers()[2] is None or values.buffers()[2].size <= VALUE_BYTES_MAX:
        return
    frame.fail(true_rows(pc.greater(pc.binary_length(values), VALUE_BYTES_MAX)), VALUE_TOO_LONG)


def parse(
    text: str, dialect: Dialect, variables: Sequence[str] = (), patterns: Mapping[str, str] = MappingProxyType({})
) -> Tree | Statements:
    """Returns the untyped tree; ExpressionRefused with a column. `variables`: those of the window; `patterns`: by name, for
    functions.
    """
    if not text.strip():
        raise ExpressionRefused(1, "the expression is empty", "write an expression, such as the name of a field")
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise ExpressionRefused(
            1, f"the expression has {len(text)} characters, {EXPRESSION_LENGTH_MAX} are allowed", "split it over several windows"
        )
    if dialect is Dialect.FUNCTIONS:
        return parse_function(text, patterns)
    if dialect is Dialect.ESP:
        return parse_code(text, variables)
    from hotspare.expressions.spark_syntax import parse_spark  # imported here because only this dialect needs sqlglot

    return parse_spark(text)


@lru_cache(maxsize=COMPILED_MAX)
def compile_assignment(
    expression: Expression,
    schema: Schema,
    field: Field,
    window: str,
    counting: Counting = Counting.REFUSED,
    prelude: Prelude = NO_PRELUDE,
) -> CompiledExpression:
    """Returns an expression whose value becomes `field` of `window`; ProjectError with one mistake and its place."""
    target = ValueType.from_field_type(field.type)
    label = f"window {window}, field {field.name}"

    def fitted(checker: Checker, value: Typed) -> Typed:
        return checker.as_assigned_value(value, target, f"field {field.name}")

    return _compiled(expression, schema, label, fitted, counting, prelude)


@lru_cache(maxsize=COMPILED_MAX)
def compile_condition(
    expression: Expression,
    schema: Schema,
    window: str,
    prelude: Prelude = NO_PRELUDE,
    counting: Counting = Counting.REFUSED,
) -> CompiledExpression:
    """Returns an expression of a truth value; ProjectError with one mistake and its place."""
    return _compiled(expression, schema, f"window {window}, condition", Checker.as_condition, counting, prelude)


def compile_slot(expression: Expression, schema: Schema, window: str, prelude: Prelude = NO_PRELUDE) -> CompiledExpression:
    """Returns an expression of an int64, the slot of an event; ProjectError with one mistake and its place."""
    compiled = _compiled(expression, schema, f"window {window}, splitter", Checker.as_slot, Counting.REFUSED, prelude)
    if STATE_FIELD in compiled.fields:
        message = f"window {window}, splitter: it sets a variable, and a splitter keeps none"
        raise ProjectError(compiled.label, [Mistake(expression.place, message, "set it in a compute window before")])
    return compiled


def compile_value(
    expression: Expression, schema: Schema, window: str, counting: Counting, prelude: Prelude = NO_PRELUDE
) -> CompiledExpression:
    """Returns an expression of any type, if its purpose is unknown; ProjectError with one mistake and its place."""
    return _compiled(expression, schema, f"window {window}, expression", None, counting, prelude)


def _compiled(
    expression: Expression,
    schema: Schema,
    label: str,
    fitted: Fitted | None,
    counting: Counting,
    prelude: Prelude,
) -> CompiledExpression:
    names = {f.name: ValueType.from_field_type(f.type) for f in schema.fields}
    names |= {name: ValueType.STRING for name in EVENT_FIELDS if name not in names}
    if counting is not Counting.REFUSED:
        names |= {POSITION_FIELD: ValueType.INT64, SYSTEM_TIME_FIELD: ValueType.STAMP}
    if counting is Counting.ALLOWED:
        names[COUNTER_FIELD] = ValueType.INT64
    return _typed_over(expression, schema, label, fitted, Typing(names, expression.dialect, prelude, label), prelude.names)


def compile_over(
    expression: Expression,
    names: Mapping[str, ValueType],
    given: Schema,
    label: str,
    fitted: Fitted,
    patterns: Mapping[str, str],
    input_name: str,
    wrap: Callable[[Tree], Tree] | None = None,
) -> CompiledExpression:
    """Returns an expression over `names`, its value converted by `fitted`; ProjectError with one mistake and its place.

    `patterns`: regular expressions by name. `input_name`: the value of input(). `wrap`: changes the tree before it is typed.
    """
    typing = Typing(dict(names), expression.dialect, NO_PRELUDE, label, input_name)
    return _typed_over(expression, given, label, fitted, typing, (), patterns, wrap)


def _typed_over(
    expression: Expression,
    given: Schema,
    label: str,
    fitted: Fitted | None,
    typing: Typing,
    variables: Sequence[str],
    patterns: Mapping[str, str] = MappingProxyType({}),
    wrap: Callable[[Tree], Tree] | None = None,
) -> CompiledExpression:
    try:
        tree = parse(expression.text, expression.dialect, variables, patterns)
        if wrap is not None and not isinstance(tree, Statements):
            tree = wrap(tree)
        typed = typing.code().typed(typing.prelude.with_deferred_statements(tree), fitted)
    except ExpressionRefused as refused:
        raise as_project_error(expression, label, refused) from None
    return compiled_tree(typed, expression.text, label, given)


def as_project_error(expression: Expression, label: str, refused: ExpressionRefused) -> ProjectError:
    """Returns the refusal as a ProjectError with the mistake's place in the project."""
    return ProjectError(label, [locate_mistake(expression, refused, label)])


def compiled_tree(typed: Typed, text: str, label: str, schema: Schema) -> CompiledExpression:
    """Returns a typed tree over fields of the schema as a compiled expression; `text`: as shown in messages."""
    text = " ".join(text.split())
    passed = typed.name if isinstance(typed, TypedField) and typed.name in schema.index else ""
    fields = fields_used(typed)
    if has_window_variables(typed):
        fields += (STATE_FIELD,)
    return CompiledExpression(text if len(text) <= 200 else text[:197] + "...", label, typed, fields, passed)
