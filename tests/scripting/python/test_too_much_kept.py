"""Code that keeps too much: additions fail, equally in every engine, at a cost independent of the kept state (SPEC A36)."""

from __future__ import annotations

import random

import pytest

from hotspare.scripting.python.keeper import Keeper
from hotspare.scripting.python.program import CallTooLarge
from tests.scripting.python.programs import called, program, restored

_TEXT = """
    table, row, count, held = {}, [], 0, None
    def more(key, value):
        table[key] = value
    def less(key):
        return table.pop(key, None)
    def longer(value):
        row.append(value)
    def shorter(place):
        if row:
            row.pop(place % len(row))
    def other(place, value):
        if row:
            row[place % len(row)] = value
    def bound(value):
        global count, held
        count, held = count + 1, value
    def wiped():
        row.clear()
"""


def _change(draw: random.Random) -> tuple[str, list[object]]:
    text = "x" * draw.choice([1, 100, 3_000])
    value = draw.choice([text, draw.random(), draw.getrandbits(70), [1, 2], {"a": 1}, (1, [2]), None])
    key = draw.choice([draw.randrange(40), float(draw.randrange(40)), f"k{draw.randrange(40)}", 2**70, 2.0**70, (1, "t")])
    return draw.choice(
        [("more", [key, value])] * 6
        + [("less", [key]), ("longer", [value]), ("longer", [text]), ("shorter", [draw.randrange(50)])]
        + [("other", [draw.randrange(50), value]), ("bound", [value])]
        + [("wiped", [])] * (draw.random() < 0.003)
    )


@pytest.mark.parametrize("seed", range(8))
def test_events_fail_for_it_as_if_all_were_counted_each_time(seed: int) -> None:
    """A restored twin has no earlier counts."""
    draw, instance = random.Random(seed), program(_TEXT)
    for number in range(76):
        called(instance, f"k{number}", "x" * 900, function="more")
    failed = 0
    for number in range(600):
        function, arguments = _change(draw)
        twin = restored(instance)
        first, second = (called(each, *arguments, number=number, function=function) for each in (instance, twin))
        assert str(first) == str(second)
        assert instance.save() == twin.save()
        failed += isinstance(first, CallTooLarge)
    assert failed


def test_what_is_kept_is_not_counted_again_for_each_event_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, counts = program(_TEXT), list[int]()
    counted = Keeper._reachable_bytes
    monkeypatch.setattr(Keeper, "_reachable_bytes", lambda keeper: counts.append(1) or counted(keeper))
    failed = [isinstance(called(instance, number, "x" * 50, function="more"), CallTooLarge) for number in range(3_000)]
    assert sum(failed) > 1_000
    assert len(counts) < 20
