"""Failing user code in Python: every engine finds the failure at the same step, and nothing else happens (SPEC A36)."""

from __future__ import annotations

import pytest

from hotspare.scripting.python.program import CallFailure, CallTooLarge
from tests.scripting.python.programs import called, program, restored

TOO_LARGE = {
    "a loop without an end": "while True: pass",
    "a loop that catches everything": """
        while True:
            try:
                while True: pass
            except:
                continue
    """,
    "a comprehension over numbers without an end": "import itertools\n        return [x for x in itertools.count()]",
    "a function that calls itself": "return f()",
    "functions that call each other": "return g()",
    "a lambda that is handed to itself": "h = lambda s: s(s)\n        return h(h)",
    "a generator within itself": """
        def down(n):
            yield n
            yield from down(n + 1)
        return list(down(0))
    """,
    "a long text by multiplying": "return 'x' * 10 ** 12",
    "a long list by multiplying": "x = [0]\n        x *= 10 ** 12\n        return x",
    "a text that doubles": "s = 'ab'\n        for i in range(99): s += s\n        return s",
    "a list that doubles": "s = [1]\n        for i in range(99): s = s + s\n        return s",
    "a number of many digits": "return 10 ** 10 ** 10",
    "a shift of many bits": "return 1 << 10 ** 12",
    "a wide text": "return 'x'.ljust(10 ** 12)",
    "a wide format": "return f'{1:1000000000}'",
    "a wide old format": "return '%1000000000d' % 1",
    "a wide new format": "return '{:1000000000}'.format(1)",
    "a join of long texts": "s = 'x' * 100000\n        return ''.join([s] * 10000)",
    "a replacement that grows": "s = 'x' * 100000\n        return s.replace('x', s)",
    "a text of an error without an end": """
        class Endless(Exception):
            def __str__(self):
                while True: pass
        for i in range(30000): pass
        raise Endless()
    """,
    "more than may be kept": "kept.append('x' * 100000)",
    "a generator that is kept": "kept.append(x for x in [1])",
    "a function that is kept": "kept.append(f)",
    "an object that is kept": "kept.append(Thing())",
    "an object that is a key": "table[Thing()] = 1",
    "NaN as a key": "table[float('nan')] = 1",
    "a number of its own kind that is kept": "import enum\n        kept.append(enum.IntEnum('E', 'A').A)",
    "an iterator in a variable": "global number\n        number = iter([1])",
}

FAILS = {
    "an error": ("return 1 / 0", "f, line 13: ZeroDivisionError: division by zero"),
    "a key that is not there": ("return {}['a']", "KeyError: 'a'"),
    "an error of its own": ("raise Wrong('no')", "Wrong: no"),
    "an error in an equality": ("return {Thing(): 1}[Thing()]", "ValueError: equal"),
    "an error with half a letter": ("raise ValueError('\\ud800')", "ValueError: ?"),
    "the address of an object": ("return str(f)", "ValueError: the text of an object would show its address"),
    "an attribute of a function": ("f.count = 1", "AttributeError: an attribute of f cannot be bound"),
    "an attribute of a class": ("Thing.count = 1", "AttributeError: an attribute of Thing cannot be bound"),
    "an attribute of a module": ("import math\n        math.pi = 3", "AttributeError: an attribute of math cannot be bound"),
    "a change of what holds functions": ("functions['a'] = f", "TypeError: this dict holds what cannot be saved"),
}


def _program(body: str) -> str:
    return f"""
        kept, table, number = [], {{}}, 0
        functions = {{'len': len}}
        class Wrong(Exception): pass
        class Thing:
            def __eq__(self, other): raise ValueError('equal')
            def __hash__(self): return 1
        def g():
            return f()
        def well(d):
            kept.append(d)
            return len(kept)
        def f():
{_indented(body)}
    """


def _indented(body: str) -> str:
    lines = body.strip("\n").split("\n")
    if len(lines) > 1 and lines[0].startswith("        "):
        return "\n".join("    " + line for line in lines)
    return "\n".join([" " * 12 + lines[0], *("    " + line for line in lines[1:])])


@pytest.mark.parametrize("body", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_call_that_takes_too_much_fails_and_leaves_nothing_behind(body: str) -> None:
    """SPEC A36."""
    instance = program(_program(body))
    assert called(instance, 1, function="well") == 1
    before = instance.save()
    failure = called(instance)
    assert isinstance(failure, CallTooLarge), failure
    assert instance.save() == before
    assert called(instance, 2, function="well") == 2


@pytest.mark.parametrize(("body", "text"), FAILS.values(), ids=FAILS.keys())
def test_an_error_is_told_with_its_kind_and_leaves_nothing_behind(body: str, text: str) -> None:
    """SPEC A36."""
    instance = program(_program(body.replace("return", "kept.append(5)\n        return", 1) if "return" in body else body))
    before = instance.save()
    failure = called(instance)
    assert isinstance(failure, CallFailure), failure
    assert text.split(": ", 1)[-1] in failure.text
    assert not isinstance(failure, CallTooLarge)
    assert failure.line > 0
    assert instance.save() == before


def test_a_failure_is_the_same_after_a_restore_and_at_the_same_step() -> None:
    """Each call starts its count of steps at 0, so its limit does not depend on earlier calls."""
    instance = program(
        """
        turns = []
        def f(n):
            for i in range(n):
                turns.append(i)
            return len(turns)
        """
    )
    for number, turns in enumerate([10, 4_095, 20_000, 4_095, 19_999, 4_096, 19_000, 19_998, 19_999, 20_000, 30]):
        twin = restored(instance)
        first, second = called(instance, turns, number=number), called(twin, turns, number=number)
        assert str(first) == str(second)
        assert instance.save() == twin.save()


def test_as_deep_as_is_allowed_and_not_deeper() -> None:
    instance = program("def f(n):\n    return 0 if n < 2 else 1 + f(n - 1)\n")
    assert called(instance, 100) == 99
    assert isinstance(called(instance, 101), CallTooLarge)


def test_a_function_that_cannot_call_itself_counts_no_depth() -> None:
    instance = program("def g(n):\n    return n\ndef f(n):\n    return sum(g(x) for x in range(n))\n")
    assert called(instance, 1000) == 499_500
