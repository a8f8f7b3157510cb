"""User code is either deterministic and kept, or refused: hundreds of attempts to break this (SPEC A36)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.scripting.python.attempts import CALLS, Attempt, Outcome, attempts
from tests.scripting.python.programs import called, mistakes, program, restored

ALL = list(attempts())
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@pytest.mark.parametrize("attempt", ALL, ids=[each.name for each in ALL])
def test_an_attempt_is_refused_or_gives_the_same_after_a_restore_at_each_event(attempt: Attempt) -> None:
    """SPEC A36."""
    found = list(mistakes(attempt.text))
    assert bool(found) == (attempt.outcome is Outcome.REFUSED), found
    if found:
        assert "no Python" not in found[0][1]
        return
    whole, piecewise, failed = program(attempt.text), program(attempt.text), 0
    for n in CALLS:
        piecewise = restored(piecewise)
        first, second = called(whole, n, number=n), called(piecewise, n, number=n)
        assert str(first) == str(second)
        assert whole.save() == piecewise.save()
        assert not _ADDRESS.search(str(first))
        failed += isinstance(first, Exception)
    assert (failed > 0) == (attempt.outcome is Outcome.BAD)


def test_there_are_many_attempts_of_each_kind() -> None:
    assert len(ALL) >= 500
    for outcome in Outcome:
        assert sum(each.outcome is outcome for each in ALL) >= 100


def test_another_process_with_another_zone_and_seed_gives_the_same_from_a_snapshot() -> None:
    """SPEC A36: an engine that had nothing but the snapshot before."""
    whole = _printed("whole", "", {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7"})
    last = _printed("last", whole, {"TZ": "America/St_Johns", "PYTHONHASHSEED": "11", "PYTHONINTMAXSTRDIGITS": "640"})
    first, second = json.loads(whole), json.loads(last)
    assert {name: each for name, each in first.items() if second[name] != each} == {}


def _printed(what: str, given: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "tests.scripting.python.attempts", what]
    return subprocess.run(
        command, input=given, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout
