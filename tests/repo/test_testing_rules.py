"""Tests wait for conditions, give reasons, and use real parts; each of the seven laws has its test (design, section 2)."""

from __future__ import annotations

import pytest

from tests.repo import testing_rules
from tests.repo.tree import Rule, repository_files, sources, violations, whats

TEST = "tests/unit/test_x.py"
LAWS = ("cut", "crash", "twin", "runner", "round_trip", "failover", "one_voice")


@pytest.mark.parametrize("rule", [testing_rules.sleeps, testing_rules.reasons, testing_rules.mocks, testing_rules.fixed_examples])
def test_tests_keep_the_rules(rule: Rule) -> None:
    assert violations(rule, sources("tests")) == []


def test_exceptions_exist_and_say_why() -> None:
    for path, reason in (testing_rules.SLEEPS | testing_rules.MOCKS).items():
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
    ],
)
def test_sleep_bites(text: str) -> None:
    assert len(whats(testing_rules.sleeps, TEST, text)) == 1


def test_sleep_allows_waiting_for_a_condition() -> None:
    assert whats(testing_rules.sleeps, TEST, "wait_until(lambda: done, 'done', 5)\nevent.wait(5)") == []


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
