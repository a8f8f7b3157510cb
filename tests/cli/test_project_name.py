"""Every command that takes a project selects one of several in a file by name (SPEC A3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

_PROJECT = """\
<project name="{name}"><contqueries><contquery name="q"><windows>
  <window-source name="in" insert-only="true"><schema-string>id*:int64,{field}:int64</schema-string></window-source>
  <{window} name="out">{inside}</{window}>
</windows><edges><edge source="in" target="out"/></edges></contquery></contqueries></project>
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Returns a file with two projects that run, and one that does not load."""
    projects = [
        _PROJECT.format(name="first", field="x", window="window-copy", inside=""),
        _PROJECT.format(name="second", field="y", window="window-filter", inside="<expression>y > 1</expression>"),
        _PROJECT.format(name="third", field="z", window="window-notification", inside=""),
    ]
    path = tmp_path / "engine.xml"
    path.write_text(f"<engine><projects>{''.join(projects)}</projects></engine>".replace("y > 1", "y &gt; 1"))
    return path


def test_the_names_are_told_where_none_is_given(file: Path) -> None:
    for arguments in (("validate", file), ("replay", file, "--out", "q/out=o.csv"), ("run", file, "--bus", "memory://x")):
        done = hotspare_here(*arguments)
        assert done.returncode == 2
        assert f"{file} has 3 projects" in done.stderr
        assert "choose one with --project-name: first, second, third" in done.stderr


def test_one_is_chosen_whatever_is_wrong_with_the_others(file: Path, tmp_path: Path) -> None:
    done = hotspare_here("validate", file, "--project-name", "second")
    assert (done.returncode, "project second has no mistakes" in done.stdout) == (0, True), done.stderr
    done = hotspare_here("validate", file, "--project-name", "third")
    assert (done.returncode, "'notification'" in done.stderr) == (2, True)
    done = hotspare_here("validate", file, "--project-name", "scond")
    assert (done.returncode, "did you mean 'second'?" in done.stderr) == (2, True)
    rows, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows.write_text("i,n,1,1\ni,n,2,2\n")
    for name, expected in (("first", 2), ("second", 1)):
        done = hotspare_here("replay", file, "--project-name", name, "--in", f"q/in={rows}", "--out", f"q/out={out}")
        assert (done.returncode, len(out.read_text().splitlines())) == (0, expected), done.stderr


def test_adapters_choose_by_the_window(file: Path, tmp_path: Path) -> None:
    rows = tmp_path / "in.csv"
    rows.write_text("i,n,1,1\n")
    bus = f"sqlite:///{tmp_path / 'bus.db'}"
    done = hotspare_here("publish", "--bus", bus, "--window", "second/q/in", "--project", file, "--create", rows)
    assert (done.returncode, "published 1 events" in done.stderr) == (0, True), done.stderr
    done = hotspare_here("publish", "--bus", bus, "--window", "fourth/q/in", "--project", file, rows)
    assert (done.returncode, "has no project 'fourth'" in done.stderr) == (2, True), done.stderr


def test_replay_says_what_of_a_project_has_no_effect(file: Path, tmp_path: Path) -> None:
    file.write_text(file.read_text().replace('<project name="first"', '<project name="first" threads="4"'))
    rows = tmp_path / "in.csv"
    rows.write_text("i,n,1,1\n")
    out = f"q/out={tmp_path / 'out.csv'}"
    done = hotspare_here("replay", file, "--project-name", "first", "--in", f"q/in={rows}", "--out", out)
    assert (done.returncode, "without effect: attribute threads" in done.stderr) == (0, True), done.stderr


def test_a_name_that_several_have_chooses_none(file: Path) -> None:
    file.write_text(file.read_text().replace('name="third"', 'name="second"'))
    done = hotspare_here("validate", file, "--project-name", "second")
    assert done.returncode == 2
    assert "there are several projects second" in done.stderr
    assert hotspare_here("validate", file, "--project-name", "first").returncode == 0
