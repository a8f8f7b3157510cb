"""The archive of classes: written by a real JVM, used by the next one, and ignored if it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.runners.spark.archive import archive_path, existing_archive
from hotspare.runners.spark.prepare import ensure_archive
from hotspare.runners.spark.session import Session, SessionOptions

pytestmark = pytest.mark.spark


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_an_archive_is_written_once_and_used(tmp_path: Path) -> None:
    assert existing_archive(tmp_path, None) is None
    path = ensure_archive(tmp_path, None)
    written = path.stat().st_mtime_ns
    assert ensure_archive(tmp_path, None).stat().st_mtime_ns == written
    assert existing_archive(tmp_path, None) == path == archive_path(tmp_path, None)
    session = Session(SessionOptions(cores=1, archive=path))
    try:
        assert str(path) in mapped_files(session.jvm.pid)
    finally:
        session.stop()


def test_another_class_path_has_another_archive(tmp_path: Path) -> None:
    assert archive_path(tmp_path, None) != archive_path(tmp_path, tmp_path / "some.jar")


def test_a_damaged_archive_only_costs_time(tmp_path: Path) -> None:
    path = archive_path(tmp_path, None)
    path.write_bytes(b"not an archive" * 1000)
    session = Session(SessionOptions(cores=1, archive=path))
    try:
        assert session.spark.range(5).toArrow().num_rows == 5
        assert str(path) not in mapped_files(session.jvm.pid)
    finally:
        session.stop()
