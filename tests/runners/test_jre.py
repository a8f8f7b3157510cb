"""Finding a Java runtime: one that is new enough, or an error that lists the tried ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.base.errors import RunnerError
from hotspare.runners.spark import jre
from hotspare.runners.spark.jre import find_java, java_version


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def runtime(home: Path, version: str, *, with_release_file: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if with_release_file:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.mark.parametrize("with_release_file", [True, False])
@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 1)])
def test_the_version_is_read_from_the_file_or_from_the_program(
    tmp_path: Path, version: str, number: int, with_release_file: bool
) -> None:
    assert java_version(runtime(tmp_path, version, with_release_file=with_release_file)) == number


def test_no_program_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") == 0


def test_java_home_comes_first_and_an_old_one_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = runtime(tmp_path / "old", "11.0.2"), runtime(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("PATH", str(new.parent))
    monkeypatch.setenv("JAVA_HOME", str(old.parent.parent))
    assert find_java() == new
    find_java.cache_clear()
    newest = runtime(tmp_path / "newest", "25")
    monkeypatch.setenv("JAVA_HOME", str(newest.parent.parent))
    assert find_java() == newest


def test_without_any_the_error_says_what_was_seen_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = runtime(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jre.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(RunnerError) as caught:
        find_java()
    assert str(old) in caught.value.detail
    assert "hotspare[jre]" in caught.value.hint
