"""User code in Lua that tries to make two engines differ is refused, a bad event, or the same whole and restored (SPEC A36)."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from hotspare.base.errors import ProjectError
from hotspare.model.code import Code, CodeLimits, Language, Script
from hotspare.model.types import Field, FieldType, Schema
from hotspare.scripting.contract import CodeFailure, InputEvents, Instance, Program, ProgramText
from hotspare.scripting.languages import compile_user_code

GIVEN = Schema((Field("n", FieldType.INT64), Field("s", FieldType.STRING)))
MADE = Schema((Field("s", FieldType.STRING),))
COUNT = 8
_ATTEMPT = re.compile(r"^= (\w+): (.*)\n((?:.*\n)*?)-\n((?:.+\n)+)", re.MULTILINE)


class Outcome(Enum):
    EQUAL = "equal"
    BAD = "bad"
    REFUSED = "refused"


class Attempt(NamedTuple):
    outcome: Outcome
    setup: str
    body: str

    @property
    def code(self) -> str:
        return f"{self.setup}\nfunction f(e)\n  local v = (function(e, ...) {self.body}\nend)(e)\n  return {{s = tostring(v)}}\nend"


ATTEMPTS = {
    name: Attempt(Outcome(outcome), setup, body)
    for outcome, name, setup, body in _ATTEMPT.findall((Path(__file__).parent / "lua_attempts.txt").read_text(encoding="utf-8"))
}


class Seen(NamedTuple):
    """The events that one event made, and why it is bad; "" if it is good."""

    made: list[str | None]
    failure: str


def program(attempt: Attempt) -> Program:
    script = Script(Language.LUA, Code(attempt.code), "f", limits=CodeLimits(steps_max=200_000, state_bytes_max=300_000))
    return compile_user_code(ProgramText("q/w", script))


def events(first: int, count: int) -> InputEvents:
    numbers = np.arange(first, first + count)
    columns = [pa.array(numbers + 1), pa.array([f'{{"a": {n}}}' for n in numbers.tolist()])]
    times, seeds = numbers * 1_700_000_000, numbers.astype(np.uint64)
    return InputEvents("in", GIVEN, columns, np.ones(count, np.uint8), times, seeds, numbers)


def seen(instance: Instance, first: int, count: int) -> list[Seen]:
    made = instance.make_events("f", events(first, count), MADE, 1000)
    assert made.seen_count == count
    failed = {each.row: f"{each.reason}: {each.message}" for each in made.failed}
    texts = made.columns[0].to_pylist()
    return [Seen([text for row, text in zip(made.row, texts, strict=True) if row == n], failed.get(n, "")) for n in range(count)]


def test_every_attempt_is_read() -> None:
    assert len(ATTEMPTS) >= 180


@pytest.mark.parametrize("name", [name for name, each in ATTEMPTS.items() if each.outcome is not Outcome.REFUSED])
def test_engines_cannot_be_told_apart(name: str) -> None:
    """If a state cannot be kept, the engine that has it also refuses it."""
    attempt = ATTEMPTS[name]
    of = program(attempt)
    whole = seen(of.open(), 0, COUNT)
    assert any(each.failure for each in whole) == (attempt.outcome is Outcome.BAD), whole
    restarted = of.open()
    for n in range(COUNT):
        try:
            saved = restarted.save()
        except CodeFailure as failure:
            assert any(failure.text in each.failure for each in whole[n:])
            break
        restarted = of.open()
        restarted.load(saved)
        assert seen(restarted, n, 1) == [whole[n]]


@pytest.mark.parametrize("name", [name for name, each in ATTEMPTS.items() if each.outcome is Outcome.REFUSED])
def test_what_is_refused_when_a_project_is_loaded(name: str) -> None:
    with pytest.raises(ProjectError):
        program(ATTEMPTS[name])
