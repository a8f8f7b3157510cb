"""The engine core and `decide` contain nothing that could answer differently in two identical engines (design, section 3)."""

from __future__ import annotations

import pytest

from tests.repo.determinism import ALLOWED, ALLOWED_MODULES, applies, banned, set_order
from tests.repo.tree import Source, sources, violations, whats

CORE = "src/hotspare/flow/x.py"


def test_core_has_no_clock_thread_environment_or_log() -> None:
    assert violations(banned, sources("src")) == []


def test_core_walks_no_set() -> None:
    assert violations(set_order, sources("src")) == []


def test_allowed_modules_are_imported_and_say_why() -> None:
    texts = {source.path: source.text for source in sources("src")}
    for (path, module), why in ALLOWED_MODULES.items():
        assert f"import {module}\n" in texts.get(path, ""), f"{path}: {module} is gone"
        assert why


def test_allowed_calls_exist_and_say_why() -> None:
    texts = {source.path: source.text for source in sources("src")}
    for (path, call), reason in ALLOWED.items():
        assert f"{call}(" in texts.get(path, ""), f"{path}: {call} is gone"
        assert len(reason) > 10, f"{path}: {call} needs a reason"


@pytest.mark.parametrize(
    "path", ["src/hotspare/table/loops/ring.py", "src/hotspare/windows/join/operator.py", "src/hotspare/ha/rules/decide.py"]
)
def test_rules_look_at(path: str) -> None:
    assert applies(Source.of(path, ""))


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic",
        "def f():\n    import random",
        "import numpy.random",
        "from numpy import random",
        "import os",
        "from os import environ",
        "import threading",
        "from concurrent.futures import ThreadPoolExecutor",
        "import uuid",
        "import logging",
        "import structlog",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.utcnow()",
        "import datetime\nx = datetime.date.today()",
        "import numpy as np\nx = np.random.default_rng(1)",
        "x = hash('a')",
        "x = id(y)",
        "print('here')",
        "with open('f') as f:\n    pass",
        "@njit(parallel=True)\ndef f():\n    pass",
        "@njit(fastmath={'reassoc'})\ndef f():\n    pass",
    ],
)
def test_ban_bites(text: str) -> None:
    assert len(whats(banned, CORE, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import timeit_like",
        "from datetime import timedelta",
        "x = chunk.id(3)",
        "x = pipeline.open()",
        "@njit(fastmath=False, parallel=False, nogil=True)\ndef f():\n    pass",
        "import numpy as np\nx = np.zeros(3)",
        "x = view.now(3)",
    ],
)
def test_ban_allows(text: str) -> None:
    assert whats(banned, CORE, text) == []


def test_ban_is_for_the_core_only() -> None:
    assert whats(banned, "src/hotspare/ha/effects/ha_loop.py", "import time") == []


@pytest.mark.parametrize(
    "text",
    [
        "for x in {1, 2}:\n    pass",
        "for x in set(y):\n    pass",
        "s = {1, 2}\nfor x in s:\n    pass",
        "def f(s: set[int]):\n    for x in s:\n        pass",
        "def f(s: 'frozenset[str]'):\n    return [x for x in s]",
        "def f(s: set[str]):\n    return ','.join(s)",
        "def f(s: set[str], t: set[str]):\n    return list(s - t)",
        "def f(s: set[str]):\n    return tuple(s.union([1]))",
        "def f(s: set[str]):\n    return s.pop()",
        "def f(s: set[str]):\n    return [*s]",
        "def f(s: set[str]):\n    return {x: 1 for x in s}",
        "def f():\n    s: set[str] = g()\n    return sum(s)",
        "class A:\n    names: set[str]\n    def f(self):\n        return next(iter(self.names))",
        "class A:\n    def f(self):\n        self.names: set[str] = g()\n        for x in self.names:\n            pass",
    ],
)
def test_set_order_bites(text: str) -> None:
    assert len(whats(set_order, CORE, text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "for x in sorted({1, 2}):\n    pass",
        "def f(s: set[int]):\n    return len(s) + max(s)",
        "def f(s: set[int]):\n    return any(x > 1 for x in s)",
        "def f(s: set[int]):\n    return sorted(x for x in s)",
        "def f(s: set[int]):\n    return {x + 1 for x in s}",
        "def f(s: list[int]):\n    for x in s:\n        pass",
        "def f(s: set[int]):\n    return 1 in s",
        "def f(s: set[int]):\n    pass\ndef g(s: list[int]):\n    for x in s:\n        pass",
        "def f(s: list[int]):\n    return s.pop()",
    ],
)
def test_set_order_allows(text: str) -> None:
    assert whats(set_order, CORE, text) == []
