"""A failure is printed with the commands that repeat it; tests that a change touches are found and repeated."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.repeating import changed_files, imports_of_tests, touched_files
from tests.repo.tree import ROOT

DEPENDS = """
import random
from hypothesis import given, strategies as st
left, drawn = [], []
def test_leaves(): left.append(1)
def test_finds(): assert not left
@given(st.integers(0, 1 << 60))
def test_draws(number):
    drawn.append(number)
def test_tells():
    assert not drawn, f"drawn {sum(drawn)} and {random.random()}"
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    """Returns what pytest prints with the plugin, in a folder with these tests."""
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    command = [sys.executable, "-m", "pytest", "-p", "tests.repeating", *arguments]
    given = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=120).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_depends.py").write_text(DEPENDS)
    return tmp_path


def test_a_failure_is_repeated_by_the_commands_that_it_is_printed_with(folder: Path) -> None:
    """They repeat the random order, the drawn values, and the tests before it in its process."""
    out = run(folder, "--randomly-seed=7", "--randomly-dont-reorganize", HYPOTHESIS_PROFILE="default")
    assert "2 failed" in out
    begin = out.index("= to repeat =")
    alone, after = re.search(r"^(.*test_tells)\n  or, .* with (@\S+) in its place$", out[begin:], re.MULTILINE).groups()  # type: ignore[union-attr]
    profile, python, *words = shlex.split(alone)
    assert (profile, python, words[:4]) == ("HYPOTHESIS_PROFILE=default", ".venv/bin/python", ["-m", "pytest", "-n", "0"])
    assert "1 passed" in run(folder, *words[2:])
    again = run(folder, *words[2:-1], after)
    told = re.search(r"drawn \d+ and [\d.]+", out)
    assert told is not None
    assert told[0] in again
    assert "2 failed, 2 passed" in again


def test_a_run_without_a_failure_says_nothing_of_it(folder: Path) -> None:
    assert "to repeat" not in run(folder, "test_depends.py::test_leaves")


def test_a_change_touches_its_tests_and_those_of_what_it_changed() -> None:
    files = {
        "tests/part/test_a.py": frozenset({"src/hotspare/a.py"}),
        "tests/part/test_b.py": frozenset({"tests/part/kit.py"}),
        "tests/part/kit.py": frozenset({"src/hotspare/b.py"}),
        "tests/part/test_c.py": frozenset({"tests/part/conftest.py"}),
        "tests/part/conftest.py": frozenset[str](),
    }
    for changed, touched in (
        ({"tests/part/test_a.py"}, {"a"}),
        ({"src/hotspare/a.py"}, {"a"}),
        ({"src/hotspare/b.py"}, {"b"}),
        ({"tests/part/kit.py", "tests/part/conftest.py"}, {"b", "c"}),
        ({"README.md", "src/hotspare/c.py"}, set()),
    ):
        assert touched_files(frozenset(changed), files) == {f"tests/part/test_{name}.py" for name in touched}


@pytest.fixture
def repository(folder: Path) -> Iterator[Callable[..., None]]:
    """Runs git in a new repository that has the tests, committed."""

    def git(*arguments: str) -> None:
        own = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    yield git


def test_a_change_is_what_is_not_committed_and_not_upstream(folder: Path, repository: Callable[..., None]) -> None:
    def commit(name: str) -> None:
        (folder / name).write_text(name)
        repository("add", name)
        repository("commit", "-m", name)

    commit("two")
    assert changed_files(folder) == {"two"}, "the newest commit, where nothing else is known"
    repository("branch", "upstream")
    repository("branch", "--set-upstream-to=upstream")
    commit("three")
    assert changed_files(folder) == {"three"}
    (folder / "four").touch()
    (folder / "two").write_text("changed")
    assert changed_files(folder) == {"two", "three", "four"}
    assert changed_files(folder, "HEAD") == {"two", "four"}


def test_tests_that_a_change_touches_are_repeated_and_no_others(folder: Path, repository: Callable[..., None]) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "kit.py").write_text("from hotspare.base.retry import (\n    Retry,\n)\n")
    (folder / "tests" / "test_new.py").write_text(DEPENDS + "def imports():\n    import tests.kit\n")
    (folder / "tests" / "test_gone.py").touch()
    repository("add", ".")
    (folder / "tests" / "test_gone.py").unlink()
    assert imports_of_tests(folder) == {
        "tests/kit.py": {"conftest.py", "tests/conftest.py"},
        "tests/test_new.py": {"conftest.py", "tests/conftest.py", "tests/kit.py"},
    }
    out = run(folder, "-v", "--repeat-changed", "3", "--changed-since", "HEAD", "-p", "no:randomly")
    assert "repeating 3 times: tests/test_new.py" in out
    assert [out.count(f"::{name}[{number}] PASSED") for name in ("test_leaves", "test_draws") for number in (1, 2, 3)] == [1] * 6
    assert "test_depends.py" not in out


def test_this_repositorys_imports_are_found() -> None:
    found = imports_of_tests(ROOT)
    assert {"tests/repeating.py", "tests/repo/tree.py", "tests/conftest.py"} <= found["tests/repo/test_repeating.py"]
    assert "src/hotspare/runners/contract.py" in found["tests/runners/test_pace.py"]
