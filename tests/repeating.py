"""A plugin of pytest: prints the commands that repeat each failure, and repeats the tests that a change touches.

A failure depends on the random order, on the seed of `random` (Hypothesis draws from it, too), on the profile of Hypothesis and on
the tests that the same process ran before. The summary names all four. Hypothesis prints the blob of an example and simulations
print their seeds by themselves.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.repo.imports import imported
from tests.repo.tree import ROOT, sources

_AFTER = "repeat after"
"""The name of a report's property: a file with the tests that the process ran, in order, up to the one that failed."""


class Failures:
    """What repeats the failures of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: list[str] = []

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
        seed = self._config.getoption("randomly_seed", None)
        ordered = [f"--randomly-seed={seed}", "--randomly-dont-reorganize"] if isinstance(seed, int) else ["-p", "no:randomly"]
        for name, report in found.items():
            terminalreporter.line(shlex.join([*command, *ordered, name]))
            after = dict(getattr(report, "user_properties", ())).get(_AFTER)
            if after:
                terminalreporter.line(f"  or, behind all that its process ran before, with @{after} in its place")


def touched_files(changed: frozenset[str], files: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The test files that a change touches: they, or modules of tests below them, are in `changed` or import what is.

    `files` maps the path of each Python file of the tests to the paths of the repository's files that it imports. Imports of `src`
    are followed no further, because a change of a module deep in `src` would touch every test.
    """
    touched = {path for path, used in files.items() if path in changed or used & changed}
    while more := {path for path, used in files.items() if path not in touched and used & touched}:
        touched |= more
    return frozenset(path for path in touched if path.rpartition("/")[2].startswith("test_"))


def changed_files(since: str = "", root: Path = ROOT) -> frozenset[str]:
    """The paths that differ from `since`, and those that are not committed. Without `since`: from the merge base with the upstream
    branch; if there is none, or it is the newest commit and everything is committed, from the commit before."""

    def lines(*arguments: str) -> list[str]:  # none if git fails, as for a branch without an upstream
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()

    loose = lines("ls-files", "--others", "--exclude-standard")
    base = since or "".join(lines("merge-base", "HEAD", "@{upstream}")) or "HEAD~1"
    return frozenset(lines("diff", "--name-only", base) + loose or lines("diff", "--name-only", "HEAD~1"))


def _imports() -> dict[str, frozenset[str]]:
    """The paths that each Python file of the tests imports, `conftest.py` of the folders above it included."""
    paths = {source.module: source.path for source in sources("src", "tests")}
    found = {}
    for source in sources("tests"):
        names = {name for _, name in imported(source)}
        used = {paths[each] for name in names for each in (name, name.rpartition(".")[0]) if each in paths}
        above = {(parent / "conftest.py").as_posix() for parent in Path(source.path).parents}
        found[source.path] = frozenset(used | above) - {source.path}
    return found


class Changes:
    """Repeats the test files that a change touches, and ignores all others that the command line does not name."""

    def __init__(self, times: int, since: str) -> None:
        self._times = times
        self._touched = touched_files(changed_files(since), _imports())

    def pytest_report_header(self) -> str:
        return f"repeating {self._times} times: {' '.join(sorted(self._touched)) or 'no test file is touched by the change'}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        return True if is_test and collection_path.relative_to(ROOT).as_posix() not in self._touched else None

    @pytest.fixture(scope="session")
    def repetition(self, request: pytest.FixtureRequest) -> int:
        """Of the session, because Hypothesis refuses fixtures of functions."""
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
        config.pluginmanager.register(Changes(times, config.getoption("--changed-since")))
