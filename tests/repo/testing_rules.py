"""What a test may not do: wait by sleeping, be skipped or expected to fail without a reason, replace real things by mocks, or
fix a number of examples over the profile."""

from __future__ import annotations

import ast
import contextlib
import textwrap
from collections.abc import Iterator
from itertools import pairwise

from tests.repo.imports import imported
from tests.repo.tree import Source, Violation, dotted, nodes

SLEEPS: dict[str, str] = {}
"""Path of a test file -> why it has to sleep; not to wait for something, for that poll a condition with a deadline."""

MOCKS: dict[str, str] = {
    "tests/simulation/planted_applications.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_cascade.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_cold.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_recent.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_rules.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_shards.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_time.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_world.py": "puts mistakes into the real code, on purpose, to see that they are found",
}
"""Path of a test file -> why it replaces a part of the code by another one."""

_EXAMPLES = ("tests/examples.py", "tests/conftest.py")
"""The files that may set a number of examples: the weights of properties, and the profiles."""

_NEED_REASON = ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")


LEASE_MS_LEAST = 2_000
"""A shorter lease of real time runs out on a busy machine while its holder is healthy."""

LEASES: dict[str, str] = {}
"""Path of a test file -> why its leases may be shorter: their time is not real, or they are to run out."""

CLOCKS: dict[str, str] = {}
"""Path of a file -> why it reads a real clock; not to assert how long something takes, for that is a benchmark's."""

_CLOCKS = tuple(f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns"))
_WAITS = ("wait", "wait_for", "join", "acquire", "get", "poll", "select")
_TIMEOUT_ERRORS = ("Empty", "TimeoutExpired", "TimeoutError", "BrokenBarrierError")
_PROGRAM_S_LEAST = 60
"""A program that sleeps for longer is one that lasts until the test ends it."""


def _with_programs(source: Source) -> Iterator[Source]:
    """The file, and each program for another process that it has as text."""
    yield source
    for node in nodes(source, ast.Constant):
        if isinstance(node.value, str) and "import " in node.value:
            with contextlib.suppress(SyntaxError, ValueError):
                program = ast.parse(textwrap.dedent(node.value))
                ast.increment_lineno(program, node.lineno - 1)
                yield Source(source.path, node.value, program)


def _timeout(call: ast.Call) -> ast.expr | None:
    """The time-out that a call that waits is given, by name or as the last argument by place."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _WAITS:
        return None
    named = [each.value for each in call.keywords if each.arg in ("timeout", "timeout_s")]
    return named[0] if named else call.args[-1] if call.args else None


def _imported_as(source: Source, *names: str) -> frozenset[str]:
    """How a file calls these functions of modules."""
    found = set(names)
    for node in nodes(source, ast.ImportFrom):
        found |= {alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in names}
    return frozenset(found)


def sleeps(source: Source) -> Iterator[Violation]:
    """A test waits for a condition (`hotspare.testing.cluster.wait_until`), never for an amount of time."""
    if source.path in SLEEPS:
        return
    for text in _with_programs(source):
        slept = _imported_as(text, "time.sleep", "asyncio.sleep")
        for node in nodes(text, ast.Call):
            is_pause = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call) and _timeout(node) is not None
            made = dotted(node.func.value.func).rpartition(".")[2] if is_pause else ""  # type: ignore[union-attr]
            if dotted(node.func) in slept:
                seconds = node.args[0] if node.args else None
                lasts = text is not source and isinstance(seconds, ast.Constant) and seconds.value >= _PROGRAM_S_LEAST
                if not lasts:
                    yield source.violation(node, "sleeps; wait for a condition instead")
            elif made in ("Event", "Condition") or (dotted(node.func) == "select.select" and not any(map(_items, node.args[:3]))):
                yield source.violation(node, "sleeps, as nothing can end this wait; wait for a condition instead")
            elif node.args and isinstance(node.args[0], ast.List | ast.Tuple) and dotted(node.func) in _BLOCKING:
                first = next(iter(_items(node.args[0])), None)
                if isinstance(first, ast.Constant) and first.value == "sleep":
                    yield source.violation(node, "sleeps in a process; wait for a condition instead")
        for statement in nodes(text, ast.Expr):
            call = statement.value
            if isinstance(call, ast.Call) and isinstance(given := _timeout(call), ast.Constant):
                if isinstance(given.value, int | float) and 0 < given.value < 1:
                    yield source.violation(call, "sleeps, as what the wait returns is not looked at; wait for a condition instead")


_BLOCKING = ("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output")


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else [node]


def time_outs(source: Source) -> Iterator[Violation]:
    """A test asserts what happened, never that nothing did for an amount of time, nor how long something took."""
    if source.path in SLEEPS:
        return
    for text in _with_programs(source):
        for node in nodes(text, ast.Assert):
            for each in ast.walk(node.test):
                negated = each.operand if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not) else None
                if (
                    isinstance(negated, ast.Call) and negated.func.attr != "join"
                    if isinstance(getattr(negated, "func", None), ast.Attribute)
                    else False
                ):
                    given = _timeout(negated)
                    if given is not None and not (isinstance(given, ast.Constant) and given.value == 0):
                        yield source.violation(node, "asserts that a wait runs into its time-out; assert what must have happened")
        for node in nodes(text, ast.Call):
            if dotted(node.func) == "pytest.raises" and node.args:
                if dotted(node.args[0]).rpartition(".")[2] in _TIMEOUT_ERRORS:
                    yield source.violation(node, "asserts that a wait runs into its time-out; assert what must have happened")


def clocks(source: Source) -> Iterator[Violation]:
    """A test reads no real clock: how long something takes belongs to benchmarks/, and what depends on time gets a virtual clock."""
    if source.path in CLOCKS:
        return
    for text in _with_programs(source):
        read = _imported_as(text, *_CLOCKS) | {"datetime.now", "datetime.datetime.now"}
        for node in nodes(text, ast.Call, ast.Attribute):
            if isinstance(node, ast.Call) and dotted(node.func) in read:
                yield source.violation(node, f"reads a real clock: {dotted(node.func)}")


def leases(source: Source) -> Iterator[Violation]:
    """A lease of real time lasts two seconds or more."""
    if source.path in LEASES or source.path.startswith("tests/simulation/"):
        return
    for text in _with_programs(source):
        found: list[tuple[ast.AST, ast.expr]] = []
        for node in nodes(text, ast.Call):
            found += [(node, each.value) for each in node.keywords if each.arg == "lease_ms"]
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("campaign", "renew") and len(node.args) == 4:
                found.append((node, node.args[3]))
        for node in nodes(text, ast.Assign):
            found += [(node, node.value) for each in node.targets if dotted(each).upper().endswith("LEASE_MS")]
        for node in nodes(text, ast.arguments):
            for name, default in zip(reversed(node.args), reversed(node.defaults), strict=False):
                found += [(default, default)] if name.arg == "lease_ms" else []
        for node in nodes(text, ast.List, ast.Tuple, ast.Call):
            items = node.args if isinstance(node, ast.Call) else node.elts
            for before, after in pairwise(items):
                if isinstance(before, ast.Constant) and before.value == "--lease-ms" and isinstance(after, ast.Constant):
                    found.append((node, ast.Constant(int(after.value))))
        for node, lease in found:
            if isinstance(lease, ast.Constant) and isinstance(lease.value, int) and lease.value < LEASE_MS_LEAST:
                yield source.violation(node, f"a lease of {lease.value} ms; of real time it lasts {LEASE_MS_LEAST} ms or more")


def reasons(source: Source) -> Iterator[Violation]:
    """A skip and an expected failure say why; an expected failure that succeeds is a failure (xfail_strict)."""
    for node in nodes(source, ast.Attribute):
        if dotted(node) not in _NEED_REASON:
            continue
        call = next((c for c in nodes(source, ast.Call) if c.func is node), None)
        given = {keyword.arg: keyword.value for keyword in call.keywords} if call else {}
        if "reason" not in given:
            yield source.violation(node, f"{node.attr} without a reason")
        strict = given.get("strict")
        if isinstance(strict, ast.Constant) and not strict.value:
            yield source.violation(node, "xfail that may succeed")


def mocks(source: Source) -> Iterator[Violation]:
    """The in-memory bus, coordination and store are real; a mock only proves what it was told."""
    if source.path in MOCKS:
        return
    for node, name in imported(source):
        if f"{name}.".startswith(("unittest.mock.", "mock.")):
            yield source.violation(node, "mocks; use the in-memory implementation")


def fixed_examples(source: Source) -> Iterator[Violation]:
    """A property states its weight (`tests.examples.examples`); only a profile sets a number of examples."""
    if source.path in _EXAMPLES:
        return
    for node in nodes(source, ast.keyword):
        if node.arg == "max_examples":
            yield source.violation(node, "fixes max_examples; write examples(WEIGHT) of tests/examples.py")
