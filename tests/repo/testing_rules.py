"""What a test may not do: wait by sleeping, be skipped or expected to fail without a reason, replace real things by mocks, or
fix a number of examples over the profile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

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


def sleeps(source: Source) -> Iterator[Violation]:
    """A test waits for a condition (`hotspare.testing.cluster.wait_until`), never for an amount of time."""
    if source.path in SLEEPS:
        return
    slept = {"time.sleep", "asyncio.sleep"}
    for node in nodes(source, ast.ImportFrom):
        if node.module in ("time", "asyncio"):
            slept |= {alias.asname or alias.name for alias in node.names if alias.name == "sleep"}
    for node in nodes(source, ast.Call):
        if dotted(node.func) in slept:
            yield source.violation(node, "sleeps; wait for a condition instead")


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
