"""Compiles expressions: `compile_value` and the other compile functions read, type and check one expression once.
`CompiledExpression.evaluate` then runs it over Arrow columns.

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
"""The name in `CompiledExpression.fields` of an expression that uses variables which its window retains from event to event."""
VALUE_BYTES_MAX = 1 << 24
VALUE_TOO_LONG = f"the text has more than {VALUE_BYTES_MAX} bytes"
"""The failure message of a row whose text exceeds VALUE_BYTES_MAX. The limit exists because a message holds a whole row and has at
most 64 MiB.
"""


Fitted: TypeAlias = Callable[[Checker, Typed], Typed]
"""A function that converts a typed value to the type that the caller wants. Raises ExpressionRefused if the types do not allow
that.
"""
COMPILED_MAX = 4096
"""The size of the cache of compiled expressions. With the cache, checking a project and running it compile each expression once."""


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A typed expression; plain data, so it can be sent to another process.

    `fields`: the names that `evaluate` reads: fields of the input, EVENT_FIELDS, and hidden fields such as COUNTER_FIELD.
    `passed_field`: the name of the input field if the expression is just that field, else "".
    """

    text: str
    label: str
    tree: Typed
    fields: tuple[str, ...]
    passed_field: str = ""

    def evaluate(
        self, columns: Mapping[str, pa.Array], length: int, memo: dict[Any, Any] | None = None
    ) -> tuple[pa.Array, Failures]:
        """Returns one value per row, of type `tree.type.arrow`, and the failures, ascending by row. The value of a failed row is
        null.

        A row's result depends on that row alone, and no value makes the method raise. If a kernel raises or returns a wrong shape,
        the rows are bisected until single rows fail. Raises ArrowInvalid if the texts of all rows exceed one array (2 GiB): pass
        fewer rows. `memo`: a cache, such as of parsed documents, for all expressions over the same rows.
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
        """Returns the message of a failure, extended by the label and the text of the expression."""
        return f"{self.label}: {message} in {self.text}"

    def _failures(self, parts: Sequence[tuple[int, FailureLedger]]) -> Failures:
        """Returns the failures of the whole column. `parts`: the first row of each part and its ledger. Each cause is extended by
        the expression's text.
        """
        causes = list(dict.fromkeys(cause for _, ledger in parts for cause in ledger.causes))
        rows, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for begin, ledger in parts:
            place = np.array([causes.index(cause) for cause in ledger.causes], np.int64)
            rows.append(ledger.rows + begin)
            numbers.append(place[ledger.first[ledger.rows] - 1])
        said = tuple((reason, self.failure_message(message)) for reason, message in causes)
        return Failures(np.concatenate(rows), np.concatenate(numbers), said)


def _raised(error: Exception | None) -> FailureLedger:
    """Returns a ledger of one failed row. Its message has only the class of `error`, because other details may differ between
    engines.
    """
    ledger = FailureLedger(1)
    ledger.record_row_failure(np.zeros(1, np.int64), BadReason.EXPRESSION, f"the value cannot be computed ({type(error).__name__})")
    return ledger


def _check_sizes(frame: Frame, values: pa.Array) -> None:
    """Marks the rows whose text exceeds VALUE_BYTES_MAX as failed."""
    if values.buffers()[2] is None or values.buffers()[2].size <= VALUE_BYTES_MAX:
        return
    frame.fail(true_rows(pc.greater(pc.binary_length(values), VALUE_BYTES_MAX)), VALUE_TOO_LONG)


def parse(
    text: str, dialect: Dialect, variables: Sequence[str] = (), patterns: Mapping[str, str] = MappingProxyType({})
) -> Tree | Statements:
    """Returns the untyped tree of `text`. Raises ExpressionRefused with the column of the mistake.

    `variables`: names of the window's variables, for SAS code. `patterns`: regular expressions by name, for the function language.
    """
    if not text.strip():
        raise ExpressionRefused(1, "the expression is empty", "write an expression, such as the name of a field")
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise ExpressionRefused(
            1, f"the expression has {len(text)} characters; the limit is {EXPRESSION_LENGTH_MAX}", "split it over several windows"
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
    """Returns an expression whose value is assigned to `field` of `window`. Raises ProjectError with the first mistake and its
    place.
    """
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
    """Returns an expression with a boolean value. Raises ProjectError with the first mistake and its place."""
    return _compiled(expression, schema, f"window {window}, condition", Checker.as_condition, counting, prelude)


def compile_slot(expression: Expression, schema: Schema, window: str, prelude: Prelude = NO_PRELUDE) -> CompiledExpression:
    """Returns an expression with an int64 value, the output slot of an event. Raises ProjectError with the first mistake and its
    place.
    """
    compiled = _compiled(expression, schema, f"window {window}, splitter", Checker.as_slot, Counting.REFUSED, prelude)
    if STATE_FIELD in compiled.fields:
        message = f"window {window}, splitter: it sets a variable, and a splitter keeps none"
        raise ProjectError(compiled.label, [Mistake(expression.place, message, "set it in a compute window before")])
    return compiled


def compile_value(
    expression: Expression, schema: Schema, window: str, counting: Counting, prelude: Prelude = NO_PRELUDE
) -> CompiledExpression:
    """Returns an expression with a value of any type. Raises ProjectError with the first mistake and its place."""
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
    """Returns an expression over the fields and types in `names`. `fitted` converts its value. Raises ProjectError with the first
    mistake and its place.

    `given`: the input schema. `patterns`: regular expressions by name. `input_name`: the value of input(). `wrap`: changes the tree
    before typing.
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
    """Returns a ProjectError for `refused`. Its column is converted to a place in the project."""
    return ProjectError(label, [locate_mistake(expression, refused, label)])


def compiled_tree(typed: Typed, text: str, label: str, schema: Schema) -> CompiledExpression:
    """Returns a compiled expression for a typed tree over the fields of `schema`. `text` is the expression as messages show it, cut
    to 200 characters.
    """
    text = " ".join(text.split())
    passed = typed.name if isinstance(typed, TypedField) and typed.name in schema.index else ""
    fields = fields_used(typed)
    if has_window_variables(typed):
        fields += (STATE_FIELD,)
    return CompiledExpression(text if len(text) <= 200 else text[:197] + "...", label, typed, fields, passed)
