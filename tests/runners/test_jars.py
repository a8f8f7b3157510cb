"""The cache of pinned jars: only what was pinned is used, and one process fetches while others wait."""

from __future__ import annotations

import fcntl
import hashlib
import threading
from pathlib import Path

import pytest

from hotspare.base.errors import RunnerError
from hotspare.runners.spark import jars
from hotspare.runners.spark.jars import Jar, available, cached, ensure

CONTENT = b"a jar"
JAR = Jar("org.example:thing:1.2", hashlib.sha256(CONTENT).hexdigest())


def fetch(_jar: Jar, path: Path) -> None:
    path.write_bytes(CONTENT)


def test_what_is_missing_is_fetched_once(tmp_path: Path) -> None:
    calls = []

    def counted(jar: Jar, path: Path) -> None:
        calls.append(jar)
        fetch(jar, path)

    folder = tmp_path / "new" / "cache"
    assert cached(JAR, folder) is None
    paths = {ensure(JAR, folder, counted) for _ in range(3)}
    assert paths == {folder / "thing-1.2.jar"} == {cached(JAR, folder)}
    assert calls == [JAR]


def test_another_content_is_refused_and_not_kept(tmp_path: Path) -> None:
    def wrong(_jar: Jar, path: Path) -> None:
        path.write_bytes(b"something else")

    with pytest.raises(RunnerError, match="not the pinned jar"):
        ensure(JAR, tmp_path, wrong)
    assert cached(JAR, tmp_path) is None
    assert ensure(JAR, tmp_path, fetch).read_bytes() == CONTENT


def test_a_jar_changed_in_the_cache_is_refused_and_named(tmp_path: Path) -> None:
    path = ensure(JAR, tmp_path, fetch)
    path.write_bytes(CONTENT + b"!")
    with pytest.raises(RunnerError) as caught:
        cached(JAR, tmp_path)
    assert str(path) in caught.value.hint


def test_a_failed_fetch_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken(_jar: Jar, path: Path) -> None:
        path.write_bytes(b"half")
        raise RunnerError("the line is dead")

    with pytest.raises(RunnerError, match="the line is dead"):
        ensure(JAR, tmp_path, broken)
    assert [p.name for p in tmp_path.iterdir()] == ["thing-1.2.jar.lock"]


def test_who_comes_second_waits_for_the_first_and_does_not_fetch(tmp_path: Path) -> None:
    with (tmp_path / "thing-1.2.jar.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found: list[Path] = []

        def unwanted(_jar: Jar, _path: Path) -> None:
            raise AssertionError("fetched although another process did")

        second = threading.Thread(target=lambda: found.append(ensure(JAR, tmp_path, unwanted)))
        second.start()
        (tmp_path / JAR.file_name).write_bytes(CONTENT)  # the first one, still holding the lock, finishes
        assert not found
    second.join(30)
    assert found == [tmp_path / "thing-1.2.jar"]


def test_callers_that_can_do_without_are_told_why_they_have_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path, why = available(JAR)
    assert path is None
    assert jars.HINT in why
    ensure(JAR, fetch=fetch)
    assert available(JAR) == (tmp_path / "hotspare" / "jars" / "thing-1.2.jar", "")
    (tmp_path / "hotspare" / "jars" / "thing-1.2.jar").write_bytes(b"")
    path, why = available(JAR)
    assert path is None
    assert "pinned" in why
