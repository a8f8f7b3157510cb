"""Tests wait for conditions, give reasons, and use real parts; each of the seven laws has a test (design, section 2)."""

from __future__ import annotations

import pytest

from tests.repo import testing_rules
from tests.repo.tree import Rule, repository_files, sources, violations, whats

TEST = "tests/base/test_x.py"
LAWS = ("cut", "crash", "twin", "runner", "round_trip", "failover", "one_voice")


RULES = [getattr(testing_rules, name) for name in ("sleeps", "time_outs", "clocks", "leases", "reasons", "mocks", "fixed_examples")]


@pytest.mark.parametrize("rule", RULES)
def test_tests_keep_the_rules(rule: Rule) -> None:
    assert violations(rule, sources("tests")) == []


@pytest.mark.parametrize("name", ["SLEEPS", "CLOCKS", "LEASES", "MOCKS"])
def test_exceptions_exist_and_say_why(name: str) -> None:
    for path, reason in getattr(testing_rules, name).items():
        assert path in repository_files(), f"{path} is gone"
        assert len(reason) > 10, f"{path} needs a reason"


@pytest.mark.parametrize("law", LAWS)
def test_every_law_has_a_test(law: str) -> None:
    (source,) = (s for s in sources("tests") if s.path == f"tests/laws/test_{law}.py")
    assert "pytest.mark.law" in source.text
    assert "def test_" in source.text


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)",
        "from time import sleep\nsleep(1)",
        "from time import sleep as wait\nwait(1)",
        "import asyncio\nawait asyncio.sleep(1)",
        "threading.Event().wait(1)",
        "threading.Condition().wait(timeout=pause_s)",
        "over.wait(0.05)",
        "thread.join(0.2)",
        "ends.get(timeout=0.5)",
        "taken.wait_for(lambda: done, 0.25)",
        "select.select([], [], [], 3)",
        "subprocess.run(['sleep', '1'])",
        "PROGRAM = 'import time\\nprint(1)\\ntime.sleep(0.1)'",
        "PROGRAM = '''\n    import threading\n    threading.Event().wait(0.05)\n'''",
    ],
)
def test_sleep_bites(text: str) -> None:
    assert len(whats(testing_rules.sleeps, TEST, text)) == 1


def test_sleep_allows_waiting_for_a_condition() -> None:
    for text in (
        "wait_until(lambda: done, 'done', 5)\nevent.wait(5)",
        "assert event.wait(0.5)\nthreading.Event().wait()",
        "select.select([pidfd], [], [], 20)\nsubprocess.run(['true'])",
        "PROGRAM = 'import time\\ntime.sleep(600)'",
        "say(', '.join(names))",
    ):
        assert whats(testing_rules.sleeps, TEST, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "assert not event.wait(0.2)",
        "assert not event.wait(timeout=60), 'it came'",
        "assert not taken.acquire(timeout=WAIT_S)",
        "assert done and not changed.wait_for(lambda: over, 1)",
        "with pytest.raises(queue.Empty):\n    found.get(timeout=1)",
        "with pytest.raises(subprocess.TimeoutExpired):\n    process.wait(1)",
        "PROGRAM = 'import threading\\nassert not over.wait(1)'",
    ],
)
def test_a_time_out_bites(text: str) -> None:
    assert len(whats(testing_rules.time_outs, TEST, text)) == 1


def test_a_time_out_allows_what_has_happened() -> None:
    for text in ("assert event.wait(60)", "assert not event.is_set()", "assert not event.wait(0)", "assert not ','.join(left)"):
        assert whats(testing_rules.time_outs, TEST, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\nassert time.monotonic() - begun >= 0.05",
        "from time import perf_counter as now\nnow()",
        "import time\ntime.time_ns()",
        "import datetime\ndatetime.datetime.now()",
        "PROGRAM = 'import time\\nprint(time.process_time())'",
    ],
)
def test_a_clock_bites(text: str) -> None:
    assert len(whats(testing_rules.clocks, TEST, text)) == 1


def test_a_clock_allows_virtual_ones() -> None:
    assert whats(testing_rules.clocks, TEST, "import time\nRig(clock_ms=monotonic_ms)\nclock.monotonic()") == []


@pytest.mark.parametrize(
    "text",
    [
        "SETTINGS = GroupSettings(lease_ms=400)",
        "LEASE_MS = 300",
        "def made(name, lease_ms=1_999): ...",
        "client.campaign('g', 0, member('a'), 1_000)",
        "client.renew('g', 1, 'a', 1_000)",
        "OPTIONS = ('--runner', 'local', '--lease-ms', '1000')",
        "command('run', '--lease-ms', '1000')",
        'PROGRAM = \'import sys\\nopened.renew("g", 1, "a", 300)\'',
        "Cluster(project, url).start_engine('one')",
        "EngineOptions(file, url, runner=RunnerKind.LOCAL)",
    ],
)
def test_a_lease_bites(text: str) -> None:
    assert len(whats(testing_rules.leases, TEST, text)) == 1


def test_a_lease_allows() -> None:
    for text in (
        "GroupSettings(lease_ms=2_000)",
        "client.campaign('g', 0, member('a'), 1)  # to run out",
        "Cluster(project, url, options=(*LEASE, *options)).start_engine('one')",
        "EngineOptions(file, url, runner=RunnerKind.LOCAL, settings=SETTINGS)",
        "EngineOptions(file, url, shards=SHARDS)",
    ):
        assert whats(testing_rules.leases, TEST, text) == []
    assert whats(testing_rules.leases, "tests/simulation/world.py", "GroupSettings(lease_ms=60)") == []


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\n@pytest.mark.skip\ndef test_x(): ...",
        "import pytest\n@pytest.mark.skipif(True)\ndef test_x(): ...",
        "import pytest\n@pytest.mark.xfail()\ndef test_x(): ...",
        "import pytest\n@pytest.mark.xfail(reason='r', strict=False)\ndef test_x(): ...",
    ],
)
def test_reason_bites(text: str) -> None:
    assert len(whats(testing_rules.reasons, TEST, text)) == 1


def test_reason_allows() -> None:
    text = "import pytest\n@pytest.mark.xfail(reason='SPEC A27')\n@pytest.mark.skipif(x, reason='no broker')\ndef test_x(): ..."
    assert whats(testing_rules.reasons, TEST, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "import unittest.mock",
        "from unittest import mock",
        "from unittest.mock import patch",
        "import mock",
        "from mock import Mock",
    ],
)
def test_mock_bites(text: str) -> None:
    assert len(whats(testing_rules.mocks, TEST, text)) == 1


def test_mock_allows_the_rest_of_unittest() -> None:
    assert whats(testing_rules.mocks, TEST, "import unittest\nfrom unittest import TestCase") == []


@pytest.mark.parametrize(
    "text",
    [
        "@settings(max_examples=60)\ndef test_x(): ...",
        "TestTwins.settings = settings(examples(0.5), max_examples=9, deadline=None)",
    ],
)
def test_fixed_examples_bite(text: str) -> None:
    assert len(whats(testing_rules.fixed_examples, TEST, text)) == 1


def test_fixed_examples_allow_weights_and_profiles() -> None:
    weighted = "@examples(0.5)\ndef test_x(): ...\n@settings(examples(2), deadline=None)\ndef test_y(): ..."
    assert whats(testing_rules.fixed_examples, TEST, weighted) == []
    profile = "settings.register_profile('explore', max_examples=50)"
    assert whats(testing_rules.fixed_examples, "tests/conftest.py", profile) == []
