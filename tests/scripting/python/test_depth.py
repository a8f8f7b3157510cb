"""The possible depth of user code in Python depends neither on its caller nor on the Python functions that it uses (SPEC A36)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.scripting.python.program import CallTooLarge, Interpreter
from tests.examples import examples
from tests.scripting.python.programs import called, program

WAYS = {
    "a lambda": "h = lambda s, n: 0 if n < 1 else 1 + s(s, n - 1)\n    return h(h, n)",
    "a lambda in a dict": "table = {}\n    table['h'] = lambda n: 0 if n < 1 else 1 + table['h'](n - 1)\n    return table['h'](n)",
    "a key of sorted": "return 0 if n < 1 else sorted([n], key=lambda m: f(m - 1))[0]",
    "a key that is handed on": "return 0 if n < 1 else handed(again[0], n)",
    "a comprehension": "return [f(m) for m in [n - 1] if n > 0]",
    "a generator within itself": "return sum(down(n))",
    "a generator that is asked by itself": "return sum(asked(n))",
    "generators of generators": "g = iter([1, 2])\n    for _ in range(n): g = (x for x in g)\n    return sum(g)",
    "functions of generators": "g = iter([1, 2])\n    for _ in range(n): g = twice(g)\n    return sum(g)",
    "a generator that is handed on": "return 0 if n < 1 else sum(f(m - 1) for m in [n])",
    "a sum of map": "return 0 if n < 1 else sum(map(again[0], [n - 1]))",
    "an operator": "return (Number(n) + 1).n",
    "an index": "return Number(n)[n]",
    "an order": "return min(Number(n), Number(n - 1)).n",
    "an attribute that is computed": "return Number(n).sum",
    "an attribute by its name": "return getattr(Number(n), 'to' + 'tal')()",
    "a method by its name": "return operator.methodcaller('total')(Number(n))",
    "an attribute with a function": "a = Number(n)\n    a.go = lambda m: 0 if m < 1 else 1 + a.go(m - 1)\n    return a.go(n)",
    "a reduction": "return 0 if n < 1 else functools.reduce(lambda a, b: f(n - 1), [1, 2])",
    "a partial function": "return 0 if n < 1 else functools.partial(again[0], n - 1)()",
    "a decorated function": "return twofold(n)",
    "a replacement": "return 0 if n < 1 else re.sub('x', lambda found: str(f(n - 1)), 'x')",
    "an error that is caught": "try:\n        return 1 + f(n - 1) if n else 0\n    except Exception:\n        return -1",
}
DATA = {
    "maps of maps": "g = [1, 2]\n    for _ in range(n): g = map(abs, g)\n    return sum(g)",
    "chains of chains": "g = [1]\n    for _ in range(n): g = itertools.chain(g, [1])\n    return sum(g)",
    "chains in lists": "g = [1]\n    for _ in range(n): g = itertools.chain.from_iterable([g])\n    return sum(g)",
    "lists of maps": "g = [1]\n    for _ in range(n): g = map(list, [g])\n    return str(next(g))",
    "groups of groups": "g = [1]\n    for _ in range(n): g = next(itertools.groupby(g))[1]\n    return sum(g)",
    "the next of the next": "g = iter([1])\n    for _ in range(n): g = map(next, [g])\n    return next(g)",
    "tees of maps": "g = [1]\n    for _ in range(n): g = map(abs, itertools.tee(g)[0])\n    return sum(g)",
    "a text of lists": "x = []\n    for _ in range(n): x = [x]\n    return len(str(x))",
    "JSON of lists": "x = []\n    for _ in range(n): x = [x]\n    return len(json.dumps(x))",
    "lists from JSON": "return len(json.loads('[' * n + ']' * n))",
    "equal lists": "x, y = [], []\n    for _ in range(n): x, y = [x], [y]\n    return x == y",
    "a list in lists": "x, y = [], []\n    for _ in range(n): x, y = [x], [y]\n    return x in [y]",
    "a key of tuples": "x = ()\n    for _ in range(n): x = (x,)\n    return len({x: 1})",
    "a copy": "x = []\n    for _ in range(n): x = [x]\n    return len(copy.deepcopy(x))",
    "objects": "x = y = None\n    for _ in range(n): x, y = Node(x), Node(y)\n    return x == y",
}
TEXT = """
import copy, functools, itertools, json, operator, re
from dataclasses import dataclass

@dataclass
class Node:
    inner: object

class Number:
    def __init__(self, n): self.n = n
    def __add__(self, other): return self if self.n < 1 else Number(self.n - 1) + other
    def __getitem__(self, n): return 0 if n < 1 else 1 + self[n - 1]
    def __lt__(self, other): return self.n < 1 or Number(self.n - 1) < other
    @property
    def sum(self): return 0 if self.n < 1 else self.n + Number(self.n - 1).sum
    def total(self): return 0 if self.n < 1 else self.n + getattr(Number(self.n - 1), 'to' + 'tal')()

def down(n):
    yield n
    if n > 0: yield from down(n - 1)

def asked(n):
    yield n
    if n > 0:
        for each in asked(n - 1): yield each

def twice(g):
    for x in g: yield 2 * x

def twofold_of(function):
    def twofold(n): return function(n)
    return twofold

@twofold_of
def twofold(n): return 0 if n < 1 else 1 + twofold(n - 1)

def handed(key, n): return sorted([n - 1], key=key)[0]

def f(n):
    BODY

again = (f,)
"""


def further_up(levels: int, work: Callable[[], Any]) -> Any:
    return work() if levels == 0 else further_up(levels - 1, work)


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def answers(of: Interpreter, n: int) -> list[str]:
    """Returns the results for callers at different depths of the stack."""
    return [
        repr(called(of, n)),
        further_up(150, lambda: repr(called(of, n))),
        in_a_thread(lambda: repr(called(of, n))),
    ]


def deepest(of: Interpreter, high: int) -> int:
    """Returns the greatest number up to `high` for which the function succeeds."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if isinstance(called(of, middle), CallTooLarge) else (middle, high)
    return low


@pytest.mark.parametrize("body", WAYS.values(), ids=WAYS.keys())
def test_functions_are_counted_whatever_calls_them(body: str) -> None:
    of = program(TEXT.replace("BODY", body))
    most = deepest(of, 500)
    assert 25 <= most <= 100
    for n in (most, most + 1):
        assert len(set(answers(of, n))) == 1
    assert "functions within each other" in str(called(of, 2 * most))


@pytest.mark.parametrize("body", DATA.values(), ids=DATA.keys())
def test_values_within_values_end_at_the_same_depth_for_every_caller(body: str) -> None:
    of = program(TEXT.replace("BODY", body))
    most = deepest(of, 4000)
    assert most >= 90
    for n in (most - 1, most, most + 1):
        assert len(set(answers(of, n))) == 1


HOPS = [
    "go({next}, n)",
    "[{next}(n - 1)][0]",
    "sorted([n - 1], key={next})[0]",
    "sum(map({next}, [n - 1]))",
    "sum({next}(m) for m in [n - 1])",
    "list(m for m in ({next}(k) for k in [n - 1]))[0]",
    "(lambda m: {next}(m - 1))(n)",
    "table[{number}](n - 1)",
    "Box({next}).go(n - 1)",
    "getattr(Box({next}), 'g' + 'o')(n - 1)",
    "next(each({next}, n - 1))",
    "max([n - 1, 0], key=lambda m: {next}(m - 1))",
    "len({{Box({next}): n}})",
]
CYCLE = """
class Box:
    def __init__(self, inner): self.inner = inner
    def go(self, n): return self.inner(n)
    def __hash__(self): return 1 + (self.inner(deep[0]) if deep else 0)
deep = []
def go(function, n): return function(n - 1)
def each(function, n): yield function(n)
"""


@given(st.lists(st.sampled_from(HOPS), min_size=1, max_size=5), st.integers(0, 400))
@examples(0.4)
def test_circles_of_any_kind_end_by_the_count(hops: list[str], n: int) -> None:
    functions = [
        f"def f{i}(n):\n    return 0 if n < 1 else {hop.format(next=f'f{(i + 1) % len(hops)}', number=(i + 1) % len(hops))}\n"
        for i, hop in enumerate(hops)
    ]
    table = f"table = ({', '.join(f'f{i}' for i in range(len(hops)))},)"
    of = program(CYCLE + "".join(functions) + table + "\ndef f(n): return f0(n)\n")
    found = answers(of, n)
    assert len(set(found)) == 1
    assert "than Python can take" not in found[0]
