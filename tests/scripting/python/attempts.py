"""Attempts of user code to keep, or to show, state that another engine would not have: texts in `attempts/`, each with its outcome.

A file is a prelude of all its programs, then programs, each behind a line `=== name: outcome`. Each defines `f(n)`, which is called
with 1, 2, 3 and 4.

`python -m tests.scripting.python.attempts whole` prints the results of all programs as JSON, and their kept state before the last
call; `last` reads that and makes the last call alone, as an engine that starts from a snapshot does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hotspare.base.interpreter import fix_environment
from hotspare.scripting.python.program import CallFailure, Interpreter
from tests.scripting.python.programs import called, mistakes, program

FOLDER = Path(__file__).with_name("attempts")
CALLS = (1, 2, 3, 4)


class Outcome(Enum):
    """The outcomes that a program may have."""

    REFUSED = "refused"
    """Loading fails."""
    BAD = "bad"
    """Some event is a bad one."""
    SAME = "same"
    """No event is bad, and every engine has the same result."""


@dataclass(frozen=True)
class Attempt:
    name: str
    outcome: Outcome
    text: str


def attempts() -> Iterator[Attempt]:
    """Yields all attempts, in order."""
    for path in sorted(FOLDER.glob("*.attempts")):
        prelude, *others = path.read_text().split("=== ")
        for each in others:
            title, text = each.split("\n", 1)
            name, outcome = title.rsplit(": ", 1)
            yield Attempt(f"{path.stem}: {name}", Outcome(outcome), prelude + text)


def outcome_of(text: str) -> Outcome:
    if list(mistakes(text)):
        return Outcome.REFUSED
    running = program(text)
    return Outcome.BAD if any(isinstance(_call(running, n), CallFailure) for n in CALLS) else Outcome.SAME


def _call(of: Interpreter, n: int) -> Any:
    return called(of, n, number=n)


def _whole() -> dict[str, list[str]]:
    """Returns, by name of each loadable program, the result of the last call, and the kept state before and after it."""
    found = {}
    for each in attempts():
        if each.outcome is not Outcome.REFUSED:
            running = program(each.text)
            for n in CALLS[:-1]:
                _call(running, n)
            before = running.save().hex()
            found[each.name] = [str(_call(running, CALLS[-1])), before, running.save().hex()]
    return found


def _last(whole: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns the same, but makes only the last call."""
    found = {}
    for each in attempts():
        if each.outcome is not Outcome.REFUSED:
            running = program(each.text)
            running.load(bytes.fromhex(whole[each.name][1]))
            found[each.name] = [str(_call(running, CALLS[-1])), whole[each.name][1], running.save().hex()]
    return found


if __name__ == "__main__":
    fix_environment()
    print(json.dumps(_whole() if sys.argv[1] == "whole" else _last(json.load(sys.stdin))))
