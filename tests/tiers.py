"""The three tiers of the suite, by marker, and the order in which two test processes share them.

    (no marker)  `make test`: nothing outside Python but a few short processes of our own
    servers      `make test-servers`: brokers, ZooKeeper, databases; a test gets the marker by a fixture or parameter that names one
    system       `make test-system`: engine processes and their kills, Spark, hosts of their own

A test that starts a server itself without its marker fails, because `make test` runs without servers.

Tests marked `spark` start a JVM that uses both cores: they are one group, which one of the processes works off. Long work comes
first and tests without a marker last, so that both processes are busy to the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SERVER_FIXTURES = frozenset({"kafka", "mariadb", "postgresql", "redis", "s3", "zookeeper"})


def servers(*parameters: str) -> list[Any]:
    """Returns fixture parameters, each of which names a server; the marker keeps their tests out of `make test`."""
    return [pytest.param(each, marks=pytest.mark.servers) for each in parameters]


_SERVER_PROGRAMS = frozenset({"java", "mariadbd", "postgres", "redis-server", "spark-submit"})
_UNMARKED = ""
"""The running test, if it has no marker of a tier."""


def _asks_for_marker(event: str, arguments: tuple[Any, ...]) -> None:
    """Fails an unmarked test that starts a server; an audit hook, called before a process starts."""
    if event == "subprocess.Popen" and _UNMARKED:
        words = {Path(str(word)).name for word in (arguments[0], *arguments[1])}
        if words & _SERVER_PROGRAMS and "-version" not in words:
            raise AssertionError(f"{_UNMARKED} starts {min(words & _SERVER_PROGRAMS)}; mark it servers or system")


sys.addaudithook(_asks_for_marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Tells the audit hook which test runs."""
    global _UNMARKED
    _UNMARKED = "" if any(item.get_closest_marker(tier) for tier in ("servers", "system")) else item.nodeid
    try:
        return (yield)
    finally:
        _UNMARKED = ""


_RANKS = ("spark", "system", "servers", "law")


def _rank(item: pytest.Item) -> tuple[int, bool]:
    """Returns the sort key by tier; tests that share one Spark session are adjacent."""
    rank = next((rank for rank, marker in enumerate(_RANKS) if item.get_closest_marker(marker) is not None), len(_RANKS))
    return rank, "lender" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Adds the markers that follow from what a test uses, before `-m` selects by them."""
    if item.get_closest_marker("spark") is not None:
        item.add_marker(pytest.mark.system)
        return
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = {*getattr(item, "fixturenames", ()), *(each for each in given if isinstance(each, str))}
    if used & SERVER_FIXTURES:
        item.add_marker(pytest.mark.servers)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts files with long work first, in the random order within each tier. The tests of a file stay together: they share
    fixtures, some of which may be made once only."""
    ranks: dict[Path, tuple[int, bool]] = {}
    for item in items:
        ranks[item.path] = min(_rank(item), ranks.get(item.path, _rank(item)))
    items.sort(key=lambda item: ranks[item.path])


class _ByFile(LoadScopeScheduling):
    """Gives a file to one process, since its tests share fixtures, and all files with Spark tests to one."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(self.config.rootpath / nodeid.partition("::")[0])


@cache
def _scope(file: Path) -> str:
    return "spark" if "pytest.mark.spark" in file.read_text(encoding="utf-8") else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # not by the number of tests: the order above says what is long
    return _ByFile(config, log)
