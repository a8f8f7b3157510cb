"""A function over columns gives the same result for a row in any batch, or is refused: many attempts to break that (SPEC A36)."""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from hotspare.base.errors import ProjectError
from hotspare.model.code import Code, CodeLimits, Language, Script
from hotspare.model.types import Field, FieldType, Schema
from hotspare.scripting.contract import CallingConvention, ProgramText
from hotspare.scripting.languages import compile_user_code
from hotspare.scripting.python.program import CallFailure
from hotspare.windows.python_columns.operator import ColumnFunction

FILE = Path(__file__).with_name("column_attempts.txt")
GIVEN = Schema((Field("x", FieldType.DOUBLE), Field("n", FieldType.INT64), Field("s", FieldType.STRING)))
MADE = Schema((*GIVEN.fields, Field("m", FieldType.MONEY), Field("t", FieldType.STAMP)))
COLUMNS = {
    "x": pa.array([0.5, None, -3.25, 4.0, 1e300, 0.1, float("inf"), 2.5, 9.0]),
    "n": pa.array([1, 4, 2, None, 7, 3, 12, 6, 5]),
    "s": pa.array(["e1", "bee", None, "é", "", "3e", "x7", "e5", "eel"]),
}
COUNT = 9
CUTS = ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), (0, 2, 4, 6, 8, 9), (0, 1, 3, 9))
"""The ends of batches; another run processes all rows at once."""


class Outcome(Enum):
    """The possible outcomes of a program, apart from equal results in all batches."""

    REFUSED = "refused"
    """Loading fails."""
    BAD = "bad"
    """Some events are bad."""
    SAME = "same"
    """Every event is good."""


class Attempt(NamedTuple):
    name: str
    outcome: Outcome
    text: str


def _attempts() -> list[Attempt]:
    prelude, *others = FILE.read_text().split("=== ")
    titles = [each.split("\n", 1) for each in others]
    return [
        Attempt(name, Outcome(outcome), prelude + text) for (title, text) in titles for name, outcome in [title.rsplit(": ", 1)]
    ]


ALL = _attempts()


def _function(text: str) -> ColumnFunction:
    """Raises ProjectError or CallFailure if it is refused."""
    script = Script(Language.PYTHON, Code(text), "f", limits=CodeLimits(steps_max=1000))
    given = ProgramText("q/w", script, calling_convention=CallingConvention.WITH_COLUMNS)
    compile_user_code(given)
    made = ColumnFunction.from_program_text(given, GIVEN, MADE, frozenset())
    made.check()
    return made


def _results(function: ColumnFunction, cut: tuple[int, ...]) -> list[str]:
    """Returns the outcome of each row: its fields, or the reason why it is bad."""
    found: list[str] = []
    for begin, end in pairwise(cut):
        piece = {name: column.slice(begin, end - begin) for name, column in COLUMNS.items()}
        done = function.evaluate(piece, np.ones(end - begin, np.uint8))
        refused = done.refused
        bad = zip(refused.rows.tolist(), refused.reason.to_pylist(), refused.message.to_pylist(), strict=True)
        reasons = {row: f"bad: {reason} {message}" for row, reason, message in bad}
        rows = zip(*(done.computed[i].to_pylist() for i in sorted(done.computed)), strict=True)
        found += [reasons.get(i) or repr(row) for i, row in enumerate(rows)]
    return found


@pytest.mark.parametrize("attempt", ALL, ids=[each.name for each in ALL])
def test_a_function_makes_the_same_of_a_row_in_any_batch_or_is_refused(attempt: Attempt) -> None:
    try:
        function = _function(attempt.text)
    except (ProjectError, CallFailure):
        assert attempt.outcome is Outcome.REFUSED
        return
    whole = _results(function, (0, COUNT))
    for cut in CUTS:
        assert _results(function, cut) == whole
    bad = [row for row in whole if row.startswith("bad")]
    assert attempt.outcome is (Outcome.BAD if bad else Outcome.SAME), whole


def test_there_are_many_attempts_of_each_kind() -> None:
    for outcome in Outcome:
        assert sum(each.outcome is outcome for each in ALL) >= 20
