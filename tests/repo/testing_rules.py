"""Rules for tests: none waits by sleeping, is skipped or expected to fail without a reason, or uses mocks. None fixes a number of
examples over the profile."""

from __future__ import annotations

import ast
import contextlib
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from tests.repo.imports import imported
from tests.repo.tree import Source, Violation, dotted, nodes

SLEEPS: dict[str, str] = {}
"""Path of a test file -> why it has to sleep; to wait for a condition, poll it with a deadline."""

CLOCKS: dict[str, str] = {
    "tests/contract/store_kills_campaign.py": "a campaign prints how long it took",
    "tests/contract/store_points.py": "tells the campaign over which time to spread its kills",
    "tests/e2e/chaos/scenarios.py": "a campaign strikes after a random time",
    "tests/e2e/test_persist_hosts.py": "prints how long each step took, and asserts none of it",
    "tests/integration/kafka/test_kafka_three_brokers.py": "a broker that died is believed for the time of a session",
    "tests/integration/kafka/test_kafka_topics_in.py": "brokers delete records whose time is long ago",
    "tests/laws/search.py": "a search ends after the time that it is given",
    "tests/simulation/campaign.py": "a campaign ends after the time that it is given",
    "tests/simulation/run.py": "prints how long a run took",
    "tests/adapters/test_state_writer.py": "Redis expires records by a clock of its own",
    "tests/scripting/python/test_refused.py": "has programs that may not read a clock",
    "tests/testing/test_applications.py": "a strike is told with the time at which it happened",
}
"""Path of a file -> why it reads a real clock; not to assert a duration, which is a benchmark's task."""

LEASES: dict[str, str] = {
    "tests/contract/test_memory_faults.py": "its clock is the test's",
    "tests/ha/test_ha_loop.py": "its clock is the test's",
    "tests/ha/test_parts.py": "its clock is the simulation's",
    "tests/ha/test_publishing.py": "it calls rules, which have no clock",
    "tests/ha/test_settings.py": "it builds settings and runs nothing",
    "tests/host/test_cold_spare.py": "it calls a rule, which has no clock",
}
"""Path of a test file -> why its leases may be shorter than `LEASE_MS_LEAST`; those of the simulation may."""

LEASE_MS_LEAST = 2_000
"""A shorter lease of real time runs out on a busy machine while its holder is healthy."""

_READS = tuple(f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns"))
_WAITS = ("wait", "wait_for", "join", "acquire", "get", "poll", "select")
_TIMEOUTS = ("Empty", "TimeoutExpired", "TimeoutError", "BrokenBarrierError")
_BLOCKING = ("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output")
_LASTS_S = 60
"""A program that sleeps this long runs until the test ends it."""

MOCKS: dict[str, str] = {
    "tests/simulation/planted_applications.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_cascade.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_cold.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_hang.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_recent.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_rules.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_shards.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_time.py": "puts mistakes into the real code, on purpose, to see that they are found",
    "tests/simulation/planted_world.py": "puts mistakes into the real code, on purpose, to see that they are found",
}
"""Path of a test file -> why it replaces a part of the code."""

_EXAMPLES = ("tests/examples.py", "tests/conftest.py")
"""The files that may set a number of examples: the weights of properties, and the profiles."""

_NEED_REASON = ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")


@cache
def _with_programs(source: Source) -> tuple[Source, ...]:
    """Returns the file, and each program for another process that it has as text; nodes have their lines in the file."""
    found = [source]
    for node in nodes(source, ast.Constant):
        # the texts of these rules' own tests are bad examples
        if isinstance(node.value, str) and "import " in node.value and not source.path.startswith("tests/repo/"):
            with contextlib.suppress(SyntaxError, ValueError):
                program = ast.parse(textwrap.dedent(node.value))
                ast.increment_lineno(program, node.lineno - 1)
                found.append(Source(source.path, node.value, program))
    return tuple(found)


def _called_as(source: Source, *names: str) -> frozenset[str]:
    """Returns the names by which a file calls these functions of modules."""
    found = set(names)
    for node in nodes(source, ast.ImportFrom):
        found |= {alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in names}
    return frozenset(found)


def _timeout(call: ast.expr) -> ast.expr | None:
    """Returns the time-out of a waiting call, by name or as the last positional argument. The `join` of a text is not one."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _WAITS:
        return None
    if isinstance(call.func.value, ast.Constant):
        return None
    named = [each.value for each in call.keywords if each.arg in ("timeout", "timeout_s")]
    return named[0] if named else call.args[-1] if call.args else None


def _number(node: ast.AST | None) -> float:
    """Returns the value of a constant; -1 for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else -1


def _items(node: ast.AST) -> list[ast.expr]:
    """Returns the items of a list or a tuple, or the positional arguments of a call."""
    return node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []


def _is_sleep(call: ast.Call, slept: frozenset[str], is_program: bool) -> bool:
    """Whether only time ends the call: a sleep, a wait for a new event, a select of nothing, a `sleep` process."""
    name, given = dotted(call.func), call.args[0] if call.args else None
    if name in slept:
        return not (is_program and _number(given) >= _LASTS_S)
    if name == "select.select":
        return not any(_items(each) for each in call.args[:3])
    if name in _BLOCKING and given is not None:
        return [each.value for each in _items(given)[:1] if isinstance(each, ast.Constant)] == ["sleep"]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_fresh = isinstance(owner, ast.Call) and dotted(owner.func).rpartition(".")[2] in ("Event", "Condition")
    return is_fresh and _timeout(call) is not None


def sleeps(source: Source) -> Iterator[Violation]:
    """Yields sleeps: a test waits for a condition (`hotspare.testing.cluster.wait_until`), never for an amount of time."""
    if source.path in SLEEPS:
        return
    for text in _with_programs(source):
        slept = _called_as(text, "time.sleep", "asyncio.sleep")
        unseen = {id(each.value) for each in nodes(text, ast.Expr) if 0 < _number(_timeout(each.value)) < 1}
        for node in nodes(text, ast.Call):
            if _is_sleep(node, slept, text is not source) or id(node) in unseen:
                yield source.violation(node, "sleeps; wait for a condition instead")


def time_outs(source: Source) -> Iterator[Violation]:
    """Yields assertions that a wait times out: a test asserts what happened, never that nothing did for a time."""
    for text in _with_programs(source):
        found: list[ast.AST] = []
        for node in nodes(text, ast.Assert):
            negated = [
                each.operand for each in ast.walk(node.test) if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not)
            ]
            found += [each for each in negated if _timeout(each) is not None and _number(_timeout(each)) != 0]
        for node in nodes(text, ast.Call):
            if dotted(node.func) == "pytest.raises" and node.args:
                found += [node] if dotted(node.args[0]).rpartition(".")[2] in _TIMEOUTS else []
        for each in found:
            yield source.violation(each, "asserts that a wait runs into its time-out; assert what must have happened")


def clocks(source: Source) -> Iterator[Violation]:
    """Yields reads of a real clock: durations belong in benchmarks, and code that depends on time gets a virtual clock."""
    if source.path in CLOCKS or "time" not in source.text:
        return
    for text in _with_programs(source):
        read = _called_as(text, *_READS) | {"datetime.now", "datetime.datetime.now"}
        for node in nodes(text, ast.Call):
            if dotted(node.func) in read:
                yield source.violation(node, f"reads a real clock: {dotted(node.func)}")


def _lease_values(text: Source) -> Iterator[ast.expr]:
    """Yields the values given as a lease: to calls and commands, as a default and as a constant."""
    for node in nodes(text, ast.Call):
        yield from (each.value for each in node.keywords if each.arg == "lease_ms")
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("campaign", "renew"):
            yield from node.args[3:4]
    for node in nodes(text, ast.Assign):
        yield from (node.value for each in node.targets if dotted(each).upper().endswith("LEASE_MS"))
    for node in nodes(text, ast.arguments):
        pairs = zip(reversed(node.args), reversed(node.defaults), strict=False)
        yield from (default for name, default in pairs if name.arg == "lease_ms")
    for node in nodes(text, ast.List, ast.Tuple, ast.Call):
        for before, after in pairwise(_items(node)):
            if isinstance(before, ast.Constant) and before.value == "--lease-ms" and isinstance(after, ast.Constant):
                yield ast.copy_location(ast.Constant(int(after.value)), after)


def leases(source: Source) -> Iterator[Violation]:
    """Yields short leases: a lease of real time lasts two seconds or more, unless it is to run out at once. Engines of a test are
    given theirs."""
    is_about = any(word in source.text for word in ("lease", "LEASE", ".campaign(", ".renew(", "Cluster(", "EngineOptions("))
    if not is_about or source.path in LEASES or source.path.startswith("tests/simulation/"):
        return
    for text in _with_programs(source):
        for lease in _lease_values(text):
            if 1 < _number(lease) < LEASE_MS_LEAST:
                yield source.violation(lease, f"a lease of {_number(lease)} ms, in real time less than {LEASE_MS_LEAST}")
    has_lease = bool({"LEASE", "PATIENT"} & {dotted(node) for node in nodes(source, ast.Name)}) or "--lease-ms" in source.text
    for node in nodes(source, ast.Call):
        given = {each.arg for each in node.keywords}
        if dotted(node.func) == "Cluster" and "start_engine" in source.text and not has_lease:
            yield source.violation(node, "engines with the default lease; give them LEASE or PATIENT of tests/e2e/site.py")
        if dotted(node.func) == "EngineOptions" and "runner" in given and not given & {"settings", None}:
            yield source.violation(node, "an engine with the default lease; give it settings")


def reasons(source: Source) -> Iterator[Violation]:
    """Yields skips and expected failures without a reason, and expected failures that may succeed (xfail_strict)."""
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
    """Yields mocks: the in-memory bus, coordination and store are real; a mock proves only what it was configured to return."""
    if source.path in MOCKS:
        return
    for node, name in imported(source):
        if f"{name}.".startswith(("unittest.mock.", "mock.")):
            yield source.violation(node, "mocks; use the in-memory implementation")


def fixed_examples(source: Source) -> Iterator[Violation]:
    """Yields fixed numbers of examples: a property states its weight (`tests.examples.examples`); only a profile sets a number."""
    if source.path in _EXAMPLES:
        return
    for node in nodes(source, ast.keyword):
        if node.arg == "max_examples":
            yield source.violation(node, "fixes max_examples; write examples(WEIGHT) of tests/examples.py")
