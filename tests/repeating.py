"""A plugin of pytest: prints the commands that repeat each failure, and repeats the tests that a change touches.

A failure depends on the random order, the seeds of `random` and Hypothesis, the profile of Hypothesis, and earlier tests of the
process. Order and seeds follow from one seed, which the summary names with the rest. Hypothesis prints the blob of an example and
simulations print their seeds by themselves.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import core

_AFTER = "repeat after"
"""The name of a report's property: a file with the tests that the process ran, in order, up to the one that failed."""


class Failures:
    """Records what repeats the failures of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Makes Hypothesis draw by the seed of the random order. Profiles that derandomize and `--hypothesis-seed` go first."""
        if isinstance(self._seed, int) and core.global_force_seed is None:
            core.global_force_seed = self._seed

    @property
    def _seed(self) -> int | str | None:
        seed: int | str | None = self._config.getoption("randomly_seed", None)
        return seed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._ran.append(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if report.failed and len(self._ran) > 1 and (cache := getattr(self._config, "cache", None)) is not None:
            worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
            file = cache.mkdir("ran") / f"{worker}-{os.getpid()}-{len(self._ran)}"
            file.write_text("\n".join(self._ran) + "\n")
            report.user_properties.append((_AFTER, str(file.relative_to(self._config.rootpath))))
        return report  # type: ignore[return-value]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = {report.nodeid: report for kind in ("error", "failed") for report in terminalreporter.stats.get(kind, ())}
        if not found:
            return
        terminalreporter.section("to repeat")
        profile = os.environ.get("HYPOTHESIS_PROFILE")
        command = [*([f"HYPOTHESIS_PROFILE={profile}"] if profile else []), ".venv/bin/python", "-m", "pytest", "-n", "0"]
        is_seeded = isinstance(self._seed, int)
        ordered = [f"--randomly-seed={self._seed}", "--randomly-dont-reorganize"] if is_seeded else ["-p", "no:randomly"]
        for name, report in found.items():
            terminalreporter.line(shlex.join([*command, *ordered, name]))
            after = dict(getattr(report, "user_properties", ())).get(_AFTER)
            if after:
                terminalreporter.line(f"  or, behind all that its process ran before, with @{after} in its place")


def touched_files(changed: frozenset[str], files: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Returns the test files that a change touches: they, or test modules that they import, are in `changed` or import it.

    `files` maps the path of each Python file of the tests to the paths of the repository's files that it imports. Imports of `src`
    are followed no further, because a change of a module deep in `src` would touch every test.
    """
    touched = {path for path, used in files.items() if path in changed or used & changed}
    while more := {path for path, used in files.items() if path not in touched and used & touched}:
        touched |= more
    return frozenset(path for path in touched if path.rpartition("/")[2].startswith("test_"))


def _git(root: Path, *arguments: str) -> list[str]:
    """Returns the lines that git prints; none if it fails, as for a branch without an upstream."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()


def changed_files(root: Path, since: str = "") -> frozenset[str]:
    """Returns the paths that differ from `since`, and those that are not committed. Without `since` it compares with the merge base
    with the upstream branch. If there is none, or it is the newest commit and everything is committed: with the commit before."""
    loose = _git(root, "ls-files", "--others", "--exclude-standard")
    base = since or "".join(_git(root, "merge-base", "HEAD", "@{upstream}")) or "HEAD~1"
    changed = _git(root, "diff", "--name-only", base) + loose
    return frozenset(changed if changed or since else _git(root, "diff", "--name-only", "HEAD~1"))


def imports_of_tests(root: Path) -> dict[str, frozenset[str]]:
    """Returns the paths that each Python file of the tests imports, and `conftest.py` of the folders above it."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    paths = [path for path in listed if path.endswith(".py") and (root / path).exists()]
    modules = {path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in paths}
    found = {}
    for path in paths:
        if path.startswith("tests/"):
            text = (root / path).read_text(encoding="utf-8")
            names = {name for pair in _IMPORTS.findall(text) for name in pair if name}
            names |= {f"{module}.{name}" for module, some in _FROM.findall(text) for name in re.findall(r"\w+", some)}
            above = {(parent / "conftest.py").as_posix() for parent in Path(path).parents}
            found[path] = frozenset({modules[name] for name in names if name in modules} | above) - {path}
    return found


_IMPORTS = re.compile(r"^\s*(?:from ([\w.]+) import|import ([\w.]+))", re.MULTILINE)
_FROM = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


class Changes:
    """Repeats the test files that a change touches, and ignores all others that the command line does not name."""

    def __init__(self, config: pytest.Config, times: int) -> None:
        self._root, self._times = config.rootpath, times
        self._touched = touched_files(changed_files(self._root, config.getoption("--changed-since")), imports_of_tests(self._root))

    def pytest_report_header(self) -> str:
        return f"repeating {self._times} times: {' '.join(sorted(self._touched)) or 'no test file is touched by the change'}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        return True if is_test and collection_path.relative_to(self._root).as_posix() not in self._touched else None

    @pytest.fixture(scope="session")
    def repetition(self, request: pytest.FixtureRequest) -> int:
        """Has the scope of the session, because Hypothesis refuses fixtures of functions."""
        number: int = request.param
        return number

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(1, self._times + 1), indirect=True, scope="session")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("repeating")
    group.addoption(
        "--repeat-changed", type=int, default=0, metavar="N", help="Repeat N times each test file that a change touches."
    )
    group.addoption("--changed-since", default="", metavar="REV", help="The change begins behind REV (default: the merge base).")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Failures(config))
    times: int = config.getoption("--repeat-changed")
    if times:
        config.pluginmanager.register(Changes(config, times))
