"""Checks which options a driver refuses before it starts Spark, and which files are sent with a project."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.choices import HeadPlace
from hotspare.base.errors import ProjectError, UsageError
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned.application import ApplicationOptions, run_application
from hotspare.host.partitioned.project_files import FILE_BYTES_MAX, ProjectFiles
from tests.host.shards import PROJECT, SHARDS


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    (tmp_path / "shop.yaml").write_text(PROJECT)
    return EngineOptions(tmp_path / "shop.yaml", f"sqlite:///{tmp_path / 'bus.db'}", shards=SHARDS)


@pytest.mark.parametrize(
    ("changed", "master", "why"),
    [
        ({"address": "here:1"}, "local[1]", "--address with --runner partitioned has no effect"),
        ({"head_place": HeadPlace.DRIVER}, "local[1]", "--head with --runner partitioned"),
        ({"listen": "here"}, "local[1]", "--listen with"),
        ({"engine": "x" * 41}, "local[1]", "is too long"),
        ({"bus_url": "memory://a"}, "local[1]", "a bus in memory"),
        ({}, "spark://there:7077", "a bus in a file exists on one machine"),
        ({}, "there", "not a master of Spark"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(options: EngineOptions, changed: Any, master: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        run_application(replace(options, **changed), ApplicationOptions(master))


def test_a_project_that_cannot_be_divided_is_refused_before_spark_starts(options: EngineOptions) -> None:
    options.project.write_text(PROJECT.replace("index: empty, publish", "retention: {bycount_sliding: 3}, publish"))
    with pytest.raises(ProjectError, match="cannot be partitioned"):
        run_application(options, ApplicationOptions("local[1]"))


def test_a_projects_small_files_go_along(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "shop.yaml").write_text("project")
    (home / "code" / "f.py").write_text("code")
    (home / ".git" / "config").write_text("hidden")
    (home / "large.csv").write_bytes(bytes(FILE_BYTES_MAX + 1))
    packed = ProjectFiles.from_project(home / "shop.yaml", None)
    assert set(packed.files) == {"shop.yaml", "code/f.py"}
    with contextlib.ExitStack() as stack:
        project, unpacked = packed.unpack(stack)
        assert (project.read_text(), (unpacked / "code" / "f.py").read_text()) == ("project", "code")
    assert not unpacked.exists()


def test_a_project_outside_of_its_home_goes_along(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "shop.yaml").write_text("project")
    packed = ProjectFiles.from_project(tmp_path / "shop.yaml", tmp_path / "home")
    assert (packed.project, packed.files) == ("shop.yaml", {"shop.yaml": b"project"})
