"""Forbidden user code in Python is found when it is loaded, with its line and a replacement (SPEC A36)."""

from __future__ import annotations

import pytest

from tests.scripting.python.programs import called, mistakes, program

REFUSED = {
    "import os": (1, "os cannot be imported"),
    "from time import sleep": (1, "time.sleep cannot be imported"),
    "import secrets": (1, "secrets cannot be imported"),
    "from math import sine": (1, "math.sine cannot be imported"),
    "from math import *": (1, "everything of module math"),
    "from . import x": (1, "a relative place"),
    "x = 1\ny = hash('a')": (2, "hash cannot be used"),
    "x = id(1)": (1, "id cannot be used"),
    "open('x')": (1, "open cannot be used"),
    "eval('1')": (1, "eval cannot be used"),
    "def f():\n    try:\n        pass\n    except BaseException:\n        pass": (4, "BaseException cannot be used"),
    "x = (1).__class__": (1, "the attribute __class__"),
    "__x = 1": (1, "begins with two underscores"),
    "class A:\n    def __del__(self): pass": (2, "__del__"),
    "def f(x, kept=[]): pass": (1, "default that can change"),
    "KEPT = []\ndef f(x, kept=KEPT): pass": (2, "default that can change"),
    "async def f(): pass": (1, "asynchronous"),
    "def f():\n    try:\n        yield 1\n    finally:\n        pass": (2, "a generator has a finally"),
    "class A:\n    kept = []": (1, "the attribute kept of class A"),
    "numbers = iter([1])": (1, "the module variable numbers"),
    "import itertools\nnumbers = itertools.count()": (2, "the module variable numbers"),
    "class A: pass\nx = 1\nmodel = A()": (3, "the module variable model holds an object of type A"),
    "def made():\n    n = []\n    def g():\n        n.append(1)\n    return g\ng = made()": (6, "g (n)"),
    "def made():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g\ng = made()": (7, "function g changes"),
    "while True: pass": (1, "it takes more than"),
    "def f(:": (1, "not valid Python"),
    "x = 1 / 0": (1, "ZeroDivisionError"),
    "return 1": (1, "cannot be compiled"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=[text.replace("\n", "; ") for text in REFUSED])
def test_what_cannot_be_used_is_refused_by_name(text: str, expected: tuple[int, str]) -> None:
    """SPEC A36."""
    found = list(mistakes(text))
    assert found, "nothing is refused"
    line, message = found[0]
    assert expected[1] in message
    assert line == expected[0]


def test_a_name_of_the_program_itself_is_its_own() -> None:
    """SPEC A36: Python's own object of that name is unavailable to all code."""
    text = "id, hash = 0, 1\ndef f(input=2):\n    global id\n    id += 1\n    return id, hash, input"
    instance = program(text)
    assert [called(instance), called(instance)] == [(1, 1, 2), (2, 1, 2)]
    hidden = "def f():\n    if None:\n        id = 1\n    return id(f)"
    assert "UnboundLocalError" in str(called(program(hidden)))


def test_what_is_found_at_once_is_told_together() -> None:
    assert [line for line, _ in mistakes("import os\nimport sys\nx = hash(1)")] == [1, 2, 3]


def test_clock_and_random_numbers_are_those_of_the_event() -> None:
    """Two engines draw the same, and a restored one continues equally."""
    text = """
        import datetime, random, time, uuid
        def f():
            now = datetime.datetime.now()
            return now.isoformat(), time.time(), random.randint(1, 10 ** 9), str(uuid.uuid4()), datetime.date.today().year
    """
    one, two = program(text), program(text)
    assert called(one, number=7) == called(two, number=7)
    assert called(one, number=7) != called(one, number=8)
    assert called(one, number=7)[:2] == ("2023-11-14T22:13:20.000007", 1_700_000_000.000007)


def test_the_zone_of_the_machine_is_utc() -> None:
    text = """
        from datetime import datetime, timedelta, timezone
        def f():
            day = datetime(2020, 1, 2)
            east = timezone(timedelta(hours=2))
            next_day = day + timedelta(1)
            return day.timestamp(), datetime.fromtimestamp(0).hour, day.astimezone(east).isoformat(), next_day.timestamp()
    """
    assert called(program(text)) == (1577923200.0, 0, "2020-01-02T02:00:00+02:00", 1578009600.0)


def test_modules_of_the_project_keep_variables_of_their_own() -> None:

    instance = program(
        "import counting\ndef f():\n    return counting.more(), counting.total\n",
        counting="total = 0\ndef more():\n    global total\n    total += 1\n    return total\n",
    )
    assert [called(instance), called(instance)] == [(1, 1), (2, 2)]
    assert b"counting" in instance.save()


def test_print_says_nothing_and_sets_keep_their_order() -> None:
    text = "def f(x):\n    print(x)\n    return list({c for c in x}), list({'b', 'a'}), set(x).pop(), frozenset(x)\n"
    first = called(program(text), "hotspare")
    assert first[:3] == (list("hotspare"), ["b", "a"], "h")
    assert repr(first[3]) == "frozenset({'h', 'o', 't', 's', 'p', 'a', 'r', 'e'})"


def test_what_a_module_lacks_is_found_where_it_is_used() -> None:
    assert list(mistakes("import math as m\ndef f(x):\n    return m.sine(x)\n")) == [(3, "math.sine does not exist")]
    assert list(mistakes("import esp\ndef f(x):\n    return esp.inject(x)\n")) == [(3, "esp.inject does not exist")]


def test_variables_may_have_names_of_types() -> None:
    instance = program("kept = []\ndef f(x):\n    list = kept\n    list.append(x)\n    return dict.fromkeys(list)\n")
    assert called(instance, 1) == {1: None}
